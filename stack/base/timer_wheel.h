// SPDX-License-Identifier: Apache-2.0
//
// TimerWheel: deadlines at microsecond resolution, any number of them, constant work for each.
//
// Invariant: a timer never fires before its deadline; within one Expire() timers fire in the order
// of their deadlines' slots. Four levels of 256 slots, 1.024 us wide at the bottom, 73 minutes in
// all; later deadlines wait at the top and are looked at again. An empty slot costs nothing: each
// level has a bitmap, and one of the bitmap's words. Never allocates; a timer is embedded in what
// it belongs to.
// Units: nanoseconds on the ring's clock. Threads: the ring's owner.
// After: G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987.

#ifndef XTREME_STACK_BASE_TIMER_WHEEL_H_
#define XTREME_STACK_BASE_TIMER_WHEEL_H_

#include <array>
#include <cstdint>

#include "stack/base/time.h"

namespace xtreme::base {

inline constexpr int kWheelSlotBits = 8;
inline constexpr int kWheelSlots = 1 << kWheelSlotBits;

// Embedded in what the deadline is about. Not to be moved or destroyed while armed.
struct Timer {
  Timer* next = nullptr;
  Timer** place = nullptr;  // What points at us; null when not armed.
  Nanoseconds deadline = kNever;

  bool armed() const { return place != nullptr; }
};

class TimerWheel {
 public:
  explicit TimerWheel(Nanoseconds now) : tick_(Tick(now)) {}
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Arms `timer`, or moves it when it is armed. A deadline in the past fires at the next Expire().
  void Arm(Timer* timer, Nanoseconds deadline);
  // Does nothing when it is not armed.
  void Cancel(Timer* timer);

  bool empty() const { return armed_ == 0; }

  // No timer is due before this instant; at it one may be due, or wait to be moved down a level.
  // kNever when empty.
  Nanoseconds NextDeadline() const { return next_deadline_; }

  // Takes off, and calls `fire(Timer*)` for, every timer whose deadline is at or before `now`.
  // `fire` may arm and cancel any timer. Stops when `fire` returns false: the rest fires next time.
  template <typename Fire>
  void Expire(Nanoseconds now, Fire&& fire) {
    while (Timer* due = TakeDue(now)) {
      if (!fire(due)) return;
    }
  }

 private:
  static constexpr int kLevels = 4;
  static constexpr int kTickShift = 10;  // 1.024 us.

  struct Level {
    std::array<Timer*, kWheelSlots> slots{};
    std::array<uint64_t, kWheelSlots / 64> occupied{};
    uint32_t words = 0;  // Bit n: occupied[n] is not 0.

    void Occupy(int slot);
    void Vacate(int slot);
    bool empty() const { return words == 0; }
    // The first occupied slot at or after `from`, or kWheelSlots.
    int FirstOccupied(int from) const;
  };

  static uint64_t Tick(Nanoseconds when) {
    return static_cast<uint64_t>(when.count() < 0 ? 0 : when.count()) >> kTickShift;
  }

  // The next timer due at `now`, taken off; null when there is none.
  Timer* TakeDue(Nanoseconds now);
  // The same among those of the current tick.
  Timer* TakeDueNow(Nanoseconds now);
  void Place(Timer* timer);
  void Unlink(Timer* timer);
  // The first tick after the current one at which there is something to fire or to move down.
  uint64_t NextStop() const;
  // Something waits above `level`, a slot of whose next one begins at `tick`, in what begins there.
  bool MovesDownAt(uint64_t tick, int level) const;
  // Goes to a stop and moves down what waits there.
  void GoTo(uint64_t tick);
  void Cascade(int level);
  // `stop`: NextStop(), which stays what it is until then.
  Nanoseconds EarliestDeadline(uint64_t stop) const;

  std::array<Level, kLevels> levels_;
  uint64_t tick_;  // Everything before it has fired.
  uint32_t armed_ = 0;
  Nanoseconds next_deadline_ = kNever;
};

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_TIMER_WHEEL_H_
