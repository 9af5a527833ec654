// SPDX-License-Identifier: Apache-2.0
//
// The segment that is expected: of an established connection, next in order, saying nothing but ACK
// and PSH, while nothing is lost. Most are; for them the steps of RFC 9293 section 3.10.7.4 come to
// little, which is done here in one go. (Header prediction: V. Jacobson, RFC 1323 appendix A.)
//
// The invariant: whatever this does, the steps of arrival.cc would do the same.

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/pcb.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

[[gnu::always_inline]] inline bool Pcb::IsExpected(const wire::TcpSegment& segment) const {
  constexpr uint32_t kUnusual =
      kReceiveClosed | kFinSeen | kFastRecovery | kTimeoutRecovery;
  const bool plain = state_ == State::kEstablished && !Has(kUnusual) &&
                     (segment.flags & ~wire::kTcpPsh) == wire::kTcpAck &&
                     segment.sequence == rcv_nxt_.value() &&
                     segment.payload_bytes <= Distance(rcv_nxt_, rcv_edge_) &&
                     segment.options.sack_count == 0 && reassembler_.empty();
  if (!plain) return false;
  const auto& timestamps = segment.options.timestamps;
  if (Has(kTimestamps) && (!timestamps || IsOlderTimestamp(timestamps->value, ts_recent_))) {
    return false;
  }
  const Flight& flight = queue_.flight();
  if ((flight.sacked | flight.lost | flight.retransmitted) != 0 || tail_probe_.outstanding()) {
    return false;
  }
  const Seq ack(segment.acknowledgement);
  if (ack == queue_.una()) return segment.payload_bytes != 0;  // Else perhaps a duplicate.
  if (ack < queue_.una() || ack > queue_.nxt()) return false;
  // The round trip of what was sent once is told by time alone.
  for (const Segment* s = queue_.first(); s != queue_.first_unsent() && s->end() <= ack;
       s = s->next) {
    if (s->WasRetransmitted()) return false;
  }
  return true;
}

// Of segments that were sent once, or of nothing new.
[[gnu::always_inline]] inline void Pcb::TakeExpectedAck(Seq ack, base::Nanoseconds now) {
  Progress progress{.acked = Distance(queue_.una(), ack),
                    .outstanding_before = queue_.flight().outstanding};
  if (progress.acked == 0) {
    // Time alone may show a loss.
    if (progress.outstanding_before != 0 && Has(kSack)) RecoverBySack(progress, now);
    return;
  }
  base::Nanoseconds rtt(-1);
  queue_.Acknowledge(ack, [&](const Segment& segment) {
    rtt = base::Later(rtt, rack_.OnFirstCopyDelivered(segment, now));
    if (segment.Has(Segment::kWantDone) && segment.posted == 0) {
      context_->sink->OnDone(*this, segment.cookie, /*cancelled=*/false);
    }
  });
  progress_at_ = rto_base_ = now;
  retries_ = 0;
  Clear(kSmallOverride);
  rtt_.ClearBackOff();
  if (rtt >= base::Nanoseconds(0)) rtt_.Sample(rtt, ExpectedSamples());
  if (!Has(kSack)) return RecoverByDuplicates(progress, now);
  if (!queue_.all_acknowledged()) return RecoverBySack(progress, now);
  rack_.OnAck(/*dsack=*/false, queue_.una(), queue_.nxt());
  reorder_deadline_ = base::kNever;
  GrowWindow(progress, now);
}

bool Pcb::ArriveAsExpected(const wire::TcpSegment& segment, packet::Buffer* payload,
                           uint64_t stamp, base::Nanoseconds now) {
  if (!IsExpected(segment)) [[unlikely]] return false;
  if (Has(kTimestamps) && rcv_nxt_ <= last_ack_sent_) {
    ts_recent_ = segment.options.timestamps->value;
    ts_recent_at_ = now;
  }
  heard_at_ = now;
  probes_ = 0;
  UpdateSendWindow(segment);
  TakeExpectedAck(Seq(segment.acknowledgement), now);
  if (const uint32_t bytes = segment.payload_bytes; bytes != 0) {
    if (context_->sink->Deliver(*this, payload, bytes, stamp)) [[likely]] {
      rcv_nxt_ += bytes;
      owed_credit_ += bytes;
      ScheduleAck(now);
    } else {
      ++context_->counters.no_room;
      packet::BufferPool::ReleaseChain(payload);
    }
  }
  Output(now);
  return true;
}

}  // namespace xtreme::tcp
