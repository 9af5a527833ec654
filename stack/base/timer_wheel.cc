// SPDX-License-Identifier: Apache-2.0

#include "stack/base/timer_wheel.h"

#include <algorithm>
#include <bit>

namespace xtreme::base {
namespace {

constexpr int kSlotBits = kWheelSlotBits;
constexpr int kSlots = kWheelSlots;
constexpr uint64_t kSlotMask = kSlots - 1;
constexpr uint64_t kNoTick = ~uint64_t{0};

using Bitmap = std::array<uint64_t, kSlots / 64>;

// The first set bit at or after `from`, or kSlots.
int FirstOccupied(const Bitmap& bits, int from) {
  for (int word = from / 64; word < kSlots / 64; ++word) {
    uint64_t rest = bits[word];
    if (word == from / 64) rest &= ~uint64_t{0} << (from % 64);
    if (rest != 0) return word * 64 + std::countr_zero(rest);
  }
  return kSlots;
}

bool Any(const Bitmap& bits) { return (bits[0] | bits[1] | bits[2] | bits[3]) != 0; }

// The slot of `tick` in `level`.
int SlotOf(uint64_t tick, int level) {
  return static_cast<int>((tick >> (level * kSlotBits)) & kSlotMask);
}

// The last tick before which all slots of `level` have gone by once.
uint64_t RotationStart(uint64_t tick, int level) {
  const int bits = (level + 1) * kSlotBits;
  return tick >> bits << bits;
}

}  // namespace

void TimerWheel::Arm(Timer* timer, Nanoseconds deadline) {
  Cancel(timer);
  timer->deadline = deadline;
  Place(timer);
  ++armed_;
  next_deadline_ = Earlier(next_deadline_, deadline);
}

void TimerWheel::Cancel(Timer* timer) {
  if (!timer->armed()) return;
  Unlink(timer);
  --armed_;
  if (armed_ == 0) next_deadline_ = kNever;
}

// The level is chosen by how far away the deadline is, so that a slot is passed before the wheel
// comes round to it again.
void TimerWheel::Place(Timer* timer) {
  const uint64_t farthest = tick_ + (uint64_t{1} << (kLevels * kSlotBits)) - 1;
  const uint64_t tick = std::clamp(Tick(timer->deadline), tick_, farthest);
  int level = 0;
  while (level < kLevels - 1 && (tick - tick_) >> ((level + 1) * kSlotBits) != 0) ++level;
  const int slot = SlotOf(tick, level);
  Timer** head = &levels_[level].slots[slot];
  timer->next = *head;
  if (timer->next != nullptr) timer->next->place = &timer->next;
  timer->place = head;
  *head = timer;
  levels_[level].occupied[slot / 64] |= uint64_t{1} << (slot % 64);
}

void TimerWheel::Unlink(Timer* timer) {
  *timer->place = timer->next;
  if (timer->next != nullptr) timer->next->place = timer->place;
  // The last of its slot: `place` is the slot itself, and the bit goes with it.
  for (Level& level : levels_) {
    if (timer->place < level.slots.data() || timer->place >= level.slots.data() + kSlots) continue;
    const auto slot = static_cast<int>(timer->place - level.slots.data());
    if (*timer->place == nullptr) level.occupied[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  }
  timer->place = nullptr;
  timer->next = nullptr;
}

Timer* TimerWheel::TakeDue(Nanoseconds now) {
  const uint64_t last = Tick(now);
  for (;;) {
    if (Timer* due = TakeDueNow(now)) {
      --armed_;
      next_deadline_ = now;  // There may be more; known when the last one has been asked for.
      return due;
    }
    const uint64_t stop = NextStop();
    if (stop > last) break;
    GoTo(stop);
  }
  tick_ = std::max(tick_, last);
  next_deadline_ = EarliestDeadline();
  return nullptr;
}

Timer* TimerWheel::TakeDueNow(Nanoseconds now) {
  for (Timer* timer = levels_[0].slots[SlotOf(tick_, 0)]; timer != nullptr; timer = timer->next) {
    if (timer->deadline > now) continue;
    Unlink(timer);
    return timer;
  }
  return nullptr;
}

uint64_t TimerWheel::NextStop() const {
  for (int level = 0; level < kLevels; ++level) {
    const Bitmap& occupied = levels_[level].occupied;
    const int slot = FirstOccupied(occupied, SlotOf(tick_, level) + 1);
    if (slot < kSlots) {
      return RotationStart(tick_, level) + (static_cast<uint64_t>(slot) << (level * kSlotBits));
    }
    // What is left stands behind us in the circle: it comes after the rotation ends.
    if (Any(occupied)) {
      return RotationStart(tick_, level) + (uint64_t{1} << ((level + 1) * kSlotBits));
    }
  }
  return kNoTick;
}

void TimerWheel::GoTo(uint64_t tick) {
  tick_ = tick;
  for (int level = kLevels - 1; level > 0; --level) {
    const bool at_start = (tick & ((uint64_t{1} << (level * kSlotBits)) - 1)) == 0;
    if (at_start) Cascade(level);
  }
}

void TimerWheel::Cascade(int level) {
  const int slot = SlotOf(tick_, level);
  Timer* timer = levels_[level].slots[slot];
  levels_[level].slots[slot] = nullptr;
  levels_[level].occupied[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  while (timer != nullptr) {
    Timer* next = timer->next;
    Place(timer);
    timer = next;
  }
}

Nanoseconds TimerWheel::EarliestDeadline() const {
  if (armed_ == 0) return kNever;
  const auto earliest_of = [this](int slot) {
    Nanoseconds earliest = kNever;
    for (Timer* timer = levels_[0].slots[slot]; timer != nullptr; timer = timer->next) {
      earliest = Earlier(earliest, timer->deadline);
    }
    return earliest;
  };
  const int current = SlotOf(tick_, 0);
  if (levels_[0].slots[current] != nullptr) return earliest_of(current);
  const uint64_t stop = NextStop();
  const int slot = SlotOf(stop, 0);
  const bool at_bottom = stop - tick_ < kSlots && levels_[0].slots[slot] != nullptr;
  if (at_bottom) return earliest_of(slot);
  return Nanoseconds(static_cast<int64_t>(stop << kTickShift));
}

}  // namespace xtreme::base
