// SPDX-License-Identifier: Apache-2.0
//
// What happens when nothing happens: retransmission (RFC 6298), tail loss probe and reordering (RFC
// 8985), closed windows (RFC 9293 section 3.8.6.1), keepalive (3.8.4), time-outs.

#include <algorithm>
#include <cerrno>

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {
namespace {

// What waits for more leaves after it, as with Linux (tcp(7), TCP_CORK).
constexpr base::Nanoseconds kLongestCork = base::Milliseconds(200);

}  // namespace

void Pcb::OnTimer(base::Nanoseconds now) {
  // Which leaves all as it was.
  if (OnlyAckIsDue(now) && IsPlain(kPlainOut)) [[likely]] {
    SendAck(now);
    if (Has(kAckNow)) [[unlikely]] {
      ack_deadline_ = base::kNever;
      plain_ = Plainness();
    }
    return;
  }
  if (retransmit_deadline_ <= now) OnSenderTimer(now);
  if (ack_deadline_ <= now) {
    ack_deadline_ = base::kNever;
    Set(kAckNow);
  }
  if (state_ != State::kClosed && idle_deadline_ <= now) OnIdleTimer(now);
  Output(now);
}

// --- The sender's timer: one of four at a time ---

// What OutstandingTimer() waits at least for what is sent alone and once, as far as the options
// say: so who sends need not look at each of them.
void Pcb::NoteLeastWait() {
  base::Nanoseconds least = base::Earlier(rtt_.least_rto(), options_->user_timeout);
  if (Has(kSack)) {
    least = base::Earlier(least, TailLossProbe::LeastForOne(options_->peer_delayed_ack));
  }
  rtt_.SetLeastWait(least);
}

void Pcb::ArmSender(base::Nanoseconds now) {
  if (state_ == State::kClosed) return;
  if (queue_.empty()) return SetSender(Timer::kNone, base::kNever);
  if (queue_.all_acknowledged()) return ArmPersist(now);
  if (timer_ == Timer::kPersist) [[unlikely]] {
    // The window opened: what backed off was the asking for it, of which the path knows nothing.
    progress_at_ = now;
    rtt_.ClearBackOff();
  }
  ArmOutstanding();
}

Pcb::SenderTimer Pcb::OutstandingTimer() const {
  const base::Nanoseconds rto = base::DeadlineAfter(rto_base_, rtt_.rto());
  const base::Nanoseconds expiry = Capped(rto);
  if (reorder_deadline_ < expiry) return {Timer::kReorder, reorder_deadline_};
  if (tail_probe_.MayRun(queue_, Has(kSack), InRecovery()) && state_ != State::kSynReceived) {
    const base::Nanoseconds since = base::Later(rto_base_, queue_.last_sent()->sent_at);
    const base::Nanoseconds probe =
        TailLossProbe::Deadline(queue_, {.now = since,
                                         .srtt = rtt_.srtt(),
                                         .max_ack_delay = options_->peer_delayed_ack,
                                         .rto_deadline = rto});
    // One that would come after the time-out takes its place, but not that of giving up.
    if (probe < expiry || expiry == rto) return {Timer::kProbe, probe};
  }
  return {Timer::kRetransmit, expiry};
}

// Nothing is outstanding. What is unsent waits for the peer's window: then it is asked for it, less
// and less often. Or the cork keeps it, for a while.
void Pcb::ArmPersist(base::Nanoseconds now) {
  const bool waits = queue_.first_unsent() != nullptr && !Has(kSinkFull);
  if (!waits) return SetSender(Timer::kNone, base::kNever);
  // Also where the window has just opened, after which the cork alone keeps it.
  const bool corked = KeptByCork();
  const base::Nanoseconds latest = corked ? base::DeadlineAfter(now, kLongestCork) : base::kNever;
  if (timer_ == Timer::kPersist && retransmit_deadline_ <= latest) return;
  if (corked) return SetSender(Timer::kPersist, latest);
  SetSender(Timer::kPersist, Capped(base::DeadlineAfter(now, rtt_.rto())));
}

// Nothing is outstanding, and a last segment that the window has room for waits for more.
bool Pcb::KeptByCork() const {
  const Segment* const first = queue_.first_unsent();
  return IsCorked() && first != nullptr && first->next == nullptr &&
         first->length <= UsableWindow();
}

// No later than the user's time-out, or that of the handshake.
base::Nanoseconds Pcb::Capped(base::Nanoseconds deadline) const {
  const bool opening = state_ == State::kSynSent || state_ == State::kSynReceived;
  const base::Nanoseconds limit = opening ? options_->connect_timeout : options_->user_timeout;
  if (limit == base::kNever) return deadline;
  return base::Earlier(deadline, base::DeadlineAfter(progress_at_, limit));
}

bool Pcb::GaveUp(base::Nanoseconds now) const {
  return Capped(base::kNever) <= now || retries_ >= options_->retransmissions;
}

void Pcb::OnSenderTimer(base::Nanoseconds now) {
  if (timer_ == Timer::kOutstanding) {
    ArmOutstanding();
    if (retransmit_deadline_ > now) return;
  }
  switch (std::exchange(timer_, Timer::kNone)) {
    case Timer::kNone:
    case Timer::kOutstanding: break;
    case Timer::kRetransmit: OnRetransmissionTimeout(now); break;
    case Timer::kProbe: OnProbeTimer(now); break;
    case Timer::kReorder: OnReorderTimer(now); break;
    case Timer::kPersist: OnPersistTimer(now); break;
  }
}

// RFC 6298 section 5.
void Pcb::OnRetransmissionTimeout(base::Nanoseconds now) {
  if (GaveUp(now)) return Terminate(TimeoutStatus());
  ++context_->counters.timeouts;
  // A peer that took its window back and goes on answering is there: RFC 9293 section 3.8.6.1.
  const bool answers = snd_wnd_ == 0 && heard_at_ > rto_base_;
  if (!answers) ++retries_;
  const bool repairing = Has(kTimeoutRecovery) && progress_at_ >= rto_base_;
  rto_base_ = now;
  Set(kSendOne);
  if (state_ == State::kSynSent || state_ == State::kSynReceived) {
    queue_.MarkLost(*queue_.first());
    return rtt_.BackOff();
  }
  // RFC 5681 section 3.1: ssthresh is held while the timer expires for one segment again. One that
  // was sent again as the last expiry's losses were repaired is another's, and what is in flight
  // no more than the window that let it out; and a probe was not for a loss.
  const bool again = InRecovery() && queue_.first()->WasRetransmitted() && !repairing;
  const uint32_t outstanding = queue_.flight().outstanding;
  const uint32_t flight = repairing ? std::min(outstanding, congestion_.cwnd()) : outstanding;
  if (Scoreboard::HasReneged(queue_)) scoreboard_.Forget(queue_);
  MarkAllLost(now);
  JudgeReduction();
  congestion_.OnTimeout({.flight = flight, .now = now}, again);
  rtt_.BackOff();
  Clear(kFastRecovery);
  Set(kTimeoutRecovery);
  recover_ = queue_.nxt();
  new_reno_.OnTimeout(queue_.nxt());
  tail_probe_.Cancel();
  reorder_deadline_ = base::kNever;
}

// What was sent again went nowhere, and backed off for that alone: of the path nothing is known.
// What bounds how long it is tried goes on.
void Pcb::OnLinkUp(base::Nanoseconds now) {
  const bool waits = rtt_.backoff() != 0 && !queue_.all_acknowledged();
  if (state_ == State::kClosed || !waits || queue_.first()->Has(Segment::kSacked)) return;
  rto_base_ = now;
  rtt_.ClearBackOff();
  queue_.MarkLost(*queue_.first());
  Set(kSendOne);
  Output(now);
}

void Pcb::MarkAllLost(base::Nanoseconds now) {
  if (Has(kSack)) return rack_.MarkLossesOnTimeout(queue_, RackContext(now));
  for (Segment* s = queue_.first(); s != queue_.first_unsent(); s = s->next) queue_.MarkLost(*s);
}

Rack::Context Pcb::RackContext(base::Nanoseconds now) const {
  return {.now = now, .srtt = rtt_.srtt(), .in_recovery = InRecovery()};
}

// RFC 8985 section 7.3: new data if the peer takes some, else the last segment again.
void Pcb::OnProbeTimer(base::Nanoseconds now) {
  Segment* segment = queue_.first_unsent();
  if (segment != nullptr && (segment->length == 0 || UsableWindow() == 0)) segment = nullptr;
  const bool again = segment == nullptr;
  segment = again ? LastPiece() : CutTo(*segment, std::min<uint32_t>(UsableWindow(), smss_));
  rto_base_ = now;
  // No segment is free to cut one off: as if the probe were lost, so that the time-out comes.
  if (segment == nullptr) return tail_probe_.OnSent(queue_.nxt(), /*is_retransmission=*/false);
  if (!SendSegment(*segment, now)) return;
  ++context_->counters.tail_probes;
  tail_probe_.OnSent(queue_.nxt(), again);
}

// Of what was sent last as much as one segment carries; null when that takes one and none is free.
Segment* Pcb::LastPiece() {
  Segment* const last = queue_.last_sent();
  if (last == nullptr || last->length <= smss_) return last;
  return queue_.Split(*last, last->length - smss_) != nullptr ? last : nullptr;
}

void Pcb::OnReorderTimer(base::Nanoseconds now) {
  reorder_deadline_ = rack_.DetectLosses(queue_, RackContext(now));
  if (queue_.flight().lost == 0 || InRecovery()) return;
  EnterFastRecovery({}, now);
  ReduceWindow({}, /*safe=*/false);
}

// RFC 9293 section 3.8.6.1. A window that is open but small is used after this while.
void Pcb::OnPersistTimer(base::Nanoseconds now) {
  if (KeptByCork()) {
    progress_at_ = now;  // nobody owed an answer before
    return Set(kSmallOverride);
  }
  if (Capped(base::kNever) <= now || probes_.window >= options_->retransmissions) {
    return Terminate(TimeoutStatus());
  }
  rtt_.BackOff();
  SetSender(Timer::kPersist, Capped(base::DeadlineAfter(now, rtt_.rto())));
  if (UsableWindow() != 0) return Set(kSmallOverride);
  ++probes_.window;
  ++context_->counters.window_probes;
  // A byte that was acknowledged long ago: not acceptable, so it is answered with the window.
  EmitControl(wire::kTcpAck, queue_.una() - 1, now);
}

// --- The idle timer: keepalive, an old path MTU, and the end of a close that nobody answers ---

void Pcb::ArmIdle(base::Nanoseconds now) {
  base::Nanoseconds keepalive = base::kNever;
  if (state_ == State::kEstablished || state_ == State::kCloseWait ||
      state_ == State::kFinWait2) {
    keepalive = base::DeadlineAfter(heard_at_, options_->keepalive_idle);
    if (probes_.idle != 0) keepalive = base::DeadlineAfter(now, options_->keepalive_interval);
  }
  idle_deadline_ = base::Earlier(base::Earlier(keepalive, close_deadline_), path_mtu_deadline_);
}

void Pcb::OnIdleTimer(base::Nanoseconds now) {
  if (path_mtu_deadline_ <= now) ForgetPathMtu();
  if (close_deadline_ <= now) {
    // Everything of ours arrived; the peer's FIN is its own affair.
    if (state_ == State::kFinWait2) return Terminate(0);
    return Reset(ETIMEDOUT, now);
  }
  const bool silent = now >= base::DeadlineAfter(heard_at_, options_->keepalive_idle);
  if (silent && queue_.all_acknowledged()) {
    if (probes_.idle >= options_->keepalive_probes) return Reset(ETIMEDOUT, now);
    ++probes_.idle;
    EmitControl(wire::kTcpAck, queue_.una() - 1, now);
  }
  ArmIdle(now);
  if (!silent || probes_.idle != 0) return;
  // What is not acknowledged asks the peer as it is sent again; its silence is looked at later.
  const base::Nanoseconds later = base::DeadlineAfter(now, options_->keepalive_idle);
  idle_deadline_ = base::Earlier(base::Earlier(later, close_deadline_), path_mtu_deadline_);
}

}  // namespace xtreme::tcp
