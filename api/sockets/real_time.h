// SPDX-License-Identifier: Apache-2.0
//
// Hardware times, which rings give on CLOCK_MONOTONIC, on the clock that programs know. Those on
// the NIC's PTP clock are told as they are.
//
// Units: nanoseconds. Threads: RealClock: inside the door of its ring.

#ifndef XTREME_API_SOCKETS_REAL_TIME_H_
#define XTREME_API_SOCKETS_REAL_TIME_H_

#include <cstdint>
#include <ctime>

namespace xtreme::sockets {

// CLOCK_REALTIME less CLOCK_MONOTONIC, now.
inline int64_t RealTimeOffset() {
  constexpr int64_t kSecond = 1'000'000'000;
  timespec real{};
  timespec monotonic{};
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  return (real.tv_sec - monotonic.tv_sec) * kSecond + real.tv_nsec - monotonic.tv_nsec;
}

// CLOCK_REALTIME at `time_ns` of CLOCK_MONOTONIC, by the difference of the two clocks now; itself
// of the PTP clock; 0 of 0.
inline timespec RealTime(int64_t time_ns, bool on_ptp) {
  if (time_ns == 0) return {};
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t time = time_ns + (on_ptp ? 0 : RealTimeOffset());
  return {.tv_sec = time / kSecond, .tv_nsec = time % kSecond};
}

// The same for many times, most of them of the second that the last one was of: by a difference of
// the clocks that is asked for anew when it is old.
class RealClock {
 public:
  static constexpr uint64_t kAgeTicks = 1'000'000;

  // Whether it was asked for less than a million ticks of the ring's clock ago, some half of a
  // millisecond. A port that a ring goes over to, with another clock, takes longer to be there.
  bool IsFresh(uint64_t ticks) const { return ticks - asked_ticks_ < kAgeTicks; }
  // Before times are converted, if it is not fresh; `on_ptp` is what the times are on.
  void Follow(uint64_t ticks, bool on_ptp) {
    asked_ticks_ = ticks;
    const int64_t offset = on_ptp ? 0 : RealTimeOffset();
    into_second_ += offset - offset_;
    offset_ = offset;
  }

  // For who converts by himself: when it was asked, and the second that the last time was of, with
  // what makes times nanoseconds of it.
  uint64_t asked_ticks() const { return asked_ticks_; }
  int64_t second() const { return second_; }
  int64_t into_second() const { return into_second_; }

  timespec At(int64_t time_ns) {
    const int64_t since = time_ns + into_second_;
    if (static_cast<uint64_t>(since) >= kSecond || time_ns == 0) [[unlikely]] return AtAny(time_ns);
    return {.tv_sec = second_, .tv_nsec = since};
  }

 private:
  [[gnu::noinline]] timespec AtAny(int64_t time_ns) {
    if (time_ns == 0) return {};
    constexpr auto kNanoseconds = static_cast<int64_t>(kSecond);
    second_ = (time_ns + offset_) / kNanoseconds;
    into_second_ = offset_ - second_ * kNanoseconds;
    return {.tv_sec = second_, .tv_nsec = time_ns + into_second_};
  }

  static constexpr uint64_t kSecond = 1'000'000'000;

  int64_t offset_ = 0;
  uint64_t asked_ticks_ = -kAgeTicks;
  int64_t second_ = 0;       // Of CLOCK_REALTIME,
  int64_t into_second_ = 0;  // and what makes times nanoseconds of it.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_REAL_TIME_H_
