// SPDX-License-Identifier: Apache-2.0
//
// feed_handler: a market-data feed as zero-copy completions. Joins line A and line B on one ring,
// delivers each message once and in order, asks for what both lines lost on the same ring, keeps
// books, and measures. What comes too early is held where the NIC wrote it.
//
// How the ring waits, and every other setting of it, comes from the environment (XTREME_WAIT=...).

#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "samples/feed/mold_udp64.h"
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

// A ring with the sockets of a feed.
class FeedRing {
 public:
  // Everything is started: Pending() says when it is done. "" or what failed.
  std::string Open(const receiver::Options& options) {
    xtreme::RingOptions settings = xtreme::RingOptions::Feed(options.interface);
    auto ring = xtreme::Ring::Open(settings.FromEnvironment(environ));
    if (!ring) return ring.error().message;
    ring_.emplace(*std::move(ring));
    for (size_t i = 0; i < options.lines.size(); ++i) {
      if (std::string wrong = OpenLine(i, options.lines[i]); !wrong.empty()) return wrong;
    }
    if (!options.request_to.empty()) {
      if (std::string wrong = OpenRequests(options.request_to); !wrong.empty()) return wrong;
    }
    const xtreme::Status started = ring_->Start();
    return started.ok() ? "" : started.error().message;
  }

  xtreme::Ring& ring() { return *ring_; }
  bool pending() const { return pending_ > 0; }
  void OnOpDone() { --pending_; }

  void Ask(const feed::mold::Request& request) { requests_.Send(feed::mold::Emit(request)); }

 private:
  std::string OpenLine(size_t number, const std::string& line) {
    auto group = xtreme::ParseAddress(line);
    if (!group) return group.error().message;
    auto socket = ring().OpenUdp({.local = line, .user_data = number, .reuse = true});
    if (!socket) return socket.error().message;
    lines_[number] = *std::move(socket);
    pending_ += 2;
    const xtreme::Status joined = lines_[number].Join(*group);
    return joined.ok() ? "" : joined.error().message;
  }

  std::string OpenRequests(const std::string& request_to) {
    auto server = xtreme::ParseAddress(request_to);
    if (!server) return server.error().message;
    auto socket = ring().OpenUdp({.user_data = RingRun::retransmission()});
    if (!socket) return socket.error().message;
    requests_ = *std::move(socket);
    pending_ += 2;
    const xtreme::Status connected = requests_.Connect(*server);
    return connected.ok() ? "" : connected.error().message;
  }

  std::optional<xtreme::Ring> ring_;  // Outlives its sockets.
  std::array<xtreme::UdpSocket, 2> lines_;
  xtreme::UdpSocket requests_;
  int pending_ = 0;
};

// How long ago the device received it; 0: unknown. A card's clock that is disciplined to UTC tells
// the time of day, any other is shown on the ring's.
int64_t SinceDevice(const xtreme::Completion& packet, int64_t ring_now_ns) {
  if (packet.hw_time_ns == 0) return 0;
  const int64_t since_ns = ring_now_ns - packet.hw_time_ns;
  return since_ns >= 0 ? since_ns : receiver::RealNs() - packet.hw_time_ns;
}

// What is done with a datagram, apart from how it was received: a profiler tells the two apart.
[[gnu::noinline]] void HandleDatagram(xtreme::Completion& packet, int64_t ring_now_ns,
                                      RingRun* run) {
  run->OnDatagram(packet.user_data, packet.bytes(), SinceDevice(packet, ring_now_ns), 0,
                  [&packet] { return packet.Keep(); });
}

// By enum xtreme_ring_event.
constexpr std::array<const char*, 12> kEvents = {
    "?",          "link down",    "link up",       "dropped",        "broken",   "removed",
    "clock lost", "clock synced", "rule fallback", "neighbour lost", "pool low", "pool ok"};

std::string Describe(const xtreme::Completion& event) {
  const size_t known = event.event < kEvents.size() ? event.event : 0;
  std::string text = std::string("ring: ") + kEvents[known];
  if (event.text != nullptr) text += std::string(", ") + event.text;
  if (event.count != 0) text += ", " + std::to_string(event.count);
  if (event.layer != 0) text += " at layer " + std::to_string(event.layer);
  return text + "\n";
}

// One turn of the loop; a function of its own, so that a profiler finds it.
[[gnu::noinline]] void ReceiveOnce(FeedRing* feed, RingRun* run) {
  const int64_t wait_ns = run->missing_now() ? kMissingWaitNs : kWaitNs;
  for (xtreme::Completion& completion : feed->ring().Wait(wait_ns)) {
    switch (completion.kind()) {
      case xtreme::kPacket: HandleDatagram(completion, feed->ring().now_ns(), run); break;
      case xtreme::kOpDone:
        feed->OnOpDone();
        if (completion.status != 0) run->Fail(completion.text);
        break;
      case xtreme::kRing: receiver::Print(Describe(completion)); break;
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
  FeedRing feed;
  const std::string wrong = feed.Open(options);
  if (!wrong.empty()) return receiver::Refuse(kProgram, wrong);
  RingRun run(kProgram, options, kHoldByReference);
  while (feed.pending() && !run.Over()) ReceiveOnce(&feed, &run);
  if (!feed.pending()) run.Ready();
  while (!run.Over()) ReceiveOnce(&feed, &run);
  return run.Finish(Counters(feed.ring()));
}
