// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/scoreboard.h"

#include <algorithm>

namespace xtreme::tcp {

std::optional<wire::SackBlock> FindDsack(std::span<const wire::SackBlock> blocks, Seq ack) {
  if (blocks.empty()) return std::nullopt;
  const Seq left(blocks[0].left);
  const Seq right(blocks[0].right);
  if (left >= right) return std::nullopt;
  const bool acknowledged = right <= ack;
  const bool inside_second =
      blocks.size() > 1 && left >= Seq(blocks[1].left) && right <= Seq(blocks[1].right);
  if (!acknowledged && !inside_second) return std::nullopt;
  return blocks[0];
}

Seq Scoreboard::NewFrom(const wire::SackBlock& block) const {
  for (const wire::SackBlock& known : std::span(known_).first(known_count_)) {
    const bool grew_from = Seq(known.left) <= Seq(block.left) &&
                           Seq(known.right) > Seq(block.left) &&
                           Seq(known.right) <= Seq(block.right);
    if (grew_from) return Seq(known.right);
  }
  return Seq(block.left);
}

// What is new is most often above all that was sacked: so the walk begins there, if it can.
Segment* Scoreboard::FirstEndingAfter(Seq from, const SegmentQueue& queue) {
  Segment* segment = queue.highest_sacked();
  if (segment == nullptr || segment->sequence > from) segment = queue.first();
  while (segment != nullptr && segment->end() <= from) segment = segment->next;
  return segment;
}

// Cuts a long segment where the covered ones of its pieces begin and end; the part that may be
// covered. Not where the block does: a peer that tells of a byte here and there would have each.
Segment* Scoreboard::Cover(Segment* segment, Seq left, Seq right, uint32_t smss,
                           SegmentQueue& queue) {
  if (segment->length <= smss || segment->Has(Segment::kSyn)) return segment;
  const Seq first = segment->sequence, last = first + segment->length;
  const uint32_t before = left > first ? (Distance(first, left) + smss - 1) / smss * smss : 0;
  const Seq begin = first + before;
  const Seq end = right < last ? first + Distance(first, right) / smss * smss : last;
  if (begin >= end) return segment;
  if (begin > first && queue.Split(*segment, before) == nullptr) return segment;
  Segment* const front = end < last ? queue.Split(*segment, Distance(begin, end)) : nullptr;
  return front != nullptr ? front : segment;
}

void Scoreboard::Remember(std::span<const wire::SackBlock> blocks) {
  known_count_ = static_cast<uint32_t>(std::min(blocks.size(), known_.size()));
  std::copy_n(blocks.begin(), known_count_, known_.begin());
}

void Scoreboard::Forget(SegmentQueue& queue) {
  for (Segment* s = queue.first(); s != queue.first_unsent(); s = s->next) queue.ClearSacked(*s);
  known_count_ = 0;
}

}  // namespace xtreme::tcp
