// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/feed_ring.h"

#include <unistd.h>

#include "samples/receiver/process.h"

namespace receiver {
namespace {

// By enum xtreme_ring_event.
constexpr std::array<const char*, 14> kEvents = {
    "?",          "link down",    "link up",       "dropped",        "broken",   "removed",
    "clock lost", "clock synced", "rule fallback", "neighbour lost", "pool low", "pool ok",
    "MTU changed", "moved"};
static_assert(kEvents.size() == XTREME_MOVED + 1);

}  // namespace

std::string FeedRing::Open(const Options& options) {
  xtreme::RingOptions settings = xtreme::RingOptions::Feed(options.interface);
  auto ring = xtreme::Ring::Open(settings.FromEnvironment(environ));
  if (!ring) return ring.error().message;
  ring_.emplace(*std::move(ring));
  for (size_t i = 0; i < options.lines.size(); ++i) {
    if (std::string wrong = OpenLine(i, options.lines[i]); !wrong.empty()) return wrong;
  }
  if (!options.request_to.empty()) {
    if (std::string wrong = OpenRequests(options); !wrong.empty()) return wrong;
  }
  const xtreme::Status started = ring_->Start();
  return started.ok() ? "" : started.error().message;
}

std::string FeedRing::OpenLine(size_t number, const std::string& line) {
  auto group = xtreme::ParseAddress(line);
  if (!group) return group.error().message;
  auto socket = ring().OpenUdp({.local = line, .user_data = number, .reuse = true});
  if (!socket) return socket.error().message;
  lines_[number] = *std::move(socket);
  pending_ += 2;
  const xtreme::Status joined = lines_[number].Join(*group);
  return joined.ok() ? "" : joined.error().message;
}

std::string FeedRing::OpenRequests(const Options& options) {
  auto server = xtreme::ParseAddress(options.request_to);
  if (!server) return server.error().message;
  auto socket = ring().OpenUdp({.user_data = options.request_line});
  if (!socket) return socket.error().message;
  requests_ = *std::move(socket);
  pending_ += 2;
  const xtreme::Status connected = requests_.Connect(*server);
  return connected.ok() ? "" : connected.error().message;
}

int64_t SinceDevice(const xtreme::Completion& packet, int64_t ring_now_ns) {
  if (packet.hw_time_ns == 0) return 0;
  const int64_t since_ns = ring_now_ns - packet.hw_time_ns;
  return since_ns >= 0 ? since_ns : RealNs() - packet.hw_time_ns;
}

std::string Describe(const xtreme::Completion& event) {
  const size_t known = event.event < kEvents.size() ? event.event : 0;
  std::string text = std::string("ring: ") + kEvents[known];
  if (event.text != nullptr) text += std::string(", ") + event.text;
  if (event.count != 0) text += ", " + std::to_string(event.count);
  if (event.layer != 0) text += " at layer " + std::to_string(event.layer);
  return text + "\n";
}

}  // namespace receiver
