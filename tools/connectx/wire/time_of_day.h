// SPDX-License-Identifier: Apache-2.0
//
// How far the time of day was set since the device's clock began: the kernel stamps arrivals with
// the time of day, and a device's clock goes on as it went, as a card's does.
//
// Units: nanoseconds. Thread: one.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_TIME_OF_DAY_H_
#define XTREME_TOOLS_CONNECTX_WIRE_TIME_OF_DAY_H_

#include <time.h>

#include <cstdint>
#include <optional>

namespace xtreme::connectx {

class TimeOfDay {
 public:
  // CLOCK_REALTIME, between two readings of CLOCK_MONOTONIC.
  struct Reading {
    int64_t before_ns;
    int64_t realtime_ns;
    int64_t after_ns;
  };
  static Reading Read() { return {At(CLOCK_MONOTONIC), At(CLOCK_REALTIME), At(CLOCK_MONOTONIC)}; }

  // Takes note of a step. A thread that was interrupted between the readings saw none.
  void Look(const Reading& now) {
    if (now.after_ns - now.before_ns > kExactNs) return;
    const int64_t offset_ns = now.realtime_ns - now.before_ns;
    if (!begin_offset_ns_.has_value()) begin_offset_ns_ = offset_ns;
    const int64_t step_ns = offset_ns - *begin_offset_ns_;
    const int64_t change_ns = step_ns - step_ns_;
    if (change_ns > 2 * kExactNs || change_ns < -2 * kExactNs) step_ns_ = step_ns;
  }

  // What the time of day would be had nobody set it.
  int64_t Unset(int64_t realtime_ns) const { return realtime_ns - step_ns_; }

 private:
  static constexpr int64_t kExactNs = 10'000;

  static int64_t At(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  std::optional<int64_t> begin_offset_ns_;
  int64_t step_ns_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_TIME_OF_DAY_H_
