// SPDX-License-Identifier: Apache-2.0
//
// Replay: sends the UDP multicast datagrams of a capture file again, where they went before.

#ifndef XTREME_SAMPLES_PUBLISHER_REPLAY_H_
#define XTREME_SAMPLES_PUBLISHER_REPLAY_H_

#include <cstdint>
#include <map>
#include <string>

#include "samples/publisher/line_sockets.h"

namespace publisher {

struct ReplayCounters {
  uint64_t published = 0;  // Datagrams.
  uint64_t passed_over = 0;  // Frames that are not whole UDP multicast over IPv4.
};

// What a capture holds, before it is replayed.
struct CaptureContents {
  std::map<std::string, uint64_t> datagrams;  // By "group:port".
  double seconds = 0;                         // From the first datagram to the last.
};

// "" or what failed, as Replay.
std::string List(const std::string& file, CaptureContents* contents);

// Sends with the capture's own pauses divided by `speed` (above 0). "" or what failed: the file
// cannot be read, or its link type is not Ethernet.
std::string Replay(const std::string& file, double speed, LineSockets* sockets,
                   ReplayCounters* counters);

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_REPLAY_H_
