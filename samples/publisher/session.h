// SPDX-License-Identifier: Apache-2.0
//
// Session: publishes a seeded market at a rate, in datagrams of so many messages.
//
// Units: nanoseconds. Threads: one.

#ifndef XTREME_SAMPLES_PUBLISHER_SESSION_H_
#define XTREME_SAMPLES_PUBLISHER_SESSION_H_

#include <cstdint>

#include "samples/publisher/feed.h"
#include "samples/publisher/line_sockets.h"
#include "samples/publisher/market.h"

namespace publisher {

class Session {
 public:
  struct Options {
    Feed::Options feed;  // Its seed is the market's, too.
    uint64_t messages = 100'000;
    double messages_per_second = 50'000;
    int messages_per_datagram = 8;
    int stocks = 20;
  };

  // `sockets` outlive it.
  Session(const Options& options, LineSockets* sockets);

  // Publishes what is due at `now_ns` (the first call starts the clock), at most a few datagrams.
  void Publish(int64_t now_ns);
  // Answers the requests that wait; how many.
  int AnswerRequests() { return feed_.AnswerRequests(); }
  // Says on both lines where the sequence stands, or that the session has ended.
  void Heartbeat() { feed_.Heartbeat(finished()); }

  bool finished() const { return counters().published == options_.messages; }
  const Feed::Counters& counters() const { return feed_.counters(); }

 private:
  void PublishDatagram();

  const Options options_;
  Market market_;
  Feed feed_;
  int64_t start_ns_ = -1;
};

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_SESSION_H_
