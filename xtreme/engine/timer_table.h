// SPDX-License-Identifier: Apache-2.0
//
// TimerTable: the application's timers of one ring, and when timers may fire.
//
// Threads: the ring's owner. Never allocates after construction.

#ifndef XTREME_XTREME_ENGINE_TIMER_TABLE_H_
#define XTREME_XTREME_ENGINE_TIMER_TABLE_H_

#include <cstdint>
#include <span>
#include <utility>

#include "stack/base/time.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/ring_timer.h"

namespace xtreme::engine {

struct ApplicationTimer : RingTimer {
  ApplicationTimer() : RingTimer(Use::kApplication) {}
  Handle handle = 0;
  uint64_t cookie = 0;
};

// Timers by handle, and when it is time to look at the clock.
class TimerTable {
 public:
  // While spinning the clock is read once in so many polls: at some 15 ns for a poll that finds
  // nothing, a timer is late by less than 1 us.
  static constexpr uint32_t kPollsPerLook = 16;

  TimerTable(uint16_t ring, uint32_t capacity) : timers_(ring, capacity) {}

  // Null when all are armed.
  ApplicationTimer* Take(uint64_t cookie) {
    ApplicationTimer* timer = timers_.Take();
    if (timer != nullptr) timer->cookie = cookie;
    return timer;
  }
  ApplicationTimer* Find(Handle handle) { return timers_.Find(handle); }
  void Put(ApplicationTimer* timer) { timers_.Free(timer->handle); }

  std::span<std::byte> memory() { return timers_.memory(); }

  bool IsTurn() {
    if (--polls_to_look_ != 0) return false;
    polls_to_look_ = kPollsPerLook;
    put_off_ = false;
    return true;
  }
  // The next poll looks.
  void MakeTurn() { polls_to_look_ = 1; }
  // The same in place of this one, which has other work; not twice: false, and it looks.
  bool PutOff() {
    if (put_off_) return false;
    put_off_ = true;
    MakeTurn();
    return true;
  }

  // Timers after packets: what may fire now, given that `now` was read before the receive queue
  // was looked at. Everything received before a deadline is handed out before its timer fires: the
  // queue was seen empty, or since then as many frames were taken as it can have held.
  base::Nanoseconds Barrier(base::Nanoseconds now, bool receive_empty, uint32_t queue_frames,
                            bool* forced) {
    const bool goes_on = std::exchange(goes_on_, false);
    *forced = false;
    if (receive_empty) {
      due_since_ = base::kNever;
      return now;
    }
    if (due_since_ == base::kNever) {
      due_since_ = now;
      received_ = 0;
    }
    if (received_ < queue_frames) return base::Nanoseconds(-1);
    *forced = !goes_on;
    return std::exchange(due_since_, base::kNever);
  }
  void CountReceived(uint32_t frames) { received_ += frames; }
  // More is due at `barrier`, of Barrier(), than one poll fires: the next goes on, whatever comes.
  void GoOn(base::Nanoseconds barrier, uint32_t queue_frames) {
    MakeTurn();
    due_since_ = barrier;
    received_ = queue_frames;
    goes_on_ = true;
  }

 private:
  HandleTable<ApplicationTimer> timers_;
  uint32_t polls_to_look_ = kPollsPerLook;
  bool put_off_ = false;
  bool goes_on_ = false;
  uint32_t received_ = 0;  // Frames taken since `due_since_`.
  base::Nanoseconds due_since_ = base::kNever;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TIMER_TABLE_H_
