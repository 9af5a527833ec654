// SPDX-License-Identifier: Apache-2.0
//
// The segment that is expected: of an established connection, next in order, saying nothing but ACK
// and PSH, while nothing is lost. Most are; for them the steps of RFC 9293 section 3.10.7.4 come to
// little, which is done here in one go. (Header prediction: V. Jacobson, RFC 1323 appendix A.)
//
// The invariant: whatever this does, the steps of arrival.cc would do the same. Inlined into who
// receives: Pcb::Arrive, which hands payload to the sink, and Stack::TakeIfExpected, which leaves
// it to its caller. What is seldom stands in functions of its own (expected.cc), so that the rest
// need save no registers for it. Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_EXPECTED_H_
#define XTREME_STACK_TCP_EXPECTED_H_

#include <cstdint>

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

// What a segment that was parsed says; timestamp() only where it has them.
class ParsedAck {
 public:
  explicit ParsedAck(const wire::TcpSegment& segment) : segment_(segment) {}

  uint32_t sequence() const { return segment_.sequence; }
  uint32_t acknowledgement() const { return segment_.acknowledgement; }
  uint16_t window() const { return segment_.window; }
  uint32_t timestamp() const { return segment_.options.timestamps->value; }

 private:
  const wire::TcpSegment& segment_;
};

// `quietly`: nor has anybody to be told of anything but its payload.
[[gnu::always_inline]] inline Pcb::Expected Pcb::Judge(const auto& segment,
                                                       uint32_t payload_bytes,
                                                       bool quietly) const {
  const bool plain = IsPlain(quietly ? kPlainQuiet : kPlainIn) &&
                     segment.sequence() == rcv_nxt_.value() &&
                     payload_bytes <= Distance(rcv_nxt_, rcv_edge_);
  if (!plain) return Expected::kNot;
  if (Has(kTimestamps) && IsOlderTimestamp(segment.timestamp(), ts_recent_)) return Expected::kNot;
  const Seq ack(segment.acknowledgement());
  if (ack == queue_.una()) {
    // Else perhaps a duplicate: RFC 5681 section 2.
    const bool more = payload_bytes != 0 || queue_.flight().outstanding == 0 ||
                      uint32_t{segment.window()} << snd_scale_ != snd_wnd_;
    return more ? Expected::kNothingNew : Expected::kNot;
  }
  const Segment* const only = queue_.Only();
  if (only == nullptr || ack != queue_.end() || !Has(kSack)) [[unlikely]] {
    return JudgeSeveral(ack, quietly);
  }
  const bool usual = !only->WasRetransmitted() && !(quietly && only->Has(Segment::kWantDone));
  return usual ? Expected::kOnly : Expected::kNot;
}

// All but its payload.
[[gnu::always_inline]] inline bool Pcb::TakeExpected(const auto& segment, Expected what,
                                                     bool quietly, base::Nanoseconds now) {
  bool sooner = false;
  if (what == Expected::kOnly) {
    TakeAckOfOnly(quietly, now);
  } else if (what == Expected::kSeveral || queue_.flight().outstanding != 0) {
    TakeAckOfSeveral(Seq(segment.acknowledgement()), now);
    sooner = true;
  }
  const Seq sequence(segment.sequence());
  // RFC 7323 section 4.3: it begins at RCV.NXT, which is Last.ACK.sent or beyond.
  if (Has(kTimestamps) && sequence == last_ack_sent_) {
    ts_recent_ = segment.timestamp();
    ts_recent_at_ = now;
  }
  heard_at_ = now;
  probes_ = {};
  // As UpdateSendWindow: one that is acceptable acknowledges no less than WL2.
  if (sequence < snd_wl1_ && what == Expected::kNothingNew) [[unlikely]] return sooner;
  snd_wnd_ = uint32_t{segment.window()} << snd_scale_;
  if (snd_wnd_ > max_snd_wnd_) [[unlikely]] max_snd_wnd_ = snd_wnd_;
  snd_wl1_ = sequence;
  snd_wl2_ = Seq(segment.acknowledgement());
  return sooner;
}

// Of all there is, one segment that was sent once, by a peer with SACK: nothing is left that could
// be lost, and no timer runs.
[[gnu::always_inline]] inline void Pcb::TakeAckOfOnly(bool quietly, base::Nanoseconds now) {
  const base::Nanoseconds rtt = rack_.OnOnlyDelivered(*queue_.first(), queue_.end(), now);
  progress_at_ = now;
  retries_ = 0;
  Clear(kSmallOverride);
  const bool usual = MinRtt::IsUsual(rtt) && rtt_.has_sample();
  if (usual) [[likely]] {
    rack_.SampleUsual(rtt, now);
    rtt_.SampleUsual(rtt);
  } else {
    SampleOnly(rtt, now);
  }
  rack_.OnAck(/*dsack=*/false, queue_.end(), queue_.end());
  // More than IsWindowLimited() asks for, and quickly.
  const uint32_t acked = queue_.flight().outstanding;
  if (2 * acked + smss_ > congestion_.cwnd()) [[unlikely]] {
    GrowByOnly(acked, rtt, now);
  } else {
    congestion_.OnUnlimitedAck();
  }
  queue_.AcknowledgeOnly(*queue_.first(), [&](const Segment& segment) {
    const bool due = !quietly && segment.Has(Segment::kWantDone) && segment.posted == 0;
    if (due) [[unlikely]] context_->sink->OnDone(*this, segment.cookie, /*cancelled=*/false);
  });
  reorder_deadline_ = base::kNever;
  SetSender(Timer::kNone, base::kNever);
}

// `bytes` of payload, which the sink took.
[[gnu::always_inline]] inline bool Pcb::TakeExpectedPayload(uint32_t bytes, base::Nanoseconds now,
                                                            auto&& acknowledge) {
  rcv_nxt_ += bytes;
  const bool waits = (plain_ & kPlainDelays) != 0 &&
                     Distance(last_ack_sent_, rcv_nxt_) < 2u * smss_;
  if (!waits) [[unlikely]] {
    if (acknowledge()) return false;
    ScheduleAck(now);
    return true;
  }
  if (ack_deadline_ != base::kNever) return false;
  ack_deadline_ = now + options_->delayed_ack;
  return true;
}

// Where acknowledgements wait, and one does no more, two segments came: what else ScheduleAck()
// asks, and Output(), is seen to be none.
[[gnu::always_inline]] inline bool Pcb::AckAlone(base::Nanoseconds now, auto&& place) {
  constexpr uint8_t kAlone = kPlainDelays | kPlainOut;
  if (!IsPlain(kPlainOut) || (plain_ & kAlone) != kAlone) [[unlikely]] return false;
  if (queue_.flight().outstanding > snd_wnd_) [[unlikely]] return false;  // As SendAck() asks.
  Outgoing says{.sequence = queue_.end(), .flags = wire::kTcpAck};  // SND.NXT: nothing is unsent.
  FillHeader(says, now);
  if (!place(static_cast<const Outgoing&>(says))) [[unlikely]] return false;
  OnOffered(says);
  return true;
}

// Output, where there is something to be put out.
[[gnu::always_inline]] inline bool Pcb::AfterExpected(base::Nanoseconds now) {
  if ((plain_ & kPlainOut) != 0) [[likely]] return false;
  OutputIfDue(now);
  return true;
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_EXPECTED_H_
