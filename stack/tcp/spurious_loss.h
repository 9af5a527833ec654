// SPDX-License-Identifier: Apache-2.0
//
// Whether what was taken for lost had arrived: then the window was reduced for nothing. By
// timestamps an acknowledgement tells that it answers a first copy (Eifel detection, RFC 3522);
// without them, or later, D-SACKs for every copy that was sent again do (RFC 3708).
//
// The invariant: it says so at most once for each Begin, and only of copies that were sent again
// after it. Units: bytes of sequence space; timestamps are TSvals of ours. Pure.
#ifndef XTREME_STACK_TCP_SPURIOUS_LOSS_H_
#define XTREME_STACK_TCP_SPURIOUS_LOSS_H_

#include <algorithm>
#include <cstdint>

#include "stack/tcp/segment_queue.h"
#include "stack/tcp/sequence.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

class SpuriousLoss {
 public:
  // The window was reduced, at SND.UNA `una` and SND.NXT `nxt`. Where one that is judged already
  // goes on, as a time-out follows, all that was sent again since the first counts.
  void Begin(Seq una, Seq nxt) {
    // One of 2 GB ago would seem to lie ahead.
    if (judging_ && una < until_ && until_ <= nxt) return;
    judging_ = true;
    stamped_ = false;
    from_ = una;
    until_ = una;
    unproven_ = 0;
  }

  // `segment` was sent again, with `timestamp`, to repair the loss or, before it was known, as a
  // probe; SND.NXT is `nxt`.
  void OnRetransmit(const Segment& segment, uint32_t timestamp, Seq nxt) {
    if (!judging_) return;
    if (!stamped_) first_stamp_ = timestamp;
    stamped_ = true;
    until_ = nxt;
    unproven_ = std::min(unproven_, kMost) + segment.SequenceLength();
  }

  // `segment`, which was sent more than once, is acknowledged by SND.UNA, with `echo`. Whether
  // that is of a copy sent before the first one that was sent again. RFC 3522 section 3.2.
  bool IsOfFirstCopy(const Segment& segment, uint32_t echo) const {
    return judging_ && stamped_ && segment.sequence >= from_ && segment.end() <= until_ &&
           IsOlderTimestamp(echo, first_stamp_);
  }

  // A D-SACK came while SND.UNA was `una`. Whether all that was sent again has arrived twice now.
  bool OnDsack(const wire::SackBlock& block, Seq una) {
    // What was sent after the last copy is acknowledged: so were the copies.
    if (una > until_) judging_ = false;
    const Seq left(block.left);
    const Seq right(block.right);
    if (!judging_ || !stamped_ || left < from_ || right > until_ || left >= right) return false;
    unproven_ -= std::min(unproven_, Distance(left, right));
    return unproven_ == 0;
  }

  // It was judged, or another reduction is not to be.
  void End() { judging_ = false; }

 private:
  static constexpr uint32_t kMost = 1u << 31;

  Seq from_;                  // SND.UNA as it began
  Seq until_;                 // SND.NXT as the last copy left
  uint32_t first_stamp_ = 0;  // of the first segment that was sent again, under stamped_
  uint32_t unproven_ = 0;     // bytes sent again that no D-SACK told of
  bool judging_ = false;
  bool stamped_ = false;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SPURIOUS_LOSS_H_
