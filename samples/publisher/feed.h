// SPDX-License-Identifier: Apache-2.0
//
// Feed: ITCH messages as a MoldUDP64 session on two lines, each losing some datagrams on purpose,
// that sends again what it is asked for. Every message that was published is kept.
//
// Invariant: both lines carry the same datagrams; which of them a line loses depends on the seed
// and the datagram's number only. Threads: one.

#ifndef XTREME_SAMPLES_PUBLISHER_FEED_H_
#define XTREME_SAMPLES_PUBLISHER_FEED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "samples/feed/itch50.h"
#include "samples/feed/mold_udp64.h"
#include "samples/publisher/line_sockets.h"

namespace publisher {

class Feed {
 public:
  struct Options {
    std::string name = "XTREME";
    uint64_t seed = 1;
    double loss = 0.0;  // Of each line, 0 .. 1.
    std::array<sockaddr_in, 2> lines{};
  };
  struct Counters {
    uint64_t published = 0;   // Messages.
    uint64_t datagrams = 0;   // Per line, lost ones included.
    std::array<uint64_t, 2> lost{};  // Datagrams that the line did not get, on purpose.
    uint64_t requests = 0;
    uint64_t refused_requests = 0;  // Malformed, of another session, or for what is not there.
    uint64_t resent = 0;      // Messages.
  };

  // `sockets` outlive it.
  Feed(const Options& options, LineSockets* sockets);

  // Publishes a message, with the next Flush() or when a datagram is full.
  void Add(const feed::itch::Message& message);
  // Sends what was added.
  void Flush();
  // Answers the requests that wait; how many.
  int AnswerRequests();
  // Says on both lines where the sequence stands, or that the session has ended.
  void Heartbeat(bool ended);

  const Counters& counters() const { return counters_; }

 private:
  void SendOnLines(std::span<const uint8_t> datagram, bool may_lose);
  void Answer(const sockaddr_in& to, const feed::mold::Request& request);
  std::span<const uint8_t> Kept(uint64_t sequence) const;

  const Options options_;
  LineSockets* const sockets_;
  feed::mold::Builder builder_;     // What was added and not sent.
  feed::mold::Builder answer_;
  std::array<std::mt19937_64, 2> loss_;
  std::vector<uint8_t> kept_;       // All messages, one behind the other.
  std::vector<size_t> ends_;        // Where each ends; by sequence - 1.
  Counters counters_;
};

// The time of day in nanoseconds since midnight UTC.
uint64_t MidnightNs();

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_FEED_H_
