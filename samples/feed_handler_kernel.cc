// SPDX-License-Identifier: Apache-2.0
//
// feed_handler_kernel: the feed handler of feed_handler.cc over kernel sockets and epoll, to
// compare with: the same arbiter, books and requests; the kernel copies every datagram to it.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "samples/feed/mold_udp64.h"
#include "samples/receiver/kernel_lines.h"
#include "samples/receiver/options.h"
#include "samples/receiver/process.h"
#include "samples/receiver/run.h"

namespace {

constexpr char kProgram[] = "feed_handler_kernel";
// While something is missing, requests are due; else only the line every second.
constexpr int kWaitMs = 100;
constexpr int kMissingWaitMs = 1;

// The next recvmmsg overwrites what the last one brought: nothing can be kept where it is.
struct NoReference {
  std::span<const uint8_t> bytes() const { return {}; }
};
using KernelRun = receiver::Run<NoReference>;

// What is done with a datagram, apart from how it was received: a profiler tells the two apart.
[[gnu::noinline]] void HandleDatagram(const receiver::KernelLines::Datagram& datagram,
                                      KernelRun* run) {
  const bool answer = datagram.line == receiver::KernelLines::kRequests;
  const size_t line = answer ? KernelRun::retransmission() : datagram.line;
  const int64_t since_ns =
      datagram.received_ns == 0 ? 0 : receiver::RealNs() - datagram.received_ns;
  run->OnDatagram(line, datagram.bytes, since_ns, datagram.bytes.size(),
                  [] { return NoReference(); });
}

// One turn of the loop; a function of its own, so that a profiler finds it.
[[gnu::noinline]] void ReceiveOnce(receiver::KernelLines* lines, KernelRun* run) {
  const int wait_ms = run->missing_now() ? kMissingWaitMs : kWaitMs;
  for (const auto& datagram : lines->Receive(wait_ms)) HandleDatagram(datagram, run);
  if (const auto request = run->NextRequest()) lines->Ask(feed::mold::Emit(*request));
}

}  // namespace

int main(int argc, char** argv) {
  receiver::Options options;
  const auto ended = receiver::ParseCommandLine(
      argc, argv, "Handles a market-data feed on kernel sockets and epoll.", &options);
  if (ended) return *ended;
  receiver::KernelLines lines;
  const std::string wrong = lines.Open(options.interface, options.lines, options.request_to);
  if (!wrong.empty()) return receiver::Refuse(kProgram, wrong);
  KernelRun run(kProgram, options, 0);
  run.Ready();
  while (!run.Over()) ReceiveOnce(&lines, &run);
  return run.Finish({{"socket.dropped", lines.drops()}});
}
