// SPDX-License-Identifier: Apache-2.0
//
// The device's clock: how its ticks relate to nanoseconds of the host's clock (ClockTracker), and
// of its own PTP clock (PtpTracker).
//
// Invariant: a conversion that says in_sync errs by at most its bound until kClockHorizonNs after
// the sample it was made from; one of the PTP clock, if that is steered no more than of late.
// Threads: one at a time.

#ifndef XTREME_XTREME_MLX5_CLOCK_H_
#define XTREME_XTREME_MLX5_CLOCK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

// A conversion is good this long: samples come about once a second.
inline constexpr int64_t kClockHorizonNs = 3'000'000'000;

// The device's clock read between two readings of the host's.
struct ClockSample {
  uint64_t raw = 0;
  int64_t host_ns = 0;        // Half way between the two.
  int64_t half_width_ns = 0;  // The host's reading is within this of the device's moment.
};

// Offset and rate come from readings of both clocks side by side: the newest gives the offset, the
// newest and the oldest of a window the rate.
class ClockTracker {
 public:
  // Wider readings were interrupted, and are left out.
  static constexpr int64_t kMaxHalfWidthNs = 25'000;

  // `nominal_khz` is the device's own word for its rate, 0 if it has none; `mask` its valid bits.
  ClockTracker(uint64_t nominal_khz, uint64_t mask);

  // Takes a sample and returns the conversion after it. A sample too wide changes nothing; one that
  // contradicts what the last conversion promised starts over: a clock was set.
  nic::ClockConversion Add(const ClockSample& sample);

  const nic::ClockConversion& conversion() const { return conversion_; }
  uint64_t rejected() const { return rejected_; }
  uint64_t restarts() const { return restarts_; }

 private:
  static constexpr size_t kWindow = 16;

  bool Contradicts(const ClockSample& sample) const;
  void Remember(const ClockSample& sample);
  void Convert(const ClockSample& newest);

  const double nominal_ns_per_tick_;
  nic::ClockConversion conversion_;
  std::array<ClockSample, kWindow> window_{};
  uint32_t samples_ = 0;  // Since the last restart; the window holds the last kWindow.
  uint64_t rejected_ = 0;
  uint64_t restarts_ = 0;
};

// The PTP clock is what the system publishes: its time at a tick and the rate it is steered at,
// until it steers it otherwise. By how much that moves it is learned from how much it did.
class PtpTracker {
 public:
  // What is moved by more between two samples was set, not steered.
  static constexpr int64_t kStepNs = 100'000;
  // What was published longer ago is of a clock that nobody steers.
  static constexpr int64_t kStaleNs = 10'000'000'000;

  // Takes what is published (mask, base, multiplier, shift) when the device's clock reads `raw`;
  // the conversion after it. Not in sync: the first, one that was set, one that nobody steers.
  nic::ClockConversion Add(const nic::ClockConversion& published, uint64_t raw);

  // For when nothing is published, or the device's clock cannot be read: what was last, not in
  // sync, so that times stay on this clock; none before the first.
  const std::optional<nic::ClockConversion>& last() const { return last_; }

 private:
  static constexpr size_t kWindow = 16;

  // That it is elsewhere than was said `within_ns` ago.
  void Learn(int64_t moved_ns, int64_t within_ns);

  std::optional<nic::ClockConversion> last_;  // As it was published.
  int64_t last_ns_ = 0;                   // When that was taken.
  std::array<double, kWindow> drifts_{};  // Nanoseconds moved a nanosecond, of each pair.
  uint32_t pairs_ = 0;                    // Since it was set; the window holds the last kWindow.
};

// Reads both clocks several times and keeps the narrowest pair; none if `read_raw` fails.
std::optional<ClockSample> ReadClocks(const std::function<std::optional<uint64_t>()>& read_raw,
                                      const std::function<int64_t()>& host_now_ns);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_CLOCK_H_
