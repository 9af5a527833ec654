// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

namespace xtreme::mlx5 {
namespace {

constexpr int kReadings = 8;
// What a crystal may differ from its nominal rate.
constexpr double kNominalError = 100e-6;
// Two samples closer than this say nothing about the rate.
constexpr int64_t kMinBaselineNs = 1'000'000;

// The same of the PTP clock, whose times are whole nanoseconds.
constexpr int64_t kMinPtpBaselineNs = 100'000'000;
// Of what is published, and of a conversion.
constexpr int64_t kRoundingNs = 2;

// The largest multiplier of 32 bits for the rate, so that rounding it matters least.
void SetRate(double ns_per_tick, nic::ClockConversion* conversion) {
  uint32_t shift = 31;
  while (shift > 0 && std::ldexp(ns_per_tick, static_cast<int>(shift)) >= 4294967295.0) --shift;
  conversion->shift = shift;
  conversion->multiplier =
      static_cast<uint32_t>(std::lround(std::ldexp(ns_per_tick, static_cast<int>(shift))));
}

}  // namespace

ClockTracker::ClockTracker(uint64_t nominal_khz, uint64_t mask)
    : nominal_ns_per_tick_(nominal_khz == 0 ? 1.0 : 1e6 / static_cast<double>(nominal_khz)) {
  conversion_.mask = mask;
}

nic::ClockConversion ClockTracker::Add(const ClockSample& sample) {
  if (sample.half_width_ns > kMaxHalfWidthNs) {
    ++rejected_;
    return conversion_;
  }
  if (Contradicts(sample)) {
    ++restarts_;
    samples_ = 0;
  }
  Remember(sample);
  Convert(sample);
  return conversion_;
}

bool ClockTracker::Contradicts(const ClockSample& sample) const {
  if (!conversion_.in_sync) return false;
  // Past the horizon nothing was promised, but what is still true errs by as much more as it is
  // older; else the rate would be found across the time at which a clock was set.
  const double age_ns = static_cast<double>(sample.host_ns - conversion_.base_ns);
  const double horizons = std::max(age_ns / static_cast<double>(kClockHorizonNs), 1.0);
  const int64_t error_ns = std::llabs(conversion_.ToNanoseconds(sample.raw) - sample.host_ns);
  return static_cast<double>(error_ns) >
         horizons * static_cast<double>(conversion_.error_bound_ns) +
             static_cast<double>(sample.half_width_ns);
}

void ClockTracker::Remember(const ClockSample& sample) {
  window_[samples_ % kWindow] = sample;
  ++samples_;
}

void ClockTracker::Convert(const ClockSample& newest) {
  const ClockSample& oldest = window_[samples_ <= kWindow ? 0 : samples_ % kWindow];
  const auto ticks = static_cast<double>((newest.raw - oldest.raw) & conversion_.mask);
  const int64_t baseline_ns = newest.host_ns - oldest.host_ns;
  double ns_per_tick = nominal_ns_per_tick_;
  double rate_error = kNominalError;
  conversion_.in_sync = baseline_ns >= kMinBaselineNs && ticks > 0;
  if (conversion_.in_sync) {
    ns_per_tick = static_cast<double>(baseline_ns) / ticks;
    rate_error = static_cast<double>(newest.half_width_ns + oldest.half_width_ns + 1) /
                 static_cast<double>(baseline_ns);
  }
  conversion_.base_raw = newest.raw;
  conversion_.base_ns = newest.host_ns;
  SetRate(ns_per_tick, &conversion_);
  // The multiplier is rounded by half of its last place; ToNanoseconds rounds down.
  const double rounding = 0.5 / std::max(1.0, static_cast<double>(conversion_.multiplier));
  const double drift_ns = (rate_error + rounding) * static_cast<double>(kClockHorizonNs);
  conversion_.error_bound_ns = static_cast<uint64_t>(newest.half_width_ns) + 1 +
                               static_cast<uint64_t>(std::ceil(drift_ns));
}

void PtpTracker::Learn(int64_t moved_ns, int64_t within_ns) {
  if (moved_ns > kStepNs || within_ns <= 0) {
    pairs_ = 0;
    return;
  }
  drifts_[pairs_++ % kWindow] =
      static_cast<double>(moved_ns + kRoundingNs) / static_cast<double>(within_ns);
}

nic::ClockConversion PtpTracker::Add(const nic::ClockConversion& published, uint64_t raw) {
  const int64_t now_ns = published.ToNanoseconds(raw);
  if (!last_.has_value() || now_ns - last_ns_ >= kMinPtpBaselineNs || now_ns < last_ns_) {
    if (last_.has_value()) Learn(std::llabs(last_->ToNanoseconds(raw) - now_ns), now_ns - last_ns_);
    last_ = published;
    last_ns_ = now_ns;
  }
  const auto drifts = std::span(drifts_).first(std::min<size_t>(pairs_, kWindow));
  const double drift = drifts.empty() ? 0 : std::ranges::max(drifts);
  const int64_t age_ns = now_ns - published.base_ns;
  nic::ClockConversion conversion = published;
  conversion.error_bound_ns =
      kRoundingNs +
      static_cast<uint64_t>(std::ceil(drift * static_cast<double>(kClockHorizonNs)));
  conversion.in_sync = pairs_ > 0 && age_ns >= 0 && age_ns < kStaleNs;
  return conversion;
}

std::optional<ClockSample> ReadClocks(const std::function<std::optional<uint64_t>()>& read_raw,
                                      const std::function<int64_t()>& host_now_ns) {
  std::optional<ClockSample> best;
  for (int i = 0; i < kReadings; ++i) {
    const int64_t before_ns = host_now_ns();
    const std::optional<uint64_t> raw = read_raw();
    const int64_t after_ns = host_now_ns();
    if (!raw.has_value()) return best;
    const int64_t half_width_ns = (after_ns - before_ns + 1) / 2;
    if (best.has_value() && best->half_width_ns <= half_width_ns) continue;
    best = ClockSample{*raw, before_ns + (after_ns - before_ns) / 2, half_width_ns};
  }
  return best;
}

}  // namespace xtreme::mlx5
