// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/congestion/cubic.h"

#include <algorithm>

namespace xtreme::tcp {
namespace {

using Wide = __int128;

constexpr int64_t kCubicMicroseconds = 1'000'000'000'000'000'000;  // in a cubic second
// Beyond, the curve is above every window.
constexpr int64_t kLongestUs = int64_t{1} << 34;

// The largest integer whose cube is at most `value`, which is below 2^96.
int64_t CubeRoot(Wide value) {
  int64_t root = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const int64_t next = root | int64_t{1} << bit;
    if (Wide{next} * next * next <= value) root = next;
  }
  return root;
}

}  // namespace

void Cubic::OnAck(const AckEvent& ack, CongestionWindow& window) {
  if (!ack.window_limited) {
    // Time without need does not count (section 5.8): a new epoch begins where the window is, which
    // is on the same curve.
    window.in_epoch = false;
    return;
  }
  uint32_t left = ack.acked;
  if (window.InSlowStart()) left = slow_start_.OnAck(ack, window);
  if (left > 0) Avoid(left, ack, window);
}

// Sections 4.2 to 4.5.
void Cubic::Avoid(uint32_t acked, const AckEvent& ack, CongestionWindow& window) {
  if (!window.in_epoch) BeginEpoch(ack.now, window);
  const uint64_t cwnd = window.cwnd;
  // Section 4.3: alpha is 9/17 until the window is what it was, then 1, as NewReno's.
  const bool caught_up = w_est_ >> 8 >= curve_.cwnd_prior;
  const uint64_t step = uint64_t{acked} * window.smss * 256 / cwnd;
  w_est_ += caught_up ? step : step * 9 / 17;
  w_est_ = std::min<uint64_t>(w_est_, uint64_t{kMaxCongestionWindow} << 8);

  const int64_t t_us = (ack.now - curve_.epoch_start).count() / 1000;
  const uint64_t w_est = w_est_ >> 8;
  if (WindowAt(t_us, window.smss) < w_est) {
    if (w_est > cwnd) window.Grow(w_est - cwnd);
    return;
  }
  const uint64_t ahead = WindowAt(t_us + ack.srtt.count() / 1000, window.smss);
  const uint64_t target = std::clamp(ahead, cwnd, cwnd + cwnd / 2);
  const uint64_t credit = credit_ + (target - cwnd) * acked;
  window.Grow(credit / cwnd);
  credit_ = static_cast<uint32_t>(credit % cwnd);
}

void Cubic::BeginEpoch(base::Nanoseconds now, CongestionWindow& window) {
  window.in_epoch = true;
  curve_.epoch_start = now;
  w_est_ = uint64_t{window.cwnd} << 8;
  credit_ = 0;
  if (starts_at_plateau_ || window.cwnd >= curve_.w_max) {
    curve_.w_max = window.cwnd;
    curve_.cwnd_prior = window.cwnd;
    curve_.k_us = 0;
  } else {
    // K = cubic root of (W_max - cwnd_epoch) / C, equation (2).
    const Wide segments_over_c = Wide{curve_.w_max - window.cwnd} * 10 * kCubicMicroseconds;
    curve_.k_us = static_cast<uint32_t>(CubeRoot(segments_over_c / 4 / window.smss));
  }
  starts_at_plateau_ = false;
}

// Equation (1).
uint64_t Cubic::WindowAt(int64_t since_epoch_us, uint32_t smss) const {
  const int64_t d = std::clamp(since_epoch_us - curve_.k_us, -kLongestUs, kLongestUs);
  const Wide offset = Wide{d} * d * d / 10 * 4 * smss / kCubicMicroseconds;
  const Wide window = Wide{curve_.w_max} + offset;
  return static_cast<uint64_t>(std::clamp<Wide>(window, 0, kMaxCongestionWindow));
}

void Cubic::OnLoss(const LossEvent& loss, CongestionWindow& window) { Reduce(loss, window); }

void Cubic::OnTimeout(const LossEvent& loss, bool again, CongestionWindow& window) {
  if (!again) Reduce(loss, window);
  starts_at_plateau_ = true;
  window.cwnd = window.smss;
}

void Cubic::Reduce(const LossEvent& loss, CongestionWindow& window) {
  curve_before_ = curve_;
  cwnd_before_ = window.cwnd;
  ssthresh_before_ = window.ssthresh;
  const uint32_t cwnd = window.cwnd;
  // Fast convergence (section 4.7): a flow that could not get back makes room for newer ones.
  const bool shrinking = cwnd < curve_.w_max;
  curve_.w_max = shrinking ? static_cast<uint32_t>(uint64_t{cwnd} * 17 / 20) : cwnd;
  curve_.cwnd_prior = cwnd;
  window.in_epoch = false;
  starts_at_plateau_ = false;
  // Section 4.6: of what is in flight. Where that is less than a new connection may send, of the
  // window up to there: a sender that seldom fills it would be left with two segments.
  const uint64_t used = std::max(loss.flight, std::min(cwnd, InitialWindow(window.smss)));
  window.ssthresh = std::max(static_cast<uint32_t>(used * 7 / 10), 2 * window.smss);
}

void Cubic::OnSpuriousLoss(CongestionWindow& window) {
  if (cwnd_before_ == 0) return;
  window.cwnd = std::max(window.cwnd, cwnd_before_);
  window.ssthresh = std::max(window.ssthresh, ssthresh_before_);
  curve_ = curve_before_;
  w_est_ = uint64_t{window.cwnd} << 8;
  window.in_epoch = curve_.w_max != 0;
  starts_at_plateau_ = !window.in_epoch;
  cwnd_before_ = 0;
}

}  // namespace xtreme::tcp
