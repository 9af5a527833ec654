// SPDX-License-Identifier: Apache-2.0
//
// Script: a test of one rule in packetdrill's notation, run over a Stack under virtual time.
//
//   set timestamps=0 nagle=1               options of the connection; segments, syn_queue,
//   +0    listen                              deliveries and syns_per_second, the stack's. Calls:
//   +0    < S 0:0(0) win 65535 <mss 1460>     listen [BACKLOG], connect, send N [now] [more]
//   +0    > S. 0:0(0) ack 1                   [-> RESULT], credit N, shutdown, close [SECONDS],
//                                             abort, deaf, room, up (the link again), leave
//                                             (events in the stack), icmp SEQ ERROR [MTU [LENGTH]]
//   +.01  < . 1:1(0) ack 1 win 65535       `<` arrives, `>` must have been sent at that time
//   +0    > . 1:3001(3000) ack 1           several that touch, the last with these flags
//   +.2~.3 > . 1:1001(1000) ack 1          at the time it was sent, between these two
//   +0    event accepted                   an event must have been taken
//   +0    is cwnd=10000 ssthresh=7000      so it is reported: also smss, srtt_us, rto_us, unsent,
//                                             in_flight, window, retransmits, recovery; counters
//
// The invariant: what was sent or told and no line asks for is a failure. Times are seconds after
// the line before; a segment may be late by a millisecond. Numbers are relative to the initial ones
// of each side, timestamps in ms to the start. What a `>` line leaves out is not compared; nor are,
// with push=0, PSH, and with events=0 any events: bytes that are delivered are credited then.
#ifndef XTREME_TESTS_TCP_SCRIPT_H_
#define XTREME_TESTS_TCP_SCRIPT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stack/base/time.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp::testing {

struct ScriptSegment {
  uint8_t flags = 0;
  uint32_t sequence = 0;
  uint32_t length = 0;
  std::optional<uint32_t> ack;
  std::optional<uint16_t> window;
  std::optional<uint16_t> urgent;
  std::optional<wire::TcpOptions> options;
};

struct ScriptLine {
  enum class Kind : uint8_t { kSet, kCall, kArrives, kSent, kEvent, kIs };
  int number = 0;
  base::Nanoseconds wait;
  base::Nanoseconds latest;  // of kSent; no less than wait
  Kind kind = Kind::kCall;
  std::vector<std::string> words;  // of kSet, kCall, kEvent and kIs
  ScriptSegment segment;           // of kArrives and kSent
};

// What is wrong with a line, by its number; empty: nothing.
std::string ParseScript(const std::string& text, std::vector<ScriptLine>* lines);

// Runs it. Empty: it went as written; else which line, and how.
std::string RunScript(const std::vector<ScriptLine>& lines);

// For messages.
std::string ToString(const ScriptSegment& segment);

}  // namespace xtreme::tcp::testing

#endif  // XTREME_TESTS_TCP_SCRIPT_H_
