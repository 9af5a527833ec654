// SPDX-License-Identifier: Apache-2.0
//
// HyStart++: the first slow start ends when round trips grow, which is before the queue on the path
// is full and everything that it let out is lost. RFC 9406; the names are the RFC's.
//
// The invariant: only a connection that has seen no loss yet is watched (section 4.3); a later slow
// start knows where to stop. A round is what was sent up to SND.NXT as it began. When the least
// round trip of a round is longer than that of the one before, growth goes on at a quarter
// (Conservative Slow Start, CSS); if five rounds later it still is, slow start is over, and if not,
// the delay was none of ours. Round trips in nanoseconds, up to four seconds. Pure.
#ifndef XTREME_STACK_TCP_CONGESTION_HYSTART_H_
#define XTREME_STACK_TCP_CONGESTION_HYSTART_H_

#include <algorithm>
#include <cstdint>

#include "stack/tcp/congestion/window.h"
#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

class HyStart {
 public:
  // Grows `window`, which is in slow start. Returns what is left of `ack.acked` for congestion
  // avoidance.
  uint32_t OnAck(const AckEvent& ack, CongestionWindow& window) {
    if (window.ssthresh != kMaxCongestionWindow) return window.SlowStart(ack.acked);
    if (!begun_) BeginRound(ack.nxt);
    const uint32_t left = window.SlowStart(ack.acked, InCss() ? kCssGrowthDivisor : 1);
    if (ack.rtt >= base::Nanoseconds(0)) TakeSample(ack.rtt);
    if (samples_ >= kRttSamples) Judge();
    // One that ends beyond SND.NXT began gigabytes ago.
    if (ack.una >= window_end_ || ack.nxt < window_end_) EndRound(ack.nxt, window);
    return left;
  }

  bool InCss() const { return css_baseline_ != kNone; }

 private:
  // Section 4.3.
  static constexpr uint32_t kMinRttThreshold = 4'000'000;
  static constexpr uint32_t kMaxRttThreshold = 16'000'000;
  static constexpr uint32_t kMinRttDivisor = 8;
  static constexpr uint8_t kRttSamples = 8;
  static constexpr uint32_t kCssGrowthDivisor = 4;
  static constexpr uint8_t kCssRounds = 5;
  static constexpr uint32_t kNone = UINT32_MAX;  // infinity

  void TakeSample(base::Nanoseconds rtt) {
    const auto sample = static_cast<uint32_t>(std::min<int64_t>(rtt.count(), kNone - 1));
    current_round_min_ = std::min(current_round_min_, sample);
    samples_ = static_cast<uint8_t>(std::min(samples_ + 1, int{kRttSamples}));
  }

  // Section 4.2, where a round has enough samples.
  void Judge() {
    if (InCss()) {
      if (current_round_min_ < css_baseline_) css_baseline_ = kNone;
      return;
    }
    if (last_round_min_ == kNone) return;
    const uint32_t threshold =
        std::clamp(last_round_min_ / kMinRttDivisor, kMinRttThreshold, kMaxRttThreshold);
    if (current_round_min_ < uint64_t{last_round_min_} + threshold) return;
    css_baseline_ = current_round_min_;
    css_rounds_ = 0;
  }

  // The one in which CSS began counts as one.
  void EndRound(Seq nxt, CongestionWindow& window) {
    if (InCss() && ++css_rounds_ >= kCssRounds) window.ssthresh = window.cwnd;
    BeginRound(nxt);
  }
  void BeginRound(Seq nxt) {
    begun_ = true;
    window_end_ = nxt;
    last_round_min_ = current_round_min_;
    current_round_min_ = kNone;
    samples_ = 0;
  }

  uint32_t last_round_min_ = kNone;     // lastRoundMinRTT
  uint32_t current_round_min_ = kNone;  // currentRoundMinRTT
  uint32_t css_baseline_ = kNone;       // cssBaselineMinRtt; kNone: not in CSS
  Seq window_end_;
  uint8_t samples_ = 0;  // rttSampleCount, up to kRttSamples
  uint8_t css_rounds_ = 0;
  bool begun_ = false;  // window_end_ is set
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_HYSTART_H_
