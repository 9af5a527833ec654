// SPDX-License-Identifier: Apache-2.0
//
// What a connection does for every segment that comes or leaves, inlined into its short ways
// (expected.h, fire.h) and its long ones: windows, headers, when an acknowledgement is due, and
// whether the short ways are open.
//
// Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_EVERY_SEGMENT_H_
#define XTREME_STACK_TCP_EVERY_SEGMENT_H_

#include <algorithm>
#include <cstdint>

#include "stack/tcp/pcb.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

inline base::Nanoseconds Pcb::EarliestDeadline() const {
  return base::Earlier(SoonestDeadline(), idle_deadline_);
}

inline bool Pcb::OnlyAckIsDue(base::Nanoseconds now) const {
  return ack_deadline_ <= now && now < base::Earlier(retransmit_deadline_, idle_deadline_);
}

inline void Pcb::ArmOutstanding() {
  const SenderTimer sender = OutstandingTimer();
  SetSender(sender.timer, sender.deadline);
}

// Bits of Plain, of the state as it is. Nothing that the short ways do changes them.
inline uint8_t Pcb::Plainness() const {
  const Flight& flight = queue_.flight();
  const bool in = state_ == State::kEstablished &&
                  !Has(kFinSeen | kFastRecovery | kTimeoutRecovery) &&
                  (flight.sacked | flight.lost | flight.retransmitted) == 0 &&
                  !tail_probe_.outstanding() && reassembler_.empty();
  if (!in) return 0;
  const bool waits = quick_acks_left_ == 0 && !options_->quick_ack &&
                     options_->delayed_ack <= kLongestDelay;
  const uint8_t delays = waits ? kPlainDelays : 0;
  if (Has(kWantsSpace)) return static_cast<uint8_t>(kPlainIn | delays);
  const bool out = !IsCorked() && !Has(kSinkFull | kSendOne) &&
                   queue_.first_unsent() == nullptr && !(Has(kSack) && duplicate_);
  return static_cast<uint8_t>(kPlainIn | kPlainQuiet | (out ? kPlainOut : 0) | delays);
}

// RFC 9293 section 3.10.7.4: not from a segment older than the last that did. Which of two is older
// its acknowledgement says, and only where that is the same its sequence: what fills a hole is sent
// after what was beyond the hole, and as it moves SND.UNA on, a window that did not follow would
// reach farther than the peer offered.
inline void Pcb::UpdateSendWindow(const wire::TcpSegment& segment) {
  const Seq sequence(segment.sequence);
  const Seq ack(segment.acknowledgement);
  if (ack < snd_wl2_ || (ack == snd_wl2_ && sequence < snd_wl1_)) return;
  snd_wnd_ = uint32_t{segment.window} << (segment.Has(wire::kTcpSyn) ? 0 : snd_scale_);
  max_snd_wnd_ = std::max(max_snd_wnd_, snd_wnd_);
  snd_wl1_ = sequence;
  snd_wl2_ = ack;
}

// Whether more waits than a segment, and no loss, no selective acknowledgement and no handshake has
// to be thought of.
inline bool Pcb::MaySendRuns() const {
  const bool bulk = queue_.unsent_bytes() >= 2u * smss_;
  if (!bulk || Has(kFastRecovery | kTimeoutRecovery | kSendOne)) [[likely]] return false;
  const bool opening = state_ == State::kSynSent || state_ == State::kSynReceived;
  const bool selects = Has(kSack) && (duplicate_ || !reassembler_.empty());
  return !opening && !selects && queue_.flight().lost == 0;
}

inline uint32_t Pcb::FreeWindow() const {
  const uint32_t owed = owed_credit();
  return options_->receive_window > owed ? options_->receive_window - owed : 0;
}

// By how much it opens at least when the peer is told for that alone.
inline uint32_t Pcb::WindowStep() const {
  return std::min<uint32_t>(options_->receive_window / 2, 2 * options_->mss);
}

// Whether the window, with credit given up to `credited`, opened by so much that the peer had
// better know at once. Credit moves its right edge; what comes moves its left one alone.
inline bool Pcb::WindowGrewEnough(Seq credited) const {
  const int32_t growth = credited + options_->receive_window - rcv_edge_;
  return growth >= static_cast<int32_t>(WindowStep());
}

inline bool Pcb::CreditQuietly(uint32_t bytes) {
  const Seq credited = credited_ + std::min(bytes, owed_credit());
  if (WindowGrewEnough(credited)) [[unlikely]] return false;
  credited_ = credited;
  return true;
}

// The window field. Its right edge never moves back, and moves on in steps worth a segment: the
// receiver's half of silly window avoidance, RFC 9293 section 3.8.6.2.2. It is offered to the next
// multiple of the scale, but once more stands offered than there is room for, to the last: segments
// shorter than the scale would move it on for ever. What was offered is taken all the same.
[[gnu::always_inline]] inline uint16_t Pcb::WindowToOffer(bool is_syn) const {
  const uint8_t scale = is_syn ? 0 : rcv_scale_;
  const uint32_t offered = Distance(rcv_nxt_, rcv_edge_);
  // No more than the field can say was ever offered.
  uint32_t window = (offered + (1u << scale) - 1) >> scale;
  const uint32_t step = std::min<uint32_t>(options_->receive_window / 2, options_->mss);
  const int32_t room = credited_ + options_->receive_window - rcv_edge_;
  if (static_cast<uint32_t>(room) >= step) [[unlikely]] {
    window = room < 0 ? offered >> scale : std::max(window, FreeWindow() >> scale);
    window = std::min<uint32_t>(window, UINT16_MAX);
  }
  return static_cast<uint16_t>(window);
}

// What a segment says of this end.
[[gnu::always_inline]] inline void Pcb::FillHeader(Outgoing& outgoing,
                                                   base::Nanoseconds now) const {
  const bool is_syn = (outgoing.flags & wire::kTcpSyn) != 0;
  const bool has_ack = (outgoing.flags & wire::kTcpAck) != 0;
  outgoing.window = WindowToOffer(is_syn);
  if (has_ack) outgoing.acknowledgement = rcv_nxt_;
  if (Has(kTimestamps) || (is_syn && options_->timestamps)) {
    outgoing.has_timestamps = true;
    outgoing.timestamps = {options_->timestamp_clock.At(now), has_ack ? ts_recent_ : 0};
  }
}

// In slow start half a window in use is enough: the next round trip doubles it.
inline bool Pcb::IsWindowLimited(uint32_t outstanding_before) const {
  const uint32_t used = outstanding_before << (congestion_.InSlowStart() ? 1 : 0);
  return used + smss_ > congestion_.cwnd();
}

// What ArmSender comes to, of segments that were sent once, where the retransmission timer restarts
// at `now`: mostly they are acknowledged before anybody has to know when it would expire. `one`: a
// single segment is outstanding.
[[gnu::always_inline]] inline void Pcb::Rearm(bool one, base::Nanoseconds now) {
  base::Nanoseconds least = rtt_.least_wait();
  if (!one && Has(kSack)) least = base::Earlier(least, TailLossProbe::LeastForSome(rtt_.srtt()));
  SetSender(Timer::kOutstanding, now + least);
}

// The same where it runs on, and a segment left behind others: of several a probe may be due sooner
// than of one.
inline void Pcb::ArmBehind(base::Nanoseconds now) {
  base::Nanoseconds least = retransmit_deadline_;
  if (Has(kSack)) {
    least = base::Earlier(least, now + TailLossProbe::LeastForSome(rtt_.srtt()));
  }
  SetSender(Timer::kOutstanding, least);
}

// For so long that nothing is known of the path any more: RFC 5681 section 4.1.
[[gnu::always_inline]] inline bool Pcb::WasSilent(base::Nanoseconds now) const {
  const base::Nanoseconds silence = now - progress_at_;
  return silence > rtt_.least_wait() && silence > rtt_.rto();
}

// All that was sent is acknowledged, and now more is.
[[gnu::always_inline]] inline void Pcb::OnSendAfterSilence(base::Nanoseconds now) {
  if (WasSilent(now)) [[unlikely]] congestion_.RestartAfterIdle();
  progress_at_ = now;
}

// A segment left: what it says of this end the peer will know.
[[gnu::always_inline]] inline void Pcb::OnOffered(const Outgoing& outgoing) {
  const bool is_syn = (outgoing.flags & wire::kTcpSyn) != 0;
  const uint8_t scale = is_syn ? 0 : rcv_scale_;
  rcv_edge_ = Later(rcv_edge_, rcv_nxt_ + (uint32_t{outgoing.window} << scale));
  ++context_->counters.segments_out;
  if ((outgoing.flags & wire::kTcpAck) == 0) return;
  last_ack_sent_ = rcv_nxt_;
  Clear(kAckNow);
  ack_deadline_ = base::kNever;
  if (outgoing.options != nullptr) duplicate_.reset();
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_EVERY_SEGMENT_H_
