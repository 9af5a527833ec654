// SPDX-License-Identifier: Apache-2.0
// The process clock: CLOCK_MONOTONIC in nanoseconds, read from the CPU's time-stamp counter.
//
// A conversion is a straight line through two samples (ticks, ns). Its error is known: each sample
// is a clock_gettime() between two counter reads, so it is off by at most half that bracket.
//
// Invariant: without an invariant TSC (CPUID 80000007H:EDX[8]) ticks *are* CLOCK_MONOTONIC ns.
// Units: ticks of the counter, ns of CLOCK_MONOTONIC, error rates in parts per billion.
// Threads: TscConversion is an immutable value, copied to whoever converts; TscClock belongs to the
// control thread. Spec: Intel SDM volume 3, 18.17 "Time-stamp counter".

#ifndef XTREME_XTREME_HOST_TSC_CLOCK_H_
#define XTREME_XTREME_HOST_TSC_CLOCK_H_

#include <time.h>
#include <x86intrin.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace xtreme::host {

// One reading of both clocks.
struct ClockSample {
  uint64_t ticks = 0;
  uint64_t ns = 0;
  // `ns` belongs to `ticks` give or take this many ticks: half the bracket.
  uint64_t error_ticks = 0;
};

// CLOCK_MONOTONIC in ns, from the kernel.
inline uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// True when the CPU says that its counter runs at one rate in every power state.
bool HasInvariantTsc();

// ticks -> ns. Copy it; it never changes under its reader.
class TscConversion {
 public:
  // The identity: ticks are ns, read with clock_gettime().
  TscConversion() = default;

  // The line through `first` and `last`, anchored at `last`. INVALID_ARGUMENT when `last` is not
  // after `first` in both clocks, or when the rate is outside 0.1 to 10 ticks per ns.
  static absl::StatusOr<TscConversion> Fit(const ClockSample& first, const ClockSample& last);

  // The counter now. Not serialising: it may run ahead of loads before it by some tens of cycles.
  uint64_t Ticks() const { return uses_tsc_ ? __rdtsc() : MonotonicNs(); }

  // Ticks of the past or the future alike. Wrong only if they are more than 2^63 ns from the fit.
  uint64_t ToNs(uint64_t ticks) const {
    const auto elapsed = static_cast<__int128>(static_cast<int64_t>(ticks - anchor_ticks_));
    return anchor_ns_ + static_cast<uint64_t>((elapsed * ns_per_tick_q32_) >> 32);
  }

  // How many ticks `duration_ns` takes, rounded down.
  uint64_t TicksIn(uint64_t duration_ns) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(duration_ns) << 32) /
                                 static_cast<uint64_t>(ns_per_tick_q32_));
  }

  uint64_t NowNs() const { return ToNs(Ticks()); }

  // Bound on |ToNs(ticks) - CLOCK_MONOTONIC|, as long as the kernel does not change the rate of
  // CLOCK_MONOTONIC (NTP may, by up to 500,000 ppb: calibrate again now and then).
  uint64_t ErrorNs(uint64_t ticks) const;

  // Whether the two rates differ by less than 1 %: of one counter, no jump between.
  bool IsAtTheRateOf(const TscConversion& other) const;
  // The same rate through `sample`.
  TscConversion Through(const ClockSample& sample) const;

  // Uncertainty of the rate, in parts per billion.
  uint64_t rate_error_ppb() const { return rate_error_ppb_; }
  bool uses_tsc() const { return uses_tsc_; }

 private:
  uint64_t anchor_ticks_ = 0;
  uint64_t anchor_ns_ = 0;
  int64_t ns_per_tick_q32_ = int64_t{1} << 32;
  uint64_t anchor_error_ns_ = 0;
  uint64_t rate_error_ppb_ = 0;
  bool uses_tsc_ = false;
};

// Calibrates at start, and again whenever asked: the first sample is kept, so that the rate's error
// shrinks with the age of the process.
class TscClock {
 public:
  struct Options {
    // Length of the first calibration, in ns; 1,000 to 1,000,000,000. The caller spins for it.
    // 5 ms give about 10 ppm with a bracket of 50 ns.
    uint64_t calibration_ns = 5'000'000;
    // False: use clock_gettime() even where the TSC is invariant.
    bool allow_tsc = true;
  };

  // Spins for `calibration_ns`, or returns at once when there is no invariant TSC to calibrate.
  // INVALID_ARGUMENT: `calibration_ns` out of range. FAILED_PRECONDITION: the counter stood still
  // or ran at an impossible rate.
  static absl::StatusOr<TscClock> Start(const Options& options);

  // The latest calibration.
  const TscConversion& conversion() const { return conversion_; }

  // Takes a sample and fits the line from a window that ends now; the error at the new anchor is
  // one bracket again. The window is as old as the clock at first and later at least `kWindowNs`
  // long, so that a rate that NTP steered long ago is forgotten. When the counter jumped against
  // CLOCK_MONOTONIC (a suspended host, a virtual machine that stood still) the window begins anew
  // and the rate stays.
  void Recalibrate();
  // The same, with a sample taken now.
  void Recalibrate(const ClockSample& now);

 private:
  static constexpr uint64_t kWindowNs = 16'000'000'000;

  TscClock() = default;

  // Start of this window, and of the next one.
  ClockSample first_;
  ClockSample next_first_;
  TscConversion conversion_;
};

// The narrowest of `tries` brackets.
ClockSample SampleClocks(int tries);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_TSC_CLOCK_H_
