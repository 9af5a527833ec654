// SPDX-License-Identifier: Apache-2.0
//
// What happened to a ring, in words: for logs.

#ifndef XTREME_XTREME_COMPLETION_RING_EVENT_H_
#define XTREME_XTREME_COMPLETION_RING_EVENT_H_

#include <string_view>

#include "xtreme/completion/completion.h"

namespace xtreme::completion {

constexpr std::string_view NameOf(RingEvent event) {
  switch (event) {
    case RingEvent::kNone: break;
    case RingEvent::kLinkDown: return "link down";
    case RingEvent::kLinkUp: return "link up";
    case RingEvent::kDropped: return "packets lost";
    case RingEvent::kBroken: return "queue broken";
    case RingEvent::kRemoved: return "device or interface gone";
    case RingEvent::kClockLost: return "clock lost";
    case RingEvent::kClockSynced: return "clock in sync";
    case RingEvent::kRuleFallback: return "rule shared";
    case RingEvent::kNeighbourLost: return "neighbour lost";
    case RingEvent::kPoolLow: return "few buffers left";
    case RingEvent::kPoolOk: return "enough buffers again";
    case RingEvent::kMtuChanged: return "MTU changed";
    case RingEvent::kMoved: return "moved";
  }
  return "nothing known";
}

// Whether somebody should hear of it who asked for nothing but warnings: until the ring is reset or
// has moved, nothing is received or sent.
constexpr bool Stops(RingEvent event) {
  return event == RingEvent::kBroken || event == RingEvent::kRemoved;
}

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_RING_EVENT_H_
