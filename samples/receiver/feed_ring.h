// SPDX-License-Identifier: Apache-2.0
//
// FeedRing: a ring with the sockets of a feed: two lines, and requests for what both lost.
//
// A datagram's line is its socket's user data. How the ring waits, and every other setting of it,
// comes from the environment (XTREME_WAIT=...). Threads: one.

#ifndef XTREME_SAMPLES_RECEIVER_FEED_RING_H_
#define XTREME_SAMPLES_RECEIVER_FEED_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "api/xtreme.hpp"
#include "samples/feed/mold_udp64.h"

namespace receiver {

class FeedRing {
 public:
  struct Options {
    std::string interface;
    std::array<std::string, 2> lines;
    std::string request_to;  // Empty: nothing is asked for.
    size_t request_line = 2;  // User data of answers.
  };

  // Everything is started: pending() says when it is done. "" or what failed.
  std::string Open(const Options& options);

  xtreme::Ring& ring() { return *ring_; }
  // Operations of its sockets that have not ended. Each ends as an OP_DONE that is to be told here.
  bool pending() const { return pending_ > 0; }
  void OnOpDone() { --pending_; }

  void Ask(const feed::mold::Request& request) { requests_.Send(feed::mold::Emit(request)); }

 private:
  std::string OpenLine(size_t number, const std::string& line);
  std::string OpenRequests(const Options& options);

  std::optional<xtreme::Ring> ring_;  // Outlives its sockets.
  std::array<xtreme::UdpSocket, 2> lines_;
  xtreme::UdpSocket requests_;
  int pending_ = 0;
};

// How long ago the device received a packet; 0: unknown. A card's clock that is disciplined to UTC
// tells the time of day, any other is shown on the ring's.
int64_t SinceDevice(const xtreme::Completion& packet, int64_t ring_now_ns);

// What a RING completion says, for a human.
std::string Describe(const xtreme::Completion& event);

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_FEED_RING_H_
