// SPDX-License-Identifier: Apache-2.0
//
// A segment whose frame was built ahead: whether it may leave now, what its header says, and what
// that it left changes. The short way of Pcb::Send with now_or_fail: what is not plain is refused
// here and taken there.

#include <algorithm>

#include "stack/tcp/pcb.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

bool Pcb::MayFire(uint32_t bytes, base::Nanoseconds now, Outgoing* outgoing) const {
  constexpr uint32_t kNotPlain =
      kCorked | kSinkFull | kSendOne | kFastRecovery | kTimeoutRecovery;
  const bool open = state_ == State::kEstablished && !Has(kNotPlain);
  if (!open || queue_.first_unsent() != nullptr) return false;
  const Flight& flight = queue_.flight();
  const uint32_t window = std::min(snd_wnd_, options_->send_queue);
  const bool fits = bytes <= smss_ && uint64_t{flight.outstanding} + bytes <= window &&
                    uint64_t{flight.Pipe()} + bytes <= congestion_.cwnd() && flight.lost == 0;
  if (!fits || context_->segments->free_count() == 0) return false;
  if (Has(kSack) && (duplicate_ || !reassembler_.empty())) [[unlikely]] return false;
  outgoing->sequence = queue_.nxt();
  outgoing->acknowledgement = rcv_nxt_;
  outgoing->window = WindowToOffer(/*is_syn=*/false);
  outgoing->flags = wire::kTcpAck | wire::kTcpPsh;
  outgoing->has_timestamps = Has(kTimestamps);
  if (outgoing->has_timestamps) {
    outgoing->timestamps = {options_->timestamp_clock.At(now), ts_recent_};
  }
  return true;
}

Segment& Pcb::Fired(const Outgoing& outgoing, const SegmentQueue::Payload& payload,
                    bool posts_reference, base::Nanoseconds now) {
  if (queue_.all_acknowledged()) {
    OnSendAfterSilence(now);
    rto_base_ = now;
  }
  Segment& segment = *queue_.Append(payload);  // MayFire saw that one is free.
  queue_.MarkSent(segment, now, posts_reference);
  OnOffered(outgoing);
  ArmSender(now);
  return segment;
}

}  // namespace xtreme::tcp
