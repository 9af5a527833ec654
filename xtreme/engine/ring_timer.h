// SPDX-License-Identifier: Apache-2.0
//
// RingTimer: a timer of a ring's wheel that says what kind of thing it belongs to.

#ifndef XTREME_XTREME_ENGINE_RING_TIMER_H_
#define XTREME_XTREME_ENGINE_RING_TIMER_H_

#include "stack/base/timer_wheel.h"

namespace xtreme::engine {

struct RingTimer : base::Timer {
  enum class Use : uint8_t { kApplication, kNeighbour, kReassembly, kLeftRules };
  explicit RingTimer(Use use) : use(use) {}
  Use use;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_TIMER_H_
