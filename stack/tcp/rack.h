// SPDX-License-Identifier: Apache-2.0
//
// RACK: a segment is lost when one sent later was delivered and the reordering window has passed.
// RFC 8985 sections 5 and 6; the names are the RFC's.
//
// The invariant: segments are judged by the time of their last transmission only, so a lost
// retransmission is found like a lost first copy. Time in nanoseconds, an argument. The calls for
// one acknowledgement, in order: OnDelivered for each segment that it newly acknowledges or sacks,
// OnAck, DetectLosses.
#ifndef XTREME_STACK_TCP_RACK_H_
#define XTREME_STACK_TCP_RACK_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "stack/base/time.h"
#include "stack/tcp/rtt.h"
#include "stack/tcp/segment_queue.h"
#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

// The least round trip of the last one to two windows of time. RFC 8985 section 6.2 step 1.
class MinRtt {
 public:
  void Sample(base::Nanoseconds rtt, base::Nanoseconds now) {
    SampleUsual(base::Nanoseconds(std::clamp<int64_t>(rtt.count(), 0, kNone - 1)), now);
  }
  // Positive, and not too long to be kept as it is.
  static bool IsUsual(base::Nanoseconds rtt) {
    return static_cast<uint64_t>(rtt.count() - 1) < kNone - 1;
  }
  [[gnu::always_inline]] void SampleUsual(base::Nanoseconds rtt, base::Nanoseconds now) {
    const auto sample = static_cast<uint32_t>(rtt.count());
    const auto window = static_cast<uint32_t>(now.count() >> kWindowLog2);
    if (window == window_) [[likely]] {
      if (sample < current_) [[unlikely]] current_ = sample;
      return;
    }
    // What is two windows old is forgotten whole.
    previous_ = window - window_ == 1 ? current_ : kNone;
    current_ = sample;
    window_ = window;
  }
  // kNever before the first sample.
  base::Nanoseconds value() const {
    const uint32_t least = std::min(current_, previous_);
    return least == kNone ? base::kNever : base::Nanoseconds(least);
  }

 private:
  static constexpr int kWindowLog2 = 36;  // of ns: 69 s
  static constexpr uint32_t kNone = UINT32_MAX;
  // In ns: a round trip of four seconds and more is taken for the longest that fits.
  uint32_t current_ = kNone;
  uint32_t previous_ = kNone;
  uint32_t window_ = 0;  // the number of the window that `current_` is of
};

class Rack {
 public:
  // `start`: where the first segment begins.
  explicit Rack(Seq start) : end_(start), fack_(start) {}

  // An acknowledgement: when it came, and what it echoes.
  struct AckTime {
    base::Nanoseconds now;
    std::optional<uint32_t> echo;  // TSecr, where timestamps are in use
    TimestampClock clock;          // that `echo` is a value of
  };

  // `segment` was delivered: not marked sacked before. Steps 1 to 3 of section 6.2. Returns its
  // round trip when that can be told, for an estimator: a retransmitted one only by timestamp.
  std::optional<base::Nanoseconds> OnDelivered(const Segment& segment, const AckTime& ack) {
    if (segment.WasRetransmitted()) [[unlikely]]
      return OnRetransmissionDelivered(segment, ack);
    return OnFirstCopyDelivered(segment, ack.now);
  }
  // The same of one that was sent once.
  base::Nanoseconds OnFirstCopyDelivered(const Segment& segment, base::Nanoseconds now) {
    return OnFirstCopyDelivered(segment, segment.end(), now);
  }
  // The same of one that is known to end there.
  [[gnu::always_inline]] base::Nanoseconds OnFirstCopyDelivered(const Segment& segment, Seq end,
                                                                base::Nanoseconds now) {
    const base::Nanoseconds rtt = now - segment.sent_at;
    min_rtt_.Sample(rtt, now);
    NoteLatest(segment.sent_at, end, rtt);
    // Step 3.
    if (end > fack_) {
      fack_ = end;
    } else if (end < fack_) {
      reordering_seen_ = true;
    }
    return rtt;
  }

  // The same of one that was sent once and is all that was outstanding, and of which nothing is
  // known but that: it ends after whatever was delivered before. That it is the latest of what was
  // delivered is not noted: whatever is judged from now on was sent later. Sample() of its round
  // trip, which is returned, is due.
  [[gnu::always_inline]] base::Nanoseconds OnOnlyDelivered(const Segment& segment, Seq end,
                                                           base::Nanoseconds now) {
    fack_ = end;
    return rtt_ = now - segment.sent_at;
  }

  void Sample(base::Nanoseconds rtt, base::Nanoseconds now) { min_rtt_.Sample(rtt, now); }
  void SampleUsual(base::Nanoseconds rtt, base::Nanoseconds now) {
    min_rtt_.SampleUsual(rtt, now);
  }

  // Where the connection stands at an acknowledgement or a timer.
  struct Context {
    base::Nanoseconds now;
    base::Nanoseconds srtt;    // 0: unknown
    bool in_recovery = false;  // fast recovery, or after a time-out
  };

  // Step 4: adapts the reordering window. `dsack`: the acknowledgement had one.
  void OnAck(bool dsack, Seq una, Seq nxt) {
    if (in_dsack_round_ && una >= dsack_round_) in_dsack_round_ = false;
    if (dsack && !in_dsack_round_) [[unlikely]] BeginDsackRound(nxt);
  }
  // Recovery ended, whichever.
  void OnRecoveryEnd();

  // Whether step 5 may find anything, `first` being the first one outstanding: mostly nothing that
  // is was sent before what was delivered last.
  bool MaySuspect(const Segment& first) const {
    return IsSentBeforeDelivered(first) || first.WasRetransmitted();
  }
  // Step 5: marks what is lost. Returns when to look again, at a timer: kNever when nothing is
  // suspected.
  base::Nanoseconds DetectLosses(SegmentQueue& queue, const Context& context) {
    if (queue.all_acknowledged()) return base::kNever;
    return JudgeOutstanding(queue, context);
  }

  // The retransmission timer expired: marks the first segment and all that RACK would. Section 6.3.
  void MarkLossesOnTimeout(SegmentQueue& queue, const Context& context);

  // The reordering window as of now.
  base::Nanoseconds ReorderingWindow(const SegmentQueue& queue, const Context& context) const;
  bool reordering_seen() const { return reordering_seen_; }
  uint32_t reordering_multiplier() const { return multiplier_; }
  const MinRtt& min_rtt() const { return min_rtt_; }

 private:
  void BeginDsackRound(Seq nxt);
  std::optional<base::Nanoseconds> OnRetransmissionDelivered(const Segment& segment,
                                                             const AckTime& ack);
  void NoteLatest(base::Nanoseconds sent_at, Seq end, base::Nanoseconds rtt) {
    if (sent_at < sent_at_ || (sent_at == sent_at_ && end <= end_)) return;
    sent_at_ = sent_at;
    end_ = end;
    rtt_ = rtt;
  }
  base::Nanoseconds JudgeOutstanding(SegmentQueue& queue, const Context& context);
  // RACK_sent_after(RACK.xmit_ts, RACK.end_seq, Segment.xmit_ts, Segment.end_seq).
  bool IsSentBeforeDelivered(const Segment& segment) const {
    return segment.sent_at < sent_at_ || (segment.sent_at == sent_at_ && segment.end() < end_);
  }

  // The most recently sent of the delivered segments.
  base::Nanoseconds sent_at_{INT64_MIN};  // RACK.xmit_ts
  base::Nanoseconds rtt_;
  Seq end_;  // RACK.end_seq
  Seq fack_;
  bool reordering_seen_ = false;
  bool in_dsack_round_ = false;
  uint8_t multiplier_ = 1;  // RACK.reo_wnd_mult
  uint8_t persist_ = 16;    // RACK.reo_wnd_persist
  Seq dsack_round_;
  MinRtt min_rtt_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_RACK_H_
