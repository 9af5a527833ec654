// SPDX-License-Identifier: Apache-2.0
//
// Proportional rate reduction: how much a sender may send on each acknowledgement of a recovery, so
// that what is in flight at its end is ssthresh, and that it never falls silent before. RFC 9937.
//
// Units: bytes. The names of the RFC's section 6: RecoverFS is what was in flight at the beginning,
// `delivered` and `out` what was delivered and sent since.
#ifndef XTREME_STACK_TCP_PRR_H_
#define XTREME_STACK_TCP_PRR_H_

#include <algorithm>
#include <cstdint>

namespace xtreme::tcp {

class ProportionalRateReduction {
 public:
  // As recovery begins. `outstanding` is SND.NXT - SND.UNA after the acknowledgement that began it,
  // which newly acknowledged `acked` bytes and newly selectively acknowledged `newly_sacked` of the
  // `sacked` ones that the scoreboard holds.
  void Begin(uint32_t outstanding, uint32_t sacked, uint32_t newly_sacked, uint32_t acked) {
    recover_fs_ = std::max(outstanding - (sacked - newly_sacked) + acked, uint32_t{1});
    delivered_ = 0;
    out_ = 0;
  }

  struct Ack {
    uint32_t delivered = 0;  // newly acknowledged, cumulatively and selectively
    uint32_t in_flight = 0;  // RFC 6675's pipe, after the losses of this acknowledgement are marked
    uint32_t ssthresh = 0;
    uint32_t smss = 0;
    // SND.UNA advanced, and this acknowledgement told of no further loss.
    bool safe = false;
  };

  // The window on this acknowledgement: what is in flight and what may be sent.
  uint32_t OnAck(const Ack& ack) {
    delivered_ += ack.delivered;
    int64_t may_send = 0;
    if (ack.in_flight > ack.ssthresh) {
      // Proportional to what leaves the network, rounded up.
      const uint64_t share = (uint64_t{delivered_} * ack.ssthresh + recover_fs_ - 1) / recover_fs_;
      may_send = static_cast<int64_t>(share) - static_cast<int64_t>(out_);
    } else {
      // No more than what was delivered (CRB), one segment more in good progress (SSRB).
      may_send = std::max(static_cast<int64_t>(delivered_) - static_cast<int64_t>(out_),
                          static_cast<int64_t>(ack.delivered));
      if (ack.safe) may_send += ack.smss;
      may_send = std::min(may_send, int64_t{ack.ssthresh} - ack.in_flight);
    }
    // The fast retransmit itself is always let out.
    if (out_ == 0) may_send = std::max<int64_t>(may_send, ack.smss);
    return ack.in_flight + static_cast<uint32_t>(std::max<int64_t>(may_send, 0));
  }

  // `bytes` were sent or retransmitted during recovery.
  void OnSent(uint32_t bytes) { out_ += bytes; }

 private:
  // A recovery ends when what was outstanding is delivered, so none of these gets past the largest
  // window by more than a window.
  uint32_t recover_fs_ = 1;
  uint32_t delivered_ = 0;
  uint32_t out_ = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_PRR_H_
