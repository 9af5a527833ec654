// SPDX-License-Identifier: Apache-2.0
//
// feed_handler: a market-data feed as zero-copy completions. Joins line A and line B on one ring,
// delivers each message once and in order, asks for what both lines lost on the same ring, keeps
// books, and measures. What comes too early is held where the NIC wrote it.
//
// How the ring waits, and every other setting of it, comes from the environment (XTREME_WAIT=...).

#include <cstdint>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "samples/receiver/feed_ring.h"
#include "samples/receiver/options.h"
#include "samples/receiver/process.h"
#include "samples/receiver/run.h"

namespace {

using RingRun = receiver::Run<xtreme::Packet>;

constexpr char kProgram[] = "feed_handler";
constexpr size_t kHoldByReference = 256;  // Datagrams; above, they are copied.
// While something is missing, requests are due; else only the line every second.
constexpr int64_t kWaitNs = 100'000'000;
constexpr int64_t kMissingWaitNs = 1'000'000;

// What is done with a datagram, apart from how it was received: a profiler tells the two apart.
[[gnu::noinline]] void HandleDatagram(xtreme::Completion& packet, int64_t ring_now_ns,
                                      RingRun* run) {
  run->OnDatagram(packet.user_data, packet.bytes(), receiver::SinceDevice(packet, ring_now_ns), 0,
                  [&packet] { return packet.Keep(); });
}

// One turn of the loop; a function of its own, so that a profiler finds it.
[[gnu::noinline]] void ReceiveOnce(receiver::FeedRing* feed, RingRun* run) {
  const int64_t wait_ns = run->missing_now() ? kMissingWaitNs : kWaitNs;
  for (xtreme::Completion& completion : feed->ring().Wait(wait_ns)) {
    switch (completion.kind()) {
      case xtreme::kPacket: HandleDatagram(completion, feed->ring().now_ns(), run); break;
      case xtreme::kOpDone:
        feed->OnOpDone();
        if (completion.status != 0) run->Fail(completion.text);
        break;
      case xtreme::kRing: receiver::Print(receiver::Describe(completion)); break;
      default: break;
    }
  }
  if (feed->pending()) return;
  if (const auto request = run->NextRequest()) feed->Ask(*request);
}

// Every counter of the ring that is not 0.
std::vector<receiver::NamedCount> Counters(const xtreme::Ring& ring) {
  std::vector<receiver::NamedCount> counts;
  for (const xtreme_counter& each : ring.Counters()) {
    if (each.value == 0) continue;
    counts.emplace_back(std::string(each.scope) + "." + each.name, each.value);
  }
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  receiver::Options options;
  const auto ended = receiver::ParseCommandLine(
      argc, argv, "Handles a market-data feed on a ring of a ConnectX.", &options);
  if (ended) return *ended;
  receiver::FeedRing feed;
  const std::string wrong = feed.Open({.interface = options.interface,
                                       .lines = options.lines,
                                       .request_to = options.request_to,
                                       .request_line = RingRun::retransmission()});
  if (!wrong.empty()) return receiver::Refuse(kProgram, wrong);
  RingRun run(kProgram, options, kHoldByReference);
  while (feed.pending() && !run.Over()) ReceiveOnce(&feed, &run);
  if (!feed.pending()) run.Ready();
  while (!run.Over()) ReceiveOnce(&feed, &run);
  return run.Finish(Counters(feed.ring()));
}
