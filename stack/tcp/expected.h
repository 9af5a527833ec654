// SPDX-License-Identifier: Apache-2.0
//
// The segment that is expected: of an established connection, next in order, saying nothing but ACK
// and PSH, while nothing is lost. Most are; for them the steps of RFC 9293 section 3.10.7.4 come to
// little, which is done here in one go. (Header prediction: V. Jacobson, RFC 1323 appendix A.)
//
// The invariant: whatever this does, the steps of arrival.cc would do the same. Inlined into who
// receives: Pcb::Arrive, which hands payload to the sink, and Stack::TakeExpected, which leaves it
// to its caller. Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_EXPECTED_H_
#define XTREME_STACK_TCP_EXPECTED_H_

#include <cstdint>

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

// `quietly`: nor has anybody to be told of anything but its payload.
[[gnu::always_inline]] inline bool Pcb::IsExpected(const wire::TcpSegment& segment,
                                                   bool quietly) const {
  const bool plain = IsPlain(quietly ? kPlainQuiet : kPlainIn) &&
                     (segment.flags & ~wire::kTcpPsh) == wire::kTcpAck &&
                     segment.sequence == rcv_nxt_.value() &&
                     segment.payload_bytes <= Distance(rcv_nxt_, rcv_edge_) &&
                     segment.options.sack_count == 0;
  if (!plain) return false;
  const auto& timestamps = segment.options.timestamps;
  if (Has(kTimestamps) && (!timestamps || IsOlderTimestamp(timestamps->value, ts_recent_))) {
    return false;
  }
  const Flight& flight = queue_.flight();
  const Seq ack(segment.acknowledgement);
  if (ack == queue_.una()) {
    // Else perhaps a duplicate: RFC 5681 section 2.
    return segment.payload_bytes != 0 || flight.outstanding == 0 ||
           uint32_t{segment.window} << snd_scale_ != snd_wnd_;
  }
  const Segment* const only = queue_.Only();
  if (only != nullptr && ack == queue_.end()) [[likely]] {
    return !only->WasRetransmitted() && !(quietly && only->Has(Segment::kWantDone));
  }
  if (ack < queue_.una() || ack > queue_.nxt()) return false;
  // The round trip of what was sent once is told by time alone.
  for (const Segment* s = queue_.first(); s != queue_.first_unsent() && s->end() <= ack;
       s = s->next) {
    if (s->WasRetransmitted() || (quietly && s->Has(Segment::kWantDone))) return false;
  }
  return true;
}

// All but its payload.
[[gnu::always_inline]] inline void Pcb::TakeExpected(const wire::TcpSegment& segment,
                                                     base::Nanoseconds now) {
  if (Has(kTimestamps) && rcv_nxt_ <= last_ack_sent_) {
    ts_recent_ = segment.options.timestamps->value;
    ts_recent_at_ = now;
  }
  heard_at_ = now;
  probes_ = 0;
  const Seq ack(segment.acknowledgement);
  // As UpdateSendWindow: one that is acceptable acknowledges no less than WL2.
  if (Seq(segment.sequence) >= snd_wl1_) [[likely]] {
    snd_wnd_ = uint32_t{segment.window} << snd_scale_;
    max_snd_wnd_ = std::max(max_snd_wnd_, snd_wnd_);
    snd_wl1_ = Seq(segment.sequence);
    snd_wl2_ = ack;
  }
  TakeExpectedAck(ack, now);
}

// Of segments that were sent once, or of nothing new.
[[gnu::always_inline]] inline void Pcb::TakeExpectedAck(Seq ack, base::Nanoseconds now) {
  const uint32_t acked = Distance(queue_.una(), ack);
  const uint32_t outstanding = queue_.flight().outstanding;
  if (acked == 0) {
    // Time alone may show a loss.
    if (outstanding != 0 && Has(kSack)) RecoverBySack({.outstanding_before = outstanding}, now);
    return;
  }
  base::Nanoseconds rtt(-1);
  const auto tell = [&](const Segment& segment) {
    if (segment.Has(Segment::kWantDone) && segment.posted == 0) [[unlikely]] {
      context_->sink->OnDone(*this, segment.cookie, /*cancelled=*/false);
    }
  };
  if (Segment* const only = queue_.Only(); only != nullptr && ack == queue_.end()) [[likely]] {
    rtt = rack_.OnFirstCopyDelivered(*only, ack, now);
    queue_.AcknowledgeOnly(*only, tell);
  } else {
    queue_.Acknowledge(ack, [&](const Segment& segment) {
      rtt = base::Later(rtt, rack_.OnFirstCopyDelivered(segment, now));
      tell(segment);
    });
  }
  progress_at_ = rto_base_ = now;
  retries_ = 0;
  Clear(kSmallOverride);
  const bool all = queue_.all_acknowledged();
  if (rtt >= base::Nanoseconds(0)) [[likely]] rtt_.Sample(rtt, all ? 1 : ExpectedSamples());
  if (!all || !Has(kSack)) [[unlikely]] {
    Progress progress{.acked = acked, .outstanding_before = outstanding};
    if (rtt >= base::Nanoseconds(0)) progress.rtt = rtt;
    return Has(kSack) ? RecoverBySack(progress, now) : RecoverByDuplicates(progress, now);
  }
  rack_.OnAck(/*dsack=*/false, queue_.una(), queue_.nxt());
  reorder_deadline_ = base::kNever;
  if (IsWindowLimited(outstanding)) {
    Progress progress{.acked = acked, .outstanding_before = outstanding};
    if (rtt >= base::Nanoseconds(0)) progress.rtt = rtt;
    GrowWindow(progress, now);
  } else {
    congestion_.OnUnlimitedAck();
  }
}

// `bytes` of payload, which the sink took.
[[gnu::always_inline]] inline void Pcb::TakeExpectedPayload(uint32_t bytes,
                                                            base::Nanoseconds now) {
  rcv_nxt_ += bytes;
  owed_credit_ += bytes;
  ScheduleAck(now);
}

// Output, where there is something to be put out.
[[gnu::always_inline]] inline void Pcb::AfterExpected(base::Nanoseconds now) {
  const bool more = queue_.first_unsent() != nullptr || queue_.flight().lost != 0 ||
                    Has(kAckNow | kWantsSpace | kSinkFull);
  if (more) [[unlikely]] return Output(now);
  if (queue_.empty()) return SetSender(Timer::kNone, base::kNever);
  if (reorder_deadline_ != base::kNever) [[unlikely]] return ArmOutstanding();
  // Of what is left the timer restarts if something was acknowledged, else it runs on.
  if (progress_at_ != now || rto_base_ != now) return;
  Rearm(queue_.first() == queue_.last_sent(), now);
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_EXPECTED_H_
