// SPDX-License-Identifier: Apache-2.0
//
// What an acknowledgement means for what was sent: the window, what arrived, what was lost. RFC
// 9293 section 3.10.7.4 (fifth check), RFC 5681, with SACK RFC 8985 and RFC 9937, without it RFC
// 6582.

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {
namespace {

// Whether `ack` acknowledges a segment that is all there is, was sent once and never found lost.
bool IsAllOnce(const SegmentQueue& queue, Seq ack) {
  const Segment* const only = queue.Only();
  const Flight& flight = queue.flight();
  return only != nullptr && ack == queue.end() && only->transmissions == 1 &&
         (flight.sacked | flight.lost | flight.retransmitted) == 0;
}

}  // namespace

void Pcb::ProcessAck(const wire::TcpSegment& segment, base::Nanoseconds now) {
  const uint32_t window_before = snd_wnd_;
  UpdateSendWindow(segment);
  // Of what arrived long ago there is nothing more to learn, but that it arrived twice.
  const bool selects = Has(kSack) && segment.options.sack_count != 0;
  if (queue_.all_acknowledged() && !selects) return;
  // As of most SYNs and FINs: then nothing is to be repaired, nor was.
  const bool quiet = !selects && !InRecovery() && !tail_probe_.outstanding();
  if (quiet && IsAllOnce(queue_, Seq(segment.acknowledgement))) {
    const Seq ack(segment.acknowledgement);
    Progress progress{.acked = Distance(queue_.una(), ack),
                      .outstanding_before = queue_.flight().outstanding};
    TakeSeveral(ack, &progress, now);
    return OnOursAcknowledged(now);
  }
  Progress progress = TakeAcknowledged(segment, now);
  progress.duplicate = Seq(segment.acknowledgement) == queue_.una() && progress.acked == 0 &&
                       progress.outstanding_before != 0 && segment.SequenceLength() == 0 &&
                       snd_wnd_ == window_before;
  if (progress.acked != 0) {
    progress_at_ = rto_base_ = now;
    retries_ = 0;
    Clear(kSmallOverride);
  }
  if (progress.rtt) rtt_.Sample(*progress.rtt, ExpectedSamples());
  const bool arrived_twice =
      progress.dsack && spurious_.OnDsack(*progress.dsack, queue_.una() - progress.acked);
  if (progress.first_copy || arrived_twice) TakeBackReduction();
  if (Has(kSack)) {
    RecoverBySack(progress, now);
  } else {
    RecoverByDuplicates(progress, now);
  }
  if (progress.acked != 0 && queue_.empty()) OnOursAcknowledged(now);
  if (progress.acked == 0 && window_before == 0 && snd_wnd_ != 0) OnWindowOpened(now);
}

// What was sent again into a closed window was not taken, and backed off for that alone: of the
// path, as after probes, nothing is known.
void Pcb::OnWindowOpened(base::Nanoseconds now) {
  const bool asked = Has(kTimeoutRecovery) && rtt_.backoff() != 0 && !queue_.all_acknowledged();
  if (!asked || queue_.first()->Has(Segment::kSacked)) return;
  progress_at_ = rto_base_ = now;
  rtt_.ClearBackOff();
  queue_.MarkLost(*queue_.first());
  Set(kSendOne);
}

Pcb::Progress Pcb::TakeAcknowledged(const wire::TcpSegment& segment, base::Nanoseconds now) {
  const Seq ack(segment.acknowledgement);
  Progress progress{.outstanding_before = queue_.flight().outstanding};
  Rack::AckTime time{.now = now, .echo = std::nullopt, .clock = options_->timestamp_clock};
  if (Has(kTimestamps) && segment.options.timestamps) {
    time.echo = segment.options.timestamps->echo;
  }
  bool filled_hole = false;
  const auto delivered = [&](const Segment& s) {
    if (s.Has(Segment::kSacked)) return;
    const auto rtt = rack_.OnDelivered(s, time);
    const bool again = s.WasRetransmitted();
    // What arrived behind a hole was acknowledged when the hole was filled: it waited for the other
    // copy, and its time says nothing of the path (RFC 6298 section 3).
    if (again && !filled_hole) progress.rtt.reset();
    filled_hole |= again;
    if (again != filled_hole) return;
    if (rtt && (!progress.rtt || *progress.rtt < *rtt)) progress.rtt = rtt;
  };
  if (ack > queue_.una()) {
    progress.acked = Distance(queue_.una(), ack);
    progress.sacked_before = queue_.flight().sacked;
    queue_.Acknowledge(ack, [&](const Segment& s) {
      delivered(s);
      if (s.WasRetransmitted() && time.echo) {
        progress.first_copy |= spurious_.IsOfFirstCopy(s, *time.echo);
      }
      if (s.Has(Segment::kWantDone) && s.posted == 0) {
        context_->sink->OnDone(*this, s.cookie, /*cancelled=*/false);
      }
    });
    progress.sacked_before -= queue_.flight().sacked;
  }
  if (Has(kSack) && segment.options.sack_count != 0) {
    const Scoreboard::Outcome outcome =
        scoreboard_.Process(segment.options.sack(), ack, smss_, queue_, delivered);
    context_->counters.invalid_sack += outcome.invalid_blocks;
    progress.newly_sacked = outcome.newly_sacked;
    progress.dsack = outcome.dsack;
    progress.has_sack = segment.options.sack_count > (outcome.dsack ? 1 : 0);
  }
  // How long it took is what the time-out has to learn (RFC 4015 section 3); unless the second copy
  // is answered, the acknowledgement of the first being lost.
  if (progress.first_copy && Has(kTimeoutRecovery) && Has(kSack) && !progress.dsack) {
    progress.rtt = time.clock.Since(*time.echo, now);
  }
  return progress;
}

// RFC 8985 section 6.2, RFC 9937 section 6.
void Pcb::RecoverBySack(const Progress& progress, base::Nanoseconds now) {
  if (progress.outstanding_before == 0) return;
  rack_.OnAck(progress.dsack.has_value(), queue_.una(), queue_.nxt());
  const uint32_t lost_before = queue_.flight().lost;
  reorder_deadline_ = rack_.DetectLosses(queue_, RackContext(now));
  const bool probe_repaired = tail_probe_.OnAck({.ack = queue_.una(),
                                                 .dsack = progress.dsack,
                                                 .has_sack = progress.has_sack,
                                                 .advances = progress.acked != 0});
  if (InRecovery() && queue_.una() >= recover_) {
    if (Has(kFastRecovery)) congestion_.EndRecovery();
    Clear(kFastRecovery | kTimeoutRecovery);
    rack_.OnRecoveryEnd();
  }
  if (probe_repaired && !InRecovery()) {
    spurious_.End();
    congestion_.OnLoss({.flight = progress.outstanding_before, .now = now});
    congestion_.EndRecovery();
  }
  if (queue_.flight().lost != 0 && !InRecovery()) EnterFastRecovery(progress, now);
  if (!Has(kFastRecovery)) return GrowWindow(progress, now);
  ReduceWindow(progress, progress.acked != 0 && queue_.flight().lost <= lost_before);
}

// RFC 9937 section 6. `safe`: as in ProportionalRateReduction.
void Pcb::ReduceWindow(const Progress& progress, bool safe) {
  const uint32_t acked = progress.acked - progress.sacked_before;
  congestion_.SetDuringRecovery(reduction_.OnAck({.delivered = acked + progress.newly_sacked,
                                                  .in_flight = queue_.flight().Pipe(),
                                                  .ssthresh = congestion_.ssthresh(),
                                                  .smss = smss_,
                                                  .safe = safe}));
}

void Pcb::EnterFastRecovery(const Progress& progress, base::Nanoseconds now) {
  ++context_->counters.fast_recoveries;
  Set(kFastRecovery);
  recover_ = queue_.nxt();
  JudgeReduction();
  tail_probe_.Cancel();
  const Flight& flight = queue_.flight();
  congestion_.OnLoss({.flight = flight.outstanding + progress.acked, .now = now});
  reduction_.Begin(flight.outstanding, flight.sacked, progress.newly_sacked, progress.acked);
}

// RFC 6582 section 3.2, for a peer without SACK.
void Pcb::RecoverByDuplicates(const Progress& progress, base::Nanoseconds now) {
  if (progress.acked == 0 && !progress.duplicate) return;
  const auto verdict = progress.acked != 0 ? new_reno_.OnNewAck(queue_.una())
                                           : new_reno_.OnDuplicateAck(queue_.una(), queue_.nxt());
  if (Has(kTimeoutRecovery) && queue_.una() >= recover_) Clear(kTimeoutRecovery);
  switch (verdict.action) {
    case NewRenoRecovery::Action::kRecovered:
      Clear(kFastRecovery);
      congestion_.SetDuringRecovery(
          NewRenoRecovery::WindowAtEnd(congestion_.ssthresh(), queue_.flight().outstanding, smss_));
      return;
    case NewRenoRecovery::Action::kRetransmit: {
      if (verdict.entered) {
        ++context_->counters.fast_recoveries;
        Set(kFastRecovery);
        JudgeReduction();
        congestion_.OnLoss({.flight = queue_.flight().outstanding, .now = now});
      }
      Segment* const first = CutTo(*queue_.first(), smss_);
      queue_.MarkLost(first != nullptr ? *first : *queue_.first());
      Set(kSendOne);  // What is in flight may be more than the window is now.
      congestion_.SetDuringRecovery(
          verdict.entered ? NewRenoRecovery::WindowAtEntry(congestion_.ssthresh(), smss_)
                          : NewRenoRecovery::Deflated(congestion_.cwnd(), progress.acked, smss_));
      return;
    }
    case NewRenoRecovery::Action::kSendNew:
      if (Has(kFastRecovery)) {
        congestion_.SetDuringRecovery(NewRenoRecovery::Inflated(congestion_.cwnd(), smss_));
      }
      return;
    case NewRenoRecovery::Action::kNothing:
      return GrowWindow(progress, now);
  }
}

// The window is about to be reduced: whether rightly, acknowledgements will tell.
void Pcb::JudgeReduction() {
  spurious_.Begin(queue_.una(), queue_.nxt());
  const Segment* const probed = tail_probe_.outstanding() ? queue_.last_sent() : nullptr;
  if (probed == nullptr || !probed->WasRetransmitted()) return;
  spurious_.OnRetransmit(*probed, options_->timestamp_clock.At(probed->sent_at), queue_.nxt());
}

// Nothing had been lost. What was not sent again yet is under way, and the window is what it was:
// RFC 4015 section 3.
void Pcb::TakeBackReduction() {
  ++context_->counters.taken_back;
  spurious_.End();
  for (Segment* s = queue_.first(); s != queue_.first_unsent(); s = s->next) queue_.ClearLost(*s);
  Clear(kFastRecovery | kTimeoutRecovery | kSendOne);
  new_reno_.Abandon();
  congestion_.OnSpuriousLoss(queue_.flight().Pipe());
}

void Pcb::GrowWindow(const Progress& progress, base::Nanoseconds now) {
  if (progress.acked == 0) return;
  congestion_.OnAck({.acked = progress.acked,
                     .now = now,
                     .srtt = rtt_.srtt(),
                     .rtt = progress.rtt.value_or(base::Nanoseconds(-1)),
                     .una = queue_.una(),
                     .nxt = queue_.nxt(),
                     .window_limited = IsWindowLimited(progress.outstanding_before)});
}

// RFC 9293 section 3.10.7.4, fifth check: what the acknowledgement of our FIN ends.
void Pcb::OnOursAcknowledged(base::Nanoseconds now) {
  switch (state_) {
    case State::kFinWait1:
      state_ = State::kFinWait2;
      return Has(kReceiveClosed) ? AwaitFinAlone(now) : ArmIdle(now);
    case State::kClosing:
      return EnterTimeWait(now);
    case State::kLastAck:
      return Terminate(0);
    default:
      return;
  }
}

// How many samples a round trip gives: RFC 7323 appendix G.
uint32_t Pcb::ExpectedSamples() const {
  return std::max(queue_.flight().outstanding / (2u * smss_), 1u);
}

}  // namespace xtreme::tcp
