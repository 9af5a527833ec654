// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rack.h"

namespace xtreme::tcp {
namespace {

constexpr uint32_t kDupThresh = 3;      // RFC 5681 section 3.2
constexpr uint8_t kPersistRounds = 16;  // recoveries without D-SACK until the window is small again

}  // namespace

// The first copy may have been the one that arrived: section 6.2 step 2.
std::optional<base::Nanoseconds> Rack::OnRetransmissionDelivered(const Segment& segment,
                                                                 const AckTime& ack) {
  const base::Nanoseconds rtt = ack.now - segment.sent_at;
  const bool echoes_older = ack.echo && IsOlderTimestamp(*ack.echo, ack.clock.At(segment.sent_at));
  const bool too_soon = min_rtt_.value() != base::kNever && rtt < min_rtt_.value();
  if (echoes_older || too_soon) return std::nullopt;
  NoteLatest(segment.sent_at, segment.end(), rtt);
  fack_ = Later(fack_, segment.end());
  // Copies of the same tick cannot be told apart.
  if (!ack.echo.has_value() || rtt <= TimestampClock::kTick) return std::nullopt;
  return rtt;
}

void Rack::BeginDsackRound(Seq nxt) {
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

base::Nanoseconds Rack::JudgeOutstanding(SegmentQueue& queue, const Context& context) {
  if (!MaySuspect(*queue.first())) return base::kNever;
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
