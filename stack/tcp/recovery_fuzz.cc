// SPDX-License-Identifier: Apache-2.0
//
// Sends, acknowledgements with any SACK blocks, timers and retransmissions, four bytes of input
// each: only what blocks covered is marked, sums are those of the segments, a lost segment is found
// again, and in the end an honest peer gets everything.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

#include "stack/tcp/rack.h"
#include "stack/tcp/scoreboard.h"
#include "stack/tcp/segment_queue.h"
#include "stack/tcp/tail_loss_probe.h"

namespace xtreme::tcp {
namespace {

constexpr uint32_t kSegments = 48;
constexpr uint32_t kSmss = 20;
constexpr Seq kFirst(0xFFFFFE00);
uint8_t memory[64];

void Require(bool holds) {
  if (!holds) std::abort();
}

class Trial {
 public:
  ~Trial() {
    queue_.Cancel([](const Segment&) {});
    Require(segments_.free_count() == kSegments);
  }

  void Step(const uint8_t* step) {
    now_ += base::Microseconds(step[0] >> 3);
    switch (step[0] % 8) {
      case 0:
      case 1:
        Send(1u + step[1] % (2 * kSmss));
        break;
      case 2:
        Acknowledge(step[1], {});
        break;
      case 3:
      case 4:
      case 5:
        Acknowledge(step[0] % 8 == 3 ? step[1] : 0, Blocks(step));
        break;
      case 6:
        Retransmit();
        break;
      case 7:
        TimeOut(step[1]);
        break;
    }
    Check();
  }

  // Everything lost is sent again, everything sent arrives: nothing is left.
  void Finish() {
    for (int round = 0; round < 3; ++round) {
      now_ += base::Seconds(1);
      rack_.MarkLossesOnTimeout(queue_, Context());
      while (queue_.FirstLost() != nullptr) Retransmit();
    }
    Acknowledge(UINT8_MAX, {}, true);
    Require(queue_.all_acknowledged() && queue_.flight() == Flight());
  }

 private:
  Rack::Context Context() const {
    return {.now = now_, .srtt = base::Milliseconds(1), .in_recovery = queue_.flight().lost != 0};
  }

  void Send(uint32_t length) {
    Segment* const segment = queue_.Append({.bytes = memory, .length = length});
    if (segment != nullptr) queue_.MarkSent(*segment, now_, false);
  }

  void Retransmit() {
    Segment* const lost = queue_.FirstLost();
    if (lost == nullptr) return;
    Require(!lost->Has(Segment::kSacked | Segment::kRetransmitted));
    queue_.MarkSent(*lost, now_, false);
  }

  void TimeOut(uint8_t how) {
    if (how % 4 == 0) {
      scoreboard_.Forget(queue_);
      covered_.clear();
    }
    rack_.MarkLossesOnTimeout(queue_, Context());
    const Segment* const first = queue_.first();
    const bool waits = !queue_.all_acknowledged() && !first->Has(Segment::kSacked);
    Require(!waits || first->Has(Segment::kLost));
  }

  // Two blocks anywhere around what is outstanding.
  std::vector<wire::SackBlock> Blocks(const uint8_t* step) const {
    const Seq base = queue_.una() - 10u;
    const uint32_t range = queue_.flight().outstanding + 20;
    const Seq a = base + step[1] * range / 256;
    const Seq b = base + step[2] * range / 256;
    return {{a.value(), (a + step[3] % 64).value()}, {b.value(), (b + step[3] / 4).value()}};
  }

  void Acknowledge(uint8_t how, const std::vector<wire::SackBlock>& blocks, bool all = false) {
    const uint32_t most = queue_.flight().outstanding;
    const Seq ack = queue_.una() + (all ? most : how * most / 512);
    const Rack::AckTime time{.now = now_, .echo = std::nullopt, .clock = {}};
    const auto delivered = [&](const Segment& segment) {
      if (!segment.Has(Segment::kSacked)) rack_.OnDelivered(segment, time);
    };
    if (ack > queue_.una()) queue_.Acknowledge(ack, delivered);
    Cover(blocks, ack);
    const auto outcome = scoreboard_.Process(blocks, ack, kSmss, queue_, delivered);
    rack_.OnAck(outcome.dsack.has_value(), queue_.una(), queue_.nxt());
    rack_.DetectLosses(queue_, Context());
  }

  void Cover(const std::vector<wire::SackBlock>& blocks, Seq ack) {
    const bool dsack = FindDsack(blocks, ack).has_value();
    for (size_t i = dsack ? 1 : 0; i < blocks.size(); ++i) {
      const Seq right(blocks[i].right);
      if (right > queue_.nxt()) continue;
      for (Seq at(blocks[i].left); at < right; at += 1) covered_.insert(Distance(kFirst, at));
    }
  }

  void Check() {
    Flight sum;
    for (const Segment* s = queue_.first(); s != queue_.first_unsent(); s = s->next) {
      const uint32_t bytes = s->SequenceLength();
      sum.outstanding += bytes;
      sum.sacked += s->Has(Segment::kSacked) ? bytes : 0;
      sum.lost += s->Has(Segment::kLost) ? bytes : 0;
      sum.retransmitted += s->Has(Segment::kRetransmitted) ? bytes : 0;
      sum.sacked_segments += s->Has(Segment::kSacked);
      Require(!s->Has(Segment::kSacked) || !s->Has(Segment::kLost | Segment::kRetransmitted));
      for (Seq at = s->sequence; s->Has(Segment::kSacked) && at < s->end(); at += 1) {
        Require(covered_.contains(Distance(kFirst, at)));
      }
    }
    Require(sum == queue_.flight());
    Require(sum.Pipe() <= sum.outstanding + sum.retransmitted);
  }

  SegmentPool segments_{kSegments};
  SegmentQueue queue_{segments_, kFirst};
  Scoreboard scoreboard_;
  Rack rack_{kFirst};
  base::Nanoseconds now_ = base::Seconds(100);
  std::set<uint32_t> covered_;  // by blocks, as distances from kFirst
};

}  // namespace
}  // namespace xtreme::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  xtreme::tcp::Trial trial;
  for (size_t i = 0; i + 4 <= length; i += 4) trial.Step(bytes + i);
  trial.Finish();
  return 0;
}
