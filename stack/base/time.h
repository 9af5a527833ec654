// SPDX-License-Identifier: Apache-2.0
//
// Time as the stack is told it: a count of nanoseconds, both for spans and for instants.
//
// The stack reads no clock. Instants come in as `now` arguments, on one clock that the caller chose
// and that does not go backwards; deadlines go out on the same clock. `kNever` is the deadline that
// never comes: compare with it, never compute with it, except through `DeadlineAfter`.
#ifndef XTREME_STACK_BASE_TIME_H_
#define XTREME_STACK_BASE_TIME_H_

#include <compare>
#include <cstdint>
#include <limits>

namespace xtreme::base {

class Nanoseconds {
 public:
  constexpr Nanoseconds() = default;
  constexpr explicit Nanoseconds(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Nanoseconds, Nanoseconds) = default;

  constexpr Nanoseconds& operator+=(Nanoseconds other) { return *this = *this + other; }
  constexpr Nanoseconds& operator-=(Nanoseconds other) { return *this = *this - other; }

  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) {
    return Nanoseconds(a.count_ + b.count_);
  }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) {
    return Nanoseconds(a.count_ - b.count_);
  }
  friend constexpr Nanoseconds operator-(Nanoseconds a) { return Nanoseconds(-a.count_); }
  friend constexpr Nanoseconds operator*(Nanoseconds a, int64_t times) {
    return Nanoseconds(a.count_ * times);
  }
  friend constexpr Nanoseconds operator*(int64_t times, Nanoseconds a) { return a * times; }
  // Towards zero. `parts` is not 0.
  friend constexpr Nanoseconds operator/(Nanoseconds a, int64_t parts) {
    return Nanoseconds(a.count_ / parts);
  }
  // How many whole `b` fit in `a`. `b` is not 0.
  friend constexpr int64_t operator/(Nanoseconds a, Nanoseconds b) { return a.count_ / b.count_; }

 private:
  int64_t count_ = 0;
};

// The last instant there is; as a deadline: never.
inline constexpr Nanoseconds kNever{std::numeric_limits<int64_t>::max()};

constexpr Nanoseconds Microseconds(int64_t count) { return Nanoseconds(count * 1'000); }
constexpr Nanoseconds Milliseconds(int64_t count) { return Nanoseconds(count * 1'000'000); }
constexpr Nanoseconds Seconds(int64_t count) { return Nanoseconds(count * 1'000'000'000); }

// `now + span`, or kNever where that would pass the end of time (a span of kNever always does).
constexpr Nanoseconds DeadlineAfter(Nanoseconds now, Nanoseconds span) {
  int64_t sum = 0;
  const bool overflows = __builtin_add_overflow(now.count(), span.count(), &sum);
  return overflows || span == kNever ? kNever : Nanoseconds(sum);
}

// Of counts: of objects the compiler compares places in memory.
constexpr Nanoseconds Earlier(Nanoseconds a, Nanoseconds b) {
  return Nanoseconds(a.count() < b.count() ? a.count() : b.count());
}
constexpr Nanoseconds Later(Nanoseconds a, Nanoseconds b) {
  return Nanoseconds(a.count() < b.count() ? b.count() : a.count());
}

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_TIME_H_
