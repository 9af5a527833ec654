// SPDX-License-Identifier: Apache-2.0
//
// A segment arrives: RFC 9293 section 3.10.7, one function a step, with the checks of RFC 5961
// (blind attacks) and RFC 7323 (timestamps) where these say that they stand.

#include <cerrno>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/chain.h"
#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {
namespace {

// RFC 7323 section 5.5: a timestamp that is older than this says nothing about order.
constexpr base::Nanoseconds kTimestampLife = base::Seconds(24 * 24 * 3600);

Seq SequenceOf(const wire::TcpSegment& segment) { return Seq(segment.sequence); }

}  // namespace

void Pcb::Arrive(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp,
                 base::Nanoseconds now) {
  ++context_->counters.segments_in;
  if (plain_ != 0 && !context_->short_of_buffers &&
      ArriveAsExpected(segment, payload, stamp, now)) [[likely]] {
    return;
  }
  bool taken = false;
  if (state_ == State::kSynSent) {
    ArriveInSynSent(segment, now);
  } else if (state_ != State::kClosed && CheckTimestamp(segment, now) &&
             CheckSequence(segment, now) && CheckReset(segment, now) && CheckSyn(segment, now) &&
             CheckAck(segment, now)) {
    CheckUrgent(segment);
    // What comes with a SYN begins a number later, and comes again.
    if (!segment.Has(wire::kTcpSyn)) {
      taken = ProcessText(segment, payload, stamp, now);
      ProcessFin(segment, now);
    }
  }
  if (!taken) packet::BufferPool::ReleaseChain(payload);
  Output(now);
}

// --- 3.10.7.3: SYN-SENT ---

void Pcb::ArriveInSynSent(const wire::TcpSegment& segment, base::Nanoseconds now) {
  const bool has_ack = segment.Has(wire::kTcpAck);
  const Seq ack(segment.acknowledgement);
  // First: the acknowledgement. Ours is one number, the SYN's.
  if (has_ack && (ack <= queue_.una() || ack > queue_.nxt())) {
    ++context_->counters.unacceptable;
    if (!segment.Has(wire::kTcpRst)) EmitControl(wire::kTcpRst, ack, now);
    return;
  }
  // Second: RST. Without an acceptable acknowledgement it may be anybody's.
  if (segment.Has(wire::kTcpRst)) {
    if (!has_ack) {
      ++context_->counters.unacceptable;
      return;
    }
    ++context_->counters.resets_in;
    return Terminate(ECONNREFUSED);
  }
  // Third, security: not implemented. Fourth: SYN.
  if (!segment.Has(wire::kTcpSyn)) {
    ++context_->counters.without_syn;
    return;
  }
  AgreeOn(segment, now);
  heard_at_ = now;
  if (!has_ack) {
    // Both opened at once: our SYN again, now with an acknowledgement.
    state_ = State::kSynReceived;
    SendSegment(*queue_.first(), now);
    return;
  }
  BecomeEstablished(segment, now);
  Set(kAckNow);
}

// What both SYNs offered is in use from now on. The window of a SYN is never scaled.
void Pcb::AgreeOn(const wire::TcpSegment& segment, base::Nanoseconds now) {
  const wire::TcpOptions& options = segment.options;
  rcv_nxt_ = last_ack_sent_ = credited_ = SequenceOf(segment) + 1;
  rcv_edge_ = rcv_nxt_ + std::min(options_->receive_window, uint32_t{UINT16_MAX});
  snd_wl1_ = SequenceOf(segment);
  snd_wl2_ = queue_.una();
  snd_wnd_ = max_snd_wnd_ = segment.window;
  if (options.window_scale) {
    Set(kScaling);
    snd_scale_ = std::min(*options.window_scale, wire::kTcpMaxWindowScale);
  } else {
    rcv_scale_ = 0;
  }
  if (options_->sack && options.sack_permitted) Set(kSack);
  if (options_->timestamps && options.timestamps) {
    Set(kTimestamps);
    ts_recent_ = options.timestamps->value;
    ts_recent_at_ = now;
  }
  SetPeerMss(options.mss.value_or(kDefaultMss));
  NoteLeastWait();
}

// By a segment that acknowledges our SYN.
void Pcb::BecomeEstablished(const wire::TcpSegment& segment, base::Nanoseconds now) {
  const uint8_t scale = segment.Has(wire::kTcpSyn) ? 0 : snd_scale_;
  snd_wnd_ = uint32_t{segment.window} << scale;
  max_snd_wnd_ = std::max(max_snd_wnd_, snd_wnd_);
  snd_wl1_ = SequenceOf(segment);
  snd_wl2_ = Seq(segment.acknowledgement);
  const bool lost_syn = retries_ != 0;
  const base::Nanoseconds first_sent = progress_at_;
  state_ = Has(kFinQueued) ? State::kFinWait1 : State::kEstablished;
  ArmIdle(now);
  Raise(kEstablished);
  ProcessAck(segment, now);
  if (!lost_syn) return;
  std::optional<base::Nanoseconds> rtt;
  if (Has(kTimestamps) && segment.options.timestamps) {
    const uint32_t echo = segment.options.timestamps->echo;
    rtt = options_->timestamp_clock.RoundTrip(echo, first_sent, now);
  }
  // Last: that acknowledgement opens no window (RFC 5681 section 3.1).
  StartAfterLostSyn(rtt);
}

// The timer of our SYN, or SYN-ACK, expired. RFC 6298 section 5.7, RFC 5681 section 3.1.
void Pcb::StartAfterLostSyn(std::optional<base::Nanoseconds> rtt) {
  rtt_.SynTimedOut(rtt);
  congestion_.StartAfterLostSyn();
}

// --- 3.10.7.4: all other states ---

// Before the first check: protection against wrapped sequence numbers. RFC 7323 section 5.3, R1.
[[gnu::always_inline]] inline bool Pcb::CheckTimestamp(const wire::TcpSegment& segment,
                                                       base::Nanoseconds now) {
  if (!Has(kTimestamps) || segment.Has(wire::kTcpRst)) return true;
  if (!segment.options.timestamps) {
    ++context_->counters.old_timestamp;  // section 3.2: dropped without an answer
    // But of a SYN there never is one agreed on: who lost the connection, and offers none now, is
    // to learn that this end still has it (RFC 5961 section 4.2).
    if (segment.Has(wire::kTcpSyn)) ChallengeAck(now);
    return false;
  }
  if (!IsOlderTimestamp(segment.options.timestamps->value, ts_recent_)) [[likely]] return true;
  if (now - ts_recent_at_ > kTimestampLife) return true;
  ++context_->counters.old_timestamp;
  if (segment.SequenceLength() != 0) {
    duplicate_ = DuplicateBefore(SequenceOf(segment),
                                 SequenceOf(segment) + segment.SequenceLength(), rcv_nxt_);
    Set(kAckNow);
  }
  return false;
}

// First: the sequence number.
[[gnu::always_inline]] inline bool Pcb::CheckSequence(const wire::TcpSegment& segment,
                                                      base::Nanoseconds now) {
  const Seq sequence = SequenceOf(segment);
  const uint32_t length = segment.SequenceLength();
  // FIN alone takes no room: the window may be closed.
  const bool is_end = segment.Has(wire::kTcpFin) && length == 1 && sequence == rcv_nxt_;
  if (is_end || IsAcceptable(sequence, length, rcv_nxt_, Distance(rcv_nxt_, rcv_edge_))) {
    heard_at_ = now;
    probes_ = {};
    return true;
  }
  if (IsOpeningAnswer(segment)) return true;
  ++context_->counters.unacceptable;
  if (segment.Has(wire::kTcpRst)) return false;
  heard_at_ = now;
  probes_ = {};
  if (IsProbe(segment)) {
    Set(kAckNow);
    return false;
  }
  if (length == 0 || segment.Has(wire::kTcpSyn)) {
    ChallengeAck(now);  // limited, so that two ends that disagree do not answer each other for ever
    return false;
  }
  duplicate_ = DuplicateBefore(sequence, sequence + length, rcv_nxt_);
  Set(kAckNow);
  // A closed window: what came with the byte too many still counts.
  if (sequence == rcv_nxt_ && CheckAck(segment, now)) CheckUrgent(segment);
  return false;
}

// A keepalive, or a probe of a closed window, of a peer that knows what was sent: not limited.
bool Pcb::IsProbe(const wire::TcpSegment& segment) const {
  if (segment.flags != wire::kTcpAck || segment.payload_bytes != 0) return false;
  const AckPlace place =
      PlaceAck(Seq(segment.acknowledgement), queue_.una(), queue_.nxt(), max_snd_wnd_);
  const bool believed = place == AckPlace::kDuplicate || place == AckPlace::kNew;
  return SequenceOf(segment) + 1 == rcv_nxt_ && believed;
}

// Both ends opened at once, and the peer's SYN comes again with the acknowledgement of ours.
bool Pcb::IsOpeningAnswer(const wire::TcpSegment& segment) const {
  return state_ == State::kSynReceived && segment.Has(wire::kTcpSyn) &&
         segment.Has(wire::kTcpAck) && SequenceOf(segment) + 1 == rcv_nxt_;
}

// Second: RST. RFC 5961 section 3.2: only at the very number that is expected.
[[gnu::always_inline]] inline bool Pcb::CheckReset(const wire::TcpSegment& segment,
                                                   base::Nanoseconds now) {
  if (!segment.Has(wire::kTcpRst)) [[likely]] return true;
  if (SequenceOf(segment) != rcv_nxt_) {
    ChallengeAck(now);
    return false;
  }
  ++context_->counters.resets_in;
  switch (state_) {
    case State::kSynReceived: Terminate(ECONNREFUSED); break;
    case State::kClosing:
    case State::kLastAck: Terminate(queue_.first()->length != 0 ? ECONNRESET : 0); break;
    default: Terminate(ECONNRESET);
  }
  return false;
}

// Fourth (third, security, is not implemented): SYN. RFC 5961 section 4.2.
[[gnu::always_inline]] inline bool Pcb::CheckSyn(const wire::TcpSegment& segment,
                                                 base::Nanoseconds now) {
  if (!segment.Has(wire::kTcpSyn) || IsOpeningAnswer(segment)) [[likely]] return true;
  ChallengeAck(now);
  return false;
}

// Fifth: ACK.
bool Pcb::CheckAck(const wire::TcpSegment& segment, base::Nanoseconds now) {
  if (!segment.Has(wire::kTcpAck)) {
    ++context_->counters.without_ack;
    return false;
  }
  const Seq ack(segment.acknowledgement);
  const AckPlace place = PlaceAck(ack, queue_.una(), queue_.nxt(), max_snd_wnd_);
  const bool opens = state_ == State::kSynReceived;
  if (opens && place != AckPlace::kNew) {
    EmitControl(wire::kTcpRst, ack, now);
    return false;
  }
  if (place == AckPlace::kUnsent || place == AckPlace::kTooOld) {
    ChallengeAck(now);  // RFC 5961 section 5.2
    return false;
  }
  // RFC 7323 section 4.3 (2): only of a segment that an acknowledgement was waited for. And not
  // before it was believed, or a blind attacker could make all others old.
  if (Has(kTimestamps) && segment.options.timestamps && SequenceOf(segment) <= last_ack_sent_) {
    ts_recent_ = segment.options.timestamps->value;
    ts_recent_at_ = now;
  }
  if (opens) {
    BecomeEstablished(segment, now);
  } else {
    ProcessAck(segment, now);
  }
  return state_ != State::kClosed;
}

// Sixth: URG. The data stays in line, as RFC 6093 asks; the pointer says nothing.
[[gnu::always_inline]] inline void Pcb::CheckUrgent(const wire::TcpSegment& segment) {
  context_->counters.urgent += segment.Has(wire::kTcpUrg);
}

// Seventh: the text. Returns whether it took `payload`.
bool Pcb::ProcessText(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp,
                      base::Nanoseconds now) {
  if (segment.payload_bytes == 0) return false;
  const bool receiving = state_ == State::kEstablished || state_ == State::kFinWait1 ||
                         state_ == State::kFinWait2;
  if (!receiving) {
    ++context_->counters.after_fin;
    return false;
  }
  const Seq sequence = SequenceOf(segment);
  if (Has(kReceiveClosed)) {
    // What was taken before may come again, with the FIN that follows it.
    if (sequence + segment.payload_bytes <= rcv_nxt_) return false;
    ++context_->counters.after_close;
    Reset(ECONNRESET, now);
    return false;
  }
  if (context_->short_of_buffers) [[unlikely]] {
    ++context_->counters.no_room;
    return false;
  }
  if (sequence > rcv_nxt_) {
    Set(kAckNow);  // RFC 5681 section 4.2: the sender counts them
    if (context_->BuffersLeft() < context_->holes_leave) [[unlikely]] {
      ++context_->counters.no_room;
      return false;
    }
    const auto insertion = reassembler_.Insert({.sequence = sequence,
                                                .length = segment.payload_bytes,
                                                .head = payload,
                                                .stamp = stamp},
                                               rcv_nxt_, Distance(rcv_nxt_, rcv_edge_));
    duplicate_ = insertion.duplicate;
    return true;
  }
  const Seq before = rcv_nxt_;
  const bool had_hole = !reassembler_.empty();
  if (!TakeInOrder(segment, payload, stamp)) {
    ++context_->counters.no_room;
    return true;
  }
  if (had_hole) {
    if (const auto twice = reassembler_.Supersede(before, rcv_nxt_)) duplicate_ = twice;
    DrainReassembler();
    Set(kAckNow);
  }
  ScheduleAck(now);
  return true;
}

// At once, or within the delay: RFC 9293 section 3.8.6.3, RFC 5681 section 4.2.
void Pcb::ScheduleAck(base::Nanoseconds now) {
  const bool second_full = Distance(last_ack_sent_, rcv_nxt_) >= 2u * smss_;
  if (second_full || options_->quick_ack || quick_acks_left_ != 0) {
    quick_acks_left_ -= quick_acks_left_ != 0;
    Set(kAckNow);
  } else if (ack_deadline_ == base::kNever) {
    ack_deadline_ = base::DeadlineAfter(now, options_->delayed_ack);
  }
}

// The bytes of `payload` from RCV.NXT to the edge of the window go to the sink; the rest, and all
// of it when the sink has no room, goes back to the pool.
bool Pcb::TakeInOrder(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp) {
  const Seq sequence = SequenceOf(segment);
  const uint32_t old = Distance(sequence, rcv_nxt_);
  if (old != 0) [[unlikely]] {
    duplicate_ = DuplicateBefore(sequence, sequence + segment.payload_bytes, rcv_nxt_);
    payload = DropFront(payload, old);
    if (payload == nullptr) return true;
  }
  const uint32_t fresh = segment.payload_bytes - old;
  const uint32_t bytes = std::min(fresh, Distance(rcv_nxt_, rcv_edge_));
  if (bytes != fresh) [[unlikely]] ++context_->counters.beyond_window;
  if (bytes == 0) {
    packet::BufferPool::ReleaseChain(payload);
    return true;
  }
  if (bytes != fresh) KeepFront(payload, bytes);
  if (!context_->sink->Deliver(*this, payload, bytes, stamp)) {
    packet::BufferPool::ReleaseChain(payload);
    return false;
  }
  rcv_nxt_ += bytes;
  return true;
}

void Pcb::DrainReassembler() {
  while (const std::optional<Run> run = reassembler_.Take(rcv_nxt_)) {
    if (!context_->sink->Deliver(*this, run->head, run->length, run->stamp)) {
      reassembler_.Insert(*run, rcv_nxt_, Distance(rcv_nxt_, rcv_edge_));
      Raise(kDeliverable);
      return;
    }
    rcv_nxt_ += run->length;
  }
}

void Pcb::Deliver(base::Nanoseconds now) {
  const Seq before = rcv_nxt_;
  DrainReassembler();
  if (rcv_nxt_ == before) return;
  Set(kAckNow);
  TakeFinIfNext(now);
  Output(now);
}

// Eighth: FIN.
[[gnu::always_inline]] inline void Pcb::ProcessFin(const wire::TcpSegment& segment,
                                                   base::Nanoseconds now) {
  if (segment.Has(wire::kTcpFin)) [[unlikely]] {
    Set(kFinSeen);
    fin_at_ = SequenceOf(segment) + segment.payload_bytes;
    if (fin_at_ != rcv_nxt_) Set(kAckNow);
  }
  if (Has(kFinSeen)) [[unlikely]] TakeFinIfNext(now);
}

// The peer's FIN counts when everything before it arrived.
void Pcb::TakeFinIfNext(base::Nanoseconds now) {
  if (!Has(kFinSeen) || Has(kFinReceived) || fin_at_ != rcv_nxt_) return;
  if (state_ == State::kClosed || state_ == State::kSynReceived) return;
  Set(kFinReceived | kAckNow);
  rcv_nxt_ += 1;
  credited_ += 1;  // Nobody owes credit for it.
  rcv_edge_ = Later(rcv_edge_, rcv_nxt_);
  if (!Has(kReceiveClosed)) Raise(kPeerClosed);
  switch (state_) {
    case State::kEstablished: state_ = State::kCloseWait; break;
    case State::kFinWait1: state_ = State::kClosing; break;
    case State::kFinWait2: EnterTimeWait(now); break;
    default: break;
  }
}

// Nothing more is to come from this end but acknowledgements of a FIN that the peer repeats: who
// keeps the connections gives those from a smaller record (ended_in_time_wait()).
void Pcb::EnterTimeWait(base::Nanoseconds now) {
  if (Has(kAckNow)) SendAck(now);
  Set(kTimeWait);
  Terminate(0);
}

// --- Acknowledging ---

void Pcb::ChallengeAck(base::Nanoseconds now) {
  if (!challenges_.Take(now)) {
    ++context_->counters.challenge_acks_withheld;
    return;
  }
  ++context_->counters.challenge_acks;
  Set(kAckNow);
}

}  // namespace xtreme::tcp
