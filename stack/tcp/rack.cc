// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rack.h"

namespace xtreme::tcp {
namespace {

constexpr uint32_t kDupThresh = 3;      // RFC 5681 section 3.2
constexpr uint8_t kPersistRounds = 16;  // recoveries without D-SACK until the window is small again

}  // namespace

void MinRtt::Sample(base::Nanoseconds rtt, base::Nanoseconds now) {
  const auto sample = static_cast<uint32_t>(std::clamp<int64_t>(rtt.count(), 0, kNone - 1));
  const auto window = static_cast<uint32_t>(now / kWindow);
  if (window != window_) {
    // What is two windows old is forgotten whole.
    previous_ = window - window_ == 1 ? current_ : kNone;
    current_ = sample;
    window_ = window;
    return;
  }
  current_ = std::min(current_, sample);
}

std::optional<base::Nanoseconds> Rack::OnDelivered(const Segment& segment, const AckTime& ack) {
  const base::Nanoseconds rtt = ack.now - segment.sent_at;
  const bool again = segment.WasRetransmitted();
  bool told_apart = !again;
  if (again) {
    // The first copy may have been the one that arrived: section 6.2 step 2.
    const bool echoes_older =
        ack.echo && IsOlderTimestamp(*ack.echo, ack.clock.At(segment.sent_at));
    const bool too_soon = min_rtt_.value() != base::kNever && rtt < min_rtt_.value();
    if (echoes_older || too_soon) return std::nullopt;
    // Copies of the same tick cannot be told apart.
    told_apart = ack.echo.has_value() && rtt > ack.clock.tick;
  } else {
    min_rtt_.Sample(rtt, ack.now);
  }
  const bool latest = !any_delivered_ || segment.sent_at > sent_at_ ||
                      (segment.sent_at == sent_at_ && segment.end() > end_);
  if (latest) {
    sent_at_ = segment.sent_at;
    end_ = segment.end();
    rtt_ = rtt;
  }
  // Step 3.
  if (!any_delivered_ || segment.end() > fack_) {
    fack_ = segment.end();
  } else if (segment.end() < fack_ && !again) {
    reordering_seen_ = true;
  }
  any_delivered_ = true;
  if (!told_apart) return std::nullopt;
  return rtt;
}

void Rack::OnAck(bool dsack, Seq una, Seq nxt) {
  if (in_dsack_round_ && una >= dsack_round_) in_dsack_round_ = false;
  if (!dsack || in_dsack_round_) return;
  in_dsack_round_ = true;
  dsack_round_ = nxt;
  if (multiplier_ < UINT8_MAX) ++multiplier_;
  persist_ = kPersistRounds;
}

void Rack::OnRecoveryEnd() {
  if (persist_ > 0) --persist_;
  if (persist_ == 0) multiplier_ = 1;
}

base::Nanoseconds Rack::ReorderingWindow(const SegmentQueue& queue, const Context& context) const {
  const bool enough_sacked = queue.flight().sacked_segments >= kDupThresh;
  if (!reordering_seen_ && (context.in_recovery || enough_sacked)) return base::Nanoseconds(0);
  if (min_rtt_.value() == base::kNever) return base::Nanoseconds(0);
  return base::Earlier(min_rtt_.value() * multiplier_ / 4, context.srtt);
}

// RACK_sent_after(RACK.xmit_ts, RACK.end_seq, Segment.xmit_ts, Segment.end_seq).
bool Rack::IsSentBeforeDelivered(const Segment& segment) const {
  return segment.sent_at < sent_at_ || (segment.sent_at == sent_at_ && segment.end() < end_);
}

base::Nanoseconds Rack::DetectLosses(SegmentQueue& queue, const Context& context) {
  if (!any_delivered_) return base::kNever;
  const base::Nanoseconds allowed = rtt_ + ReorderingWindow(queue, context);
  base::Nanoseconds latest = base::kNever;
  for (Segment* s = queue.first(); s != queue.first_unsent(); s = s->next) {
    if (!IsSentBeforeDelivered(*s)) {
      // First copies leave in order, and a later copy after them: none beyond was sent before.
      if (!s->WasRetransmitted()) break;
      continue;
    }
    const bool known =
        s->Has(Segment::kSacked) || (s->Has(Segment::kLost) && !s->Has(Segment::kRetransmitted));
    if (known) continue;
    const base::Nanoseconds due = s->sent_at + allowed;
    if (due <= context.now) {
      queue.MarkLost(*s);
    } else {
      latest = latest == base::kNever ? due : base::Later(latest, due);
    }
  }
  return latest;
}

void Rack::MarkLossesOnTimeout(SegmentQueue& queue, const Context& context) {
  const base::Nanoseconds allowed = rtt_ + ReorderingWindow(queue, context);
  for (Segment* s = queue.first(); s != queue.first_unsent(); s = s->next) {
    const bool known =
        s->Has(Segment::kSacked) || (s->Has(Segment::kLost) && !s->Has(Segment::kRetransmitted));
    if (known) continue;
    if (s == queue.first() || s->sent_at + allowed <= context.now) queue.MarkLost(*s);
  }
}

}  // namespace xtreme::tcp
