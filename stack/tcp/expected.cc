// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/expected.h"

#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {

bool Pcb::SaysAckOnly(const wire::TcpSegment& segment) const {
  return (segment.flags & ~wire::kTcpPsh) == wire::kTcpAck && segment.options.sack_count == 0 &&
         (!Has(kTimestamps) || segment.options.timestamps);
}

bool Pcb::IsExpected(const wire::TcpSegment& segment, bool quietly) const {
  return SaysAckOnly(segment) &&
         Judge(ParsedAck(segment), segment.payload_bytes, quietly) != Expected::kNot;
}

bool Pcb::ArriveAsExpected(const wire::TcpSegment& segment, packet::Buffer* payload,
                           uint64_t stamp, base::Nanoseconds now) {
  if (!SaysAckOnly(segment)) [[unlikely]] return false;
  const ParsedAck ack(segment);
  const Expected what = Judge(ack, segment.payload_bytes, /*quietly=*/false);
  if (what == Expected::kNot) [[unlikely]] return false;
  TakeExpected(ack, what, /*quietly=*/false, now);
  if (const uint32_t bytes = segment.payload_bytes; bytes != 0) {
    if (context_->sink->Deliver(*this, payload, bytes, stamp)) [[likely]] {
      TakeExpectedPayload(bytes, now, [] { return false; });
    } else {
      ++context_->counters.no_room;
      packet::BufferPool::ReleaseChain(payload);
    }
  }
  AfterExpected(now);
  return true;
}

// Whether each segment that is acknowledged, if only in part, was sent once, for its round trip is
// then told by time alone.
Pcb::Expected Pcb::JudgeSeveral(Seq ack, bool quietly) const {
  if (ack < queue_.una() || ack > queue_.nxt()) return Expected::kNot;
  const uint16_t tells = quietly ? Segment::kWantDone : 0;
  const Segment* const end = queue_.first_unsent();
  for (const Segment* s = queue_.first(); s != end && s->sequence < ack; s = s->next) {
    if (s->WasRetransmitted() || s->Has(tells)) return Expected::kNot;
  }
  return Expected::kSeveral;
}

// Of segments that were sent once, or of nothing new while some are outstanding; and what the
// sender's timer is then, unless something leaves.
void Pcb::TakeAckOfSeveral(Seq ack, base::Nanoseconds now) {
  const uint32_t acked = Distance(queue_.una(), ack);
  Progress progress{.acked = acked, .outstanding_before = queue_.flight().outstanding};
  if (acked == 0) {
    // Time alone may show a loss.
    if (Has(kSack)) RecoverBySack(progress, now);
  } else {
    TakeSeveral(ack, &progress, now);
  }
  if (queue_.empty()) return SetSender(Timer::kNone, base::kNever);
  if (reorder_deadline_ != base::kNever) [[unlikely]] return ArmOutstanding();
  // Of what is left the timer restarts if something was acknowledged, else it runs on.
  if (progress_at_ != now || rto_base_ != now) return;
  Rearm(queue_.first() == queue_.last_sent(), now);
}

void Pcb::TakeSeveral(Seq ack, Progress* progress, base::Nanoseconds now) {
  base::Nanoseconds rtt(-1);
  queue_.Acknowledge(ack, [&](const Segment& segment) {
    rtt = base::Later(rtt, rack_.OnFirstCopyDelivered(segment, now));
    if (segment.Has(Segment::kWantDone) && segment.posted == 0) [[unlikely]] {
      context_->sink->OnDone(*this, segment.cookie, /*cancelled=*/false);
    }
  });
  progress_at_ = rto_base_ = now;
  retries_ = 0;
  Clear(kSmallOverride);
  const bool all = queue_.all_acknowledged();
  if (rtt >= base::Nanoseconds(0)) [[likely]] {
    rtt_.Sample(rtt, all ? 1 : ExpectedSamples());
    progress->rtt = rtt;
  }
  if (!Has(kSack)) [[unlikely]] return RecoverByDuplicates(*progress, now);
  if (!all && rack_.MaySuspect(*queue_.first())) return RecoverBySack(*progress, now);
  // Nothing was lost, nor is to be repaired.
  rack_.OnAck(/*dsack=*/false, queue_.una(), queue_.nxt());
  reorder_deadline_ = base::kNever;
  if (!all) return GrowWindow(*progress, now);
  if (IsWindowLimited(progress->outstanding_before)) {
    GrowWindow(*progress, now);
  } else {
    congestion_.OnUnlimitedAck();
  }
}

// The first sample, or one that is none.
void Pcb::SampleOnly(base::Nanoseconds rtt, base::Nanoseconds now) {
  rack_.Sample(rtt, now);
  if (rtt >= base::Nanoseconds(0)) rtt_.Sample(rtt);
}

void Pcb::GrowByOnly(uint32_t acked, base::Nanoseconds rtt, base::Nanoseconds now) {
  if (!IsWindowLimited(acked)) return congestion_.OnUnlimitedAck();
  congestion_.OnAck({.acked = acked,
                     .now = now,
                     .srtt = rtt_.srtt(),
                     .rtt = rtt,
                     .una = queue_.end(),  // Of all there is.
                     .nxt = queue_.end(),
                     .window_limited = true});
}

// What the bits of Plain do not rule out.
void Pcb::OutputIfDue(base::Nanoseconds now) {
  const bool more = queue_.first_unsent() != nullptr || queue_.flight().lost != 0 ||
                    Has(kAckNow | kWantsSpace | kSinkFull);
  if (more) Output(now);
}

}  // namespace xtreme::tcp
