// SPDX-License-Identifier: Apache-2.0
//
// The retransmission time-out from measured round-trip times: RFC 6298, and RFC 7323 sections 4 and
// appendix G for timestamps.
//
// The invariant: SRTT + `min_rto` <= rto() <= `max_rto`, whatever was measured, so that a peer's
// own timers of `min_rto` come before ours. A round trip of a segment that was sent more than once
// is never taken unless timestamps say which copy was answered (Karn's algorithm, RFC 6298 section
// 3). Time in nanoseconds; the estimates keep eight fractional bits, so that small gains are not
// lost. One thread.
#ifndef XTREME_STACK_TCP_RTT_H_
#define XTREME_STACK_TCP_RTT_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "stack/base/time.h"

namespace xtreme::tcp {

// The clock of the timestamps that this end sends. RFC 7323 section 5.4: 1 ms to 1 s a tick; a
// finer one wraps sooner, and PAWS then needs segments more often.
struct TimestampClock {
  static constexpr base::Nanoseconds kTick = base::Milliseconds(1);
  uint32_t offset = 0;  // random, so that uptime is not told: RFC 7323 section 7.1

  // TSval at `now`.
  uint32_t At(base::Nanoseconds now) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(now.count()) / kTick.count()) + offset;
  }

  // The time since the segment that carried `echo` left, to the tick: at least 0.
  base::Nanoseconds Since(uint32_t echo, base::Nanoseconds now) const {
    const auto ticks = static_cast<int32_t>(At(now) - echo);
    return kTick * std::max(ticks, int32_t{0});
  }

  // The same of one of several copies, of which the first left at `first`, rounded up to the tick.
  // None: no copy carried `echo`.
  std::optional<base::Nanoseconds> RoundTrip(uint32_t echo, base::Nanoseconds first,
                                             base::Nanoseconds now) const {
    const uint32_t ticks = At(now) - echo;
    if (ticks > At(now) - At(first)) return std::nullopt;
    return kTick * (int64_t{ticks} + 1);
  }
};

class RttEstimator {
 public:
  struct Options {
    base::Nanoseconds initial_rto = base::Seconds(1);  // RFC 6298 (2.1)
    // In the place of G in (2.3), which it is at least: RTO = SRTT + max(min_rto, 4 x RTTVAR). RFC
    // 6298 (2.4) asks for 1 s; on a LAN a loss costs this much, so it can go below 1 ms. Peers may
    // delay an acknowledgement: what they wait (up to 500 ms, RFC 9293 section 3.8.6.3) should be
    // less.
    base::Nanoseconds min_rto = base::Milliseconds(200);
    base::Nanoseconds max_rto = base::Seconds(60);            // RFC 6298 (2.5): at least 60 s
    base::Nanoseconds after_lost_syn_rto = base::Seconds(3);  // RFC 6298 (5.7)
  };

  // `options` outlives the estimator.
  explicit RttEstimator(const Options& options) : options_(&options) {}

  // A round trip was measured. `expected_samples` is how many samples a round trip gives, so that
  // many of them weigh as much as one: FlightSize / (2 x SMSS), at least 1 (RFC 7323 appendix G).
  // Ends backing off.
  [[gnu::always_inline]] void Sample(base::Nanoseconds rtt, uint32_t expected_samples = 1) {
    if (expected_samples > 1 || !has_sample()) [[unlikely]] {
      return SampleOtherwise(rtt, expected_samples);
    }
    SampleUsual(base::Nanoseconds(Bounded(rtt) >> kFractionBits));
  }
  // The same of one that is not the first and as good as any other, of more than nothing and less
  // than a day: without a division. (2.3): alpha is 1/8, beta 1/4.
  [[gnu::always_inline]] void SampleUsual(base::Nanoseconds rtt) {
    const int64_t sample = rtt.count() << kFractionBits;
    rttvar_ += (std::abs(srtt_ - sample) - rttvar_) >> 2;
    srtt_ += (sample - srtt_) >> 3;
    backoff_ = 0;
  }

  // The timer expired: the next RTO is twice this one. RFC 6298 (5.5).
  void BackOff() { backoff_ += Base() << backoff_ < options_->max_rto.count(); }

  // Nothing was backed off from for want of an answer: rto() is what the estimates say again.
  void ClearBackOff() { backoff_ = 0; }

  // The timer expired for a SYN, however often: without a sample, data begins with a longer RTO,
  // that is not backed off. RFC 6298 (5.7). Or with what `rtt` would make of it, by which one of
  // several copies was answered: it is no sample, for who answers may echo the first copy whichever
  // it was that came.
  void SynTimedOut(std::optional<base::Nanoseconds> rtt = std::nullopt) {
    backoff_ = 0;
    const base::Nanoseconds longer = std::max(base::Nanoseconds(unmeasured_),
                                              options_->after_lost_syn_rto);
    const base::Nanoseconds measured =
        rtt ? *rtt + std::max(options_->min_rto, 2 * *rtt) : longer;  // (2.2)
    unmeasured_ = Clamp(std::min(measured, longer).count());
  }

  // For the retransmission timer, backed off. Worked out when it is asked for, which is more seldom
  // than round trips are measured.
  base::Nanoseconds rto() const {
    return base::Nanoseconds(std::min(Base() << backoff_, options_->max_rto.count()));
  }
  // What rto() is at least, whatever was measured.
  base::Nanoseconds least_rto() const { return options_->min_rto; }
  // What its owner waits at least for the answer to a segment alone: rto(), or less for a reason of
  // his own. Kept here, beside what he looks at with it; up to four seconds, none at first.
  base::Nanoseconds least_wait() const { return base::Nanoseconds(least_wait_); }
  void SetLeastWait(base::Nanoseconds wait) {
    least_wait_ = static_cast<uint32_t>(std::clamp<int64_t>(wait.count(), 0, UINT32_MAX));
  }
  uint32_t backoff() const { return backoff_; }
  bool has_sample() const { return srtt_ != 0; }
  // 0 before the first sample.
  base::Nanoseconds srtt() const { return base::Nanoseconds(srtt_ >> kFractionBits); }
  base::Nanoseconds rttvar() const { return base::Nanoseconds(rttvar_ >> kFractionBits); }
  const Options& options() const { return *options_; }
  void UseOptions(const Options& options) { options_ = &options; }

 private:
  static constexpr int kFractionBits = 8;
  static constexpr base::Nanoseconds kLongest = base::Seconds(86'400);

  void SampleOtherwise(base::Nanoseconds rtt, uint32_t expected_samples);
  // A round trip of nothing is one below the clock's resolution. A day bounds what is shifted.
  static int64_t Bounded(base::Nanoseconds rtt) {
    return std::clamp<int64_t>(rtt.count(), 1, kLongest.count()) << kFractionBits;
  }
  // The RTO before it is backed off from. (2.3).
  int64_t Base() const {
    if (!has_sample()) return Clamp(unmeasured_);
    const int64_t deviation = std::max(options_->min_rto.count(), rttvar_ * 4 >> kFractionBits);
    return Clamp((srtt_ >> kFractionBits) + deviation);
  }

  int64_t Clamp(int64_t rto) const {
    return std::clamp(rto, options_->min_rto.count(), options_->max_rto.count());
  }

  const Options* options_;
  int64_t srtt_ = 0;    // ns x 2^kFractionBits
  int64_t rttvar_ = 0;  // the same
  int64_t unmeasured_ = Clamp(options_->initial_rto.count());  // the RTO before the first sample
  uint32_t backoff_ = 0;  // how many times doubled
  uint32_t least_wait_ = 0;  // ns
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_RTT_H_
