// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/tsc_clock.h"

#include <cpuid.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::host {
namespace {

constexpr uint64_t kBillion = 1'000'000'000;
constexpr int kSampleTries = 32;

// RDTSCP waits for earlier instructions and LFENCE holds back later ones, so that clock_gettime()
// cannot drift out of the bracket.
uint64_t OrderedTicks() {
  unsigned processor;
  const uint64_t ticks = __rdtscp(&processor);
  _mm_lfence();
  return ticks;
}

}  // namespace

bool HasInvariantTsc() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & (1u << 8)) != 0;
}

ClockSample SampleClocks(int tries) {
  ClockSample best;
  uint64_t narrowest = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < tries; ++i) {
    const uint64_t before = OrderedTicks();
    const uint64_t ns = MonotonicNs();
    const uint64_t after = OrderedTicks();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {.ticks = before + narrowest / 2, .ns = ns, .error_ticks = narrowest / 2 + 1};
  }
  return best;
}

absl::StatusOr<TscConversion> TscConversion::Fit(const ClockSample& first,
                                                 const ClockSample& last) {
  if (last.ticks <= first.ticks || last.ns <= first.ns) {
    return absl::InvalidArgumentError(
        absl::StrCat("fit TSC to CLOCK_MONOTONIC: samples ", last.ticks - first.ticks,
                     " ticks and ", last.ns - first.ns, " ns apart, both must be positive"));
  }
  const uint64_t ticks = last.ticks - first.ticks;
  const uint64_t ns = last.ns - first.ns;
  if (ticks / 10 > ns || ns / 10 > ticks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fit TSC to CLOCK_MONOTONIC: ", ticks, " ticks in ", ns, " ns, 0.1 to 10 per ns expected"));
  }
  TscConversion fit;
  fit.uses_tsc_ = true;
  fit.anchor_ticks_ = last.ticks;
  fit.anchor_ns_ = last.ns;
  fit.ns_per_tick_q32_ = static_cast<int64_t>((static_cast<unsigned __int128>(ns) << 32) / ticks);
  fit.anchor_error_ns_ =
      static_cast<uint64_t>(static_cast<unsigned __int128>(last.error_ticks) * ns / ticks + 1);
  // Both ends may be off in opposite directions; one more for the rounding of the fixed point.
  fit.rate_error_ppb_ = static_cast<uint64_t>(
      static_cast<unsigned __int128>(first.error_ticks + last.error_ticks) * kBillion / ticks + 1);
  return fit;
}

uint64_t TscConversion::ErrorNs(uint64_t ticks) const {
  const uint64_t ahead = ticks - anchor_ticks_;
  const uint64_t behind = anchor_ticks_ - ticks;
  const uint64_t elapsed_ns =
      static_cast<uint64_t>((static_cast<unsigned __int128>(std::min(ahead, behind)) *
                             static_cast<uint64_t>(ns_per_tick_q32_)) >>
                            32);
  return anchor_error_ns_ + static_cast<uint64_t>(static_cast<unsigned __int128>(elapsed_ns) *
                                                  rate_error_ppb_ / kBillion);
}

bool TscConversion::IsAtTheRateOf(const TscConversion& other) const {
  return std::abs(ns_per_tick_q32_ - other.ns_per_tick_q32_) < other.ns_per_tick_q32_ / 100;
}

TscConversion TscConversion::Through(const ClockSample& sample) const {
  TscConversion moved = *this;
  moved.anchor_ticks_ = sample.ticks;
  moved.anchor_ns_ = sample.ns;
  const auto error_q32 = static_cast<unsigned __int128>(sample.error_ticks) *
                         static_cast<uint64_t>(ns_per_tick_q32_);
  moved.anchor_error_ns_ = static_cast<uint64_t>(error_q32 >> 32) + 1;
  return moved;
}

absl::StatusOr<TscClock> TscClock::Start(const Options& options) {
  if (options.calibration_ns < 1'000 || options.calibration_ns > kBillion) {
    return absl::InvalidArgumentError(absl::StrCat("calibrate TSC: ", options.calibration_ns,
                                                   " ns asked, 1,000 to 1,000,000,000 offered"));
  }
  TscClock clock;
  if (!options.allow_tsc || !HasInvariantTsc()) return clock;
  clock.first_ = SampleClocks(kSampleTries);
  clock.next_first_ = clock.first_;
  while (MonotonicNs() - clock.first_.ns < options.calibration_ns) _mm_pause();
  const absl::StatusOr<TscConversion> fit =
      TscConversion::Fit(clock.first_, SampleClocks(kSampleTries));
  if (!fit.ok()) return absl::FailedPreconditionError(fit.status().message());
  clock.conversion_ = *fit;
  return clock;
}

void TscClock::Recalibrate() {
  if (conversion_.uses_tsc()) Recalibrate(SampleClocks(kSampleTries));
}

void TscClock::Recalibrate(const ClockSample& now) {
  const absl::StatusOr<TscConversion> fit = TscConversion::Fit(first_, now);
  if (!fit.ok() || !fit->IsAtTheRateOf(conversion_)) {
    conversion_ = conversion_.Through(now);
    first_ = next_first_ = now;
    return;
  }
  conversion_ = *fit;
  if (now.ns - next_first_.ns >= kWindowNs) {
    first_ = next_first_;
    next_first_ = now;
  }
}

}  // namespace xtreme::host
