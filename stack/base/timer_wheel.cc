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

void TimerWheel::Level::Occupy(int slot) {
  occupied[slot / 64] |= uint64_t{1} << (slot % 64);
  words |= 1u << (slot / 64);
}

void TimerWheel::Level::Vacate(int slot) {
  occupied[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  if (occupied[slot / 64] == 0) words &= ~(1u << (slot / 64));
}

[[gnu::always_inline]] inline int TimerWheel::Level::FirstOccupied(int from) const {
  if (from == kSlots) return kSlots;
  const int word = from / 64;
  const uint64_t rest = occupied[word] & (~uint64_t{0} << (from % 64));
  if (rest != 0) return word * 64 + std::countr_zero(rest);
  const uint32_t later = words & (~uint32_t{1} << word);
  if (later == 0) return kSlots;
  const int next = std::countr_zero(later);
  return next * 64 + std::countr_zero(occupied[next]);
}

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
  // The digits of the distance, in slots of a level.
  const int digits = (std::bit_width((tick - tick_) | 1) + kSlotBits - 1) / kSlotBits;
  const int level = digits - 1;
  const int slot = SlotOf(tick, level);
  Timer** head = &levels_[level].slots[slot];
  timer->next = *head;
  if (timer->next != nullptr) timer->next->place = &timer->next;
  timer->place = head;
  *head = timer;
  levels_[level].Occupy(slot);
}

void TimerWheel::Unlink(Timer* timer) {
  *timer->place = timer->next;
  if (timer->next != nullptr) timer->next->place = timer->place;
  // The last of its slot: `place` is the slot itself, and the bit goes with it.
  const auto offset =
      reinterpret_cast<uintptr_t>(timer->place) - reinterpret_cast<uintptr_t>(&levels_);
  if (timer->next == nullptr && offset < sizeof levels_) {
    levels_[offset / sizeof(Level)].Vacate(
        static_cast<int>(offset % sizeof(Level) / sizeof(Timer*)));
  }
  timer->place = nullptr;
  timer->next = nullptr;
}

Timer* TimerWheel::TakeDue(Nanoseconds now) {
  const uint64_t last = Tick(now);
  uint64_t stop = kNoTick;
  while (armed_ != 0) {
    if (Timer* due = TakeDueNow(now)) {
      --armed_;
      next_deadline_ = now;  // There may be more; known when the last one has been asked for.
      return due;
    }
    stop = NextStop();
    if (stop > last) break;
    tick_ = stop;
    // Alone in the only slot that begins here, with nothing further down: it is next, and need not
    // be moved to where it would be found.
    Timer* const first = levels_[1].slots[SlotOf(stop, 1)];
    const bool next = first != nullptr && first->next == nullptr && first->deadline <= now &&
                      SlotOf(stop, 0) == 0 && levels_[0].empty() &&
                      (SlotOf(stop, 1) != 0 || !MovesDownAt(stop, 1));
    if (next) {
      Unlink(first);
      --armed_;
      next_deadline_ = now;
      return first;
    }
    GoTo(stop);
  }
  tick_ = std::max(tick_, last);
  next_deadline_ = EarliestDeadline(stop);
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

[[gnu::always_inline]] inline uint64_t TimerWheel::NextStop() const {
  for (int level = 0; level < kLevels; ++level) {
    if (levels_[level].empty()) continue;
    const int slot = levels_[level].FirstOccupied(SlotOf(tick_, level) + 1);
    if (slot < kSlots) {
      return RotationStart(tick_, level) + (static_cast<uint64_t>(slot) << (level * kSlotBits));
    }
    // What is left stands behind us in the circle, or here: it comes after the rotation ends, where
    // something may be moved down before.
    const uint64_t end =
        RotationStart(tick_, level) + (uint64_t{1} << ((level + 1) * kSlotBits));
    if (MovesDownAt(end, level)) return end;
    const int first = levels_[level].FirstOccupied(0);
    return end + (static_cast<uint64_t>(first) << (level * kSlotBits));
  }
  return kNoTick;
}

[[gnu::always_inline]] inline bool TimerWheel::MovesDownAt(uint64_t tick, int level) const {
  for (int above = level + 1; above < kLevels; ++above) {
    const int slot = SlotOf(tick, above);
    if (levels_[above].slots[slot] != nullptr) return true;
    if (slot != 0) return false;  // No slot of the next level begins here.
  }
  return false;
}

void TimerWheel::GoTo(uint64_t tick) {
  tick_ = tick;
  // Those of which a slot begins here.
  const int highest = std::min(kLevels - 1, std::countr_zero(tick) / kSlotBits);
  for (int level = highest; level > 0; --level) {
    if (levels_[level].slots[SlotOf(tick, level)] != nullptr) Cascade(level);
  }
}

void TimerWheel::Cascade(int level) {
  const int slot = SlotOf(tick_, level);
  Timer* timer = levels_[level].slots[slot];
  levels_[level].slots[slot] = nullptr;
  levels_[level].Vacate(slot);
  while (timer != nullptr) {
    Timer* next = timer->next;
    Place(timer);
    timer = next;
  }
}

Nanoseconds TimerWheel::EarliestDeadline(uint64_t stop) const {
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
  const int slot = SlotOf(stop, 0);
  const bool at_bottom = stop - tick_ < kSlots && levels_[0].slots[slot] != nullptr;
  if (at_bottom) return earliest_of(slot);
  return Nanoseconds(static_cast<int64_t>(stop << kTickShift));
}

}  // namespace xtreme::base
