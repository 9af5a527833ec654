// SPDX-License-Identifier: Apache-2.0
//
// Scoreboard: takes the SACK blocks of an acknowledgement into a SegmentQueue. RFC 2018 section 5,
// RFC 2883, RFC 6675 section 4 (Update).
//
// The invariant: a segment is marked sacked only when blocks that arrived cover all of it; a block
// that names bytes which are not outstanding marks nothing and is counted. A block that grew since
// the last acknowledgement costs what it grew by, if it is one of the first two. Threads: the
// queue's.
#ifndef XTREME_STACK_TCP_SCOREBOARD_H_
#define XTREME_STACK_TCP_SCOREBOARD_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "stack/tcp/segment_queue.h"
#include "stack/tcp/sequence.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

// A D-SACK (RFC 2883 section 4): the first block, when the acknowledgement covers it or the second
// block does.
std::optional<wire::SackBlock> FindDsack(std::span<const wire::SackBlock> blocks, Seq ack);

class Scoreboard {
 public:
  struct Outcome {
    uint32_t newly_sacked = 0;  // bytes
    std::optional<wire::SackBlock> dsack;
    uint32_t invalid_blocks = 0;  // empty, turned round, or of what is not outstanding
  };

  // `blocks` came with an acknowledgement of `ack`, which the queue knows already (Acknowledge came
  // first). Calls `sacked(const Segment&)` for each segment before it is marked. A segment longer
  // than `smss` left in pieces of that many bytes: where only some of these are covered, it is
  // split at the first's beginning and the last's end.
  template <typename Sacked>
  Outcome Process(std::span<const wire::SackBlock> blocks, Seq ack, uint32_t smss,
                  SegmentQueue& queue, Sacked&& sacked) {
    Outcome outcome{.dsack = FindDsack(blocks, ack)};
    // Nothing that was told stands any more; the same numbers, later, are of other bytes.
    if (queue.flight().sacked == 0) known_count_ = 0;
    if (outcome.dsack) blocks = blocks.subspan(1);
    for (const wire::SackBlock& block : blocks) {
      const Seq left = Later(Seq(block.left), queue.una());
      const Seq right(block.right);
      if (Seq(block.left) >= right || right > queue.nxt() || right <= ack) {
        ++outcome.invalid_blocks;
        continue;
      }
      if (right <= left) continue;  // an old acknowledgement: it is all acknowledged meanwhile
      const Seq from = NewFrom(block);
      for (Segment* s = FirstEndingAfter(from, queue); IsSentBefore(s, right, queue); s = s->next) {
        s = Cover(s, left, right, smss, queue);
        if (s->Has(Segment::kSacked) || s->sequence < left || s->end() > right) continue;
        sacked(static_cast<const Segment&>(*s));
        queue.MarkSacked(*s);
        outcome.newly_sacked += s->SequenceLength();
      }
    }
    Remember(outcome.invalid_blocks == 0 ? blocks : blocks.first(0));
    return outcome;
  }

  // Whether the peer took back what it had sacked: the segment at SND.UNA is sacked and yet not
  // acknowledged. RFC 2018 section 8.
  static bool HasReneged(const SegmentQueue& queue) {
    return !queue.all_acknowledged() && queue.first()->Has(Segment::kSacked);
  }

  // Forgets all that was sacked, as a sender does that times out on a peer that reneged.
  void Forget(SegmentQueue& queue);

 private:
  static bool IsSentBefore(const Segment* segment, Seq right, const SegmentQueue& queue) {
    return segment != nullptr && segment != queue.first_unsent() && segment->sequence < right;
  }
  // Where `block` begins to say more than the last acknowledgement did.
  Seq NewFrom(const wire::SackBlock& block) const;
  static Segment* FirstEndingAfter(Seq from, const SegmentQueue& queue);
  static Segment* Cover(Segment* segment, Seq left, Seq right, uint32_t smss, SegmentQueue& queue);
  void Remember(std::span<const wire::SackBlock> blocks);

  // The first blocks of the last acknowledgement: the ones that grow.
  std::array<wire::SackBlock, 2> known_{};
  uint32_t known_count_ = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SCOREBOARD_H_
