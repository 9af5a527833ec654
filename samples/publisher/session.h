// SPDX-License-Identifier: Apache-2.0
//
// Session: publishes a market on two lines, each losing some datagrams on purpose, and sends again
// what it is asked for. Every message that was published is kept.
//
// Invariant: both lines carry the same datagrams; which of them a line loses depends on the seed
// and the datagram's number only. Units: nanoseconds. Threads: one.

#ifndef XTREME_SAMPLES_PUBLISHER_SESSION_H_
#define XTREME_SAMPLES_PUBLISHER_SESSION_H_

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "samples/feed/mold_udp64.h"
#include "samples/publisher/line_sockets.h"
#include "samples/publisher/market.h"

namespace publisher {

class Session {
 public:
  struct Options {
    std::string name = "XTREME";
    uint64_t seed = 1;
    uint64_t messages = 100'000;
    double messages_per_second = 50'000;
    int messages_per_datagram = 8;
    double loss = 0.0;  // Of each line, 0 .. 1.
    int stocks = 20;
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

  Session(const Options& options, LineSockets* sockets);

  // Publishes what is due at `now_ns` (the first call starts the clock), at most a few datagrams.
  void Publish(int64_t now_ns);
  // Answers the requests that wait; how many.
  int AnswerRequests();
  // Says on both lines where the sequence stands, or that the session has ended.
  void Heartbeat();

  bool finished() const { return counters_.published == options_.messages; }
  const Counters& counters() const { return counters_; }

 private:
  void PublishDatagram();
  void SendOnLines(std::span<const uint8_t> datagram, bool may_lose);
  void Answer(const sockaddr_in& to, const feed::mold::Request& request);
  std::span<const uint8_t> Kept(uint64_t sequence) const;

  const Options options_;
  LineSockets* const sockets_;
  Market market_;
  feed::mold::Builder builder_;
  std::array<std::mt19937_64, 2> loss_;
  std::vector<uint8_t> kept_;       // All messages, one behind the other.
  std::vector<uint32_t> ends_;      // Where each ends; by sequence - 1.
  int64_t start_ns_ = -1;
  Counters counters_;
};

// The time of day in nanoseconds since midnight UTC.
uint64_t MidnightNs();

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_SESSION_H_
