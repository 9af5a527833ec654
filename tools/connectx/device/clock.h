// SPDX-License-Identifier: Apache-2.0
//
// The time a software ConnectX lives in: real, or moved by hand in step mode. A device's hardware
// clock and every timestamp in its CQEs are this time in cycles of its core clock.
//
// Invariant: time never goes backwards.
// Units: nanoseconds. Thread: Now() is safe from any thread; VirtualClock is moved by one.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_CLOCK_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_CLOCK_H_

#include <time.h>

#include <atomic>
#include <cstdint>

namespace xtreme::connectx {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t Now() const = 0;
};

// Nanoseconds of CLOCK_REALTIME at construction, carried on by CLOCK_MONOTONIC: comparable with the
// arrival times of a network interface, yet not set back when somebody sets the time of day.
class RealClock final : public Clock {
 public:
  RealClock() : offset_ns_(Read(CLOCK_REALTIME) - Read(CLOCK_MONOTONIC)) {}
  int64_t Now() const override { return Read(CLOCK_MONOTONIC) + offset_ns_; }

 private:
  static int64_t Read(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  const int64_t offset_ns_;
};

// Stands still until it is told to move.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(int64_t start_ns = 1'000'000'000) : now_ns_(start_ns) {}
  int64_t Now() const override { return now_ns_.load(std::memory_order_relaxed); }
  // `by_ns` is not negative.
  void Advance(int64_t by_ns) { now_ns_.store(Now() + by_ns, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_CLOCK_H_
