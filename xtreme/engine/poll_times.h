// SPDX-License-Identifier: Apache-2.0
//
// PollTimes: how long a ring is between its polls, and how old a packet is when a poll sees it.
//
// Kept by rings whose option `histograms` asks for it. Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_POLL_TIMES_H_
#define XTREME_XTREME_ENGINE_POLL_TIMES_H_

#include <cstdint>

#include "xtreme/stats/histogram.h"

namespace xtreme::engine {

struct PollTimes {
  stats::Histogram gap;           // From one poll to the next; none over a sleep.
  stats::Histogram wire_to_poll;  // Of the first packet of each poll that found some.
  uint64_t last_ticks = 0;        // Of the last poll; 0: there is none to count from.
  uint64_t frames = 0;            // Received up to it.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_POLL_TIMES_H_
