// SPDX-License-Identifier: Apache-2.0

#include "samples/publisher/session.h"

#include <algorithm>

#include "samples/feed/itch50.h"

namespace publisher {
namespace {

constexpr int kMostDatagramsAtOnce = 64;

}  // namespace

Session::Session(const Options& options, LineSockets* sockets)
    : options_(options),
      market_(options.feed.seed, options.stocks),
      feed_(options.feed, sockets) {}

void Session::Publish(int64_t now_ns) {
  if (start_ns_ < 0) start_ns_ = now_ns;
  const double elapsed = static_cast<double>(now_ns - start_ns_) / 1e9;
  const auto due = std::min<uint64_t>(
      options_.messages, static_cast<uint64_t>(elapsed * options_.messages_per_second));
  for (int i = 0; i < kMostDatagramsAtOnce && counters().published < due; ++i) {
    // Whole datagrams only, but for the last one.
    const uint64_t waiting = due - counters().published;
    const auto whole = static_cast<uint64_t>(options_.messages_per_datagram);
    if (waiting < whole && due != options_.messages) return;
    PublishDatagram();
  }
}

void Session::PublishDatagram() {
  const uint64_t now = MidnightNs();
  for (int i = 0; i < options_.messages_per_datagram && !finished(); ++i) {
    feed::itch::Message message = market_.Next();
    message.time_ns = now;
    feed_.Add(message);
  }
  feed_.Flush();
}

}  // namespace publisher
