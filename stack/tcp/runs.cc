// SPDX-License-Identifier: Apache-2.0
//
// Runs: much that is unsent leaves as one send, which the device cuts into segments. Only what was
// never sent does; a repair, and whatever else is not plain, goes segment by segment (output.cc).
//
// Pieces begin where segments of the queue do, so what is acknowledged selectively is known of
// each: one that holds several pieces is cut then. A run takes half the congestion window at most,
// so that acknowledgements keep coming one after the other.

#include <algorithm>
#include <array>
#include <span>

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

void Pcb::SendRuns(base::Nanoseconds now) {
  while (SendRun(now) && MaySendRuns()) {
  }
}

// False: there is none to be sent now, or no room for it.
bool Pcb::SendRun(base::Nanoseconds now) {
  const uint32_t most = std::min({context_->sink->RunBytes(*this), UsableWindow(),
                                  CongestionRoom(), congestion_.cwnd() / 2});
  std::array<Segment*, Sink::kMaxRun> run;
  size_t count = 0;
  uint32_t bytes = 0;
  for (Segment* next = queue_.first_unsent(); next != nullptr && count < run.size();) {
    const uint32_t length = TakenByRun(*next, most - bytes);
    Segment* const taken = length == 0 ? nullptr : CutTo(*next, length);
    if (taken == nullptr) break;
    run[count++] = taken;
    bytes += length;
    if (length % smss_ != 0) break;
    next = taken->next;
  }
  if (bytes <= smss_) return false;
  Outgoing outgoing{.sequence = run[0]->sequence, .flags = FlagsOf(*run[count - 1]),
                    .segment = run[0]};
  FillHeader(outgoing, now);
  const std::span<Segment* const> whole(run.data(), count);
  if (context_->sink->TransmitRun(*this, outgoing, whole, smss_) == Sink::Taken::kRefused) {
    return false;
  }
  if (queue_.all_acknowledged()) rto_base_ = now;
  OnOffered(outgoing);
  context_->counters.segments_out += (bytes - 1) / smss_;
  ++context_->counters.runs;
  for (Segment* const segment : whole) queue_.MarkSent(*segment, now, /*posts_reference=*/true);
  return true;
}

// How many bytes of an unsent segment a run with so much room takes: all, if nothing is to be told
// of when they leave and it ends nothing; else as many whole pieces as come before its end.
uint32_t Pcb::TakenByRun(const Segment& segment, uint32_t room) const {
  if (segment.length == 0) return 0;
  const bool plain = !segment.Has(Segment::kSyn | Segment::kFin | Segment::kWantWire);
  const bool short_end = segment.length % smss_ != 0;
  if (plain && segment.length <= room && !(short_end && MayWait(segment, segment.length))) {
    return segment.length;
  }
  return std::min(room, segment.length - 1) / smss_ * smss_;
}

}  // namespace xtreme::tcp
