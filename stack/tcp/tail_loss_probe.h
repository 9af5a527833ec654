// SPDX-License-Identifier: Apache-2.0
//
// Tail loss probes: when the last segments of a flight are lost nobody acknowledges anything; a
// probe before the time-out brings an acknowledgement that RACK can work with. RFC 8985 section 7.
//
// At most one probe is outstanding. Time in nanoseconds. The caller sends: new data, else the last
// segment again.
#ifndef XTREME_STACK_TCP_TAIL_LOSS_PROBE_H_
#define XTREME_STACK_TCP_TAIL_LOSS_PROBE_H_

#include <optional>

#include "stack/base/time.h"
#include "stack/tcp/segment_queue.h"
#include "stack/tcp/sequence.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

class TailLossProbe {
 public:
  // Whether the probe timer may run: something is outstanding, nothing of it sacked or lost, and no
  // probe under way. Without SACK, or in recovery, it does not run. Section 7.2.
  bool MayRun(const SegmentQueue& queue, bool sack_permitted, bool in_recovery) const {
    return sack_permitted && !in_recovery && !outstanding_ && queue.flight().outstanding != 0 &&
           queue.flight().sacked == 0 && queue.flight().lost == 0;
  }

  struct Times {
    base::Nanoseconds now;
    base::Nanoseconds srtt;           // 0: unknown
    base::Nanoseconds max_ack_delay;  // what the peer may wait with an acknowledgement
    base::Nanoseconds rto_deadline;   // when the retransmission timer would expire
  };

  // When to probe: two round trips after now, with time for a delayed acknowledgement when a single
  // segment is in flight, and at the latest in place of the time-out, which then begins anew: one
  // segment that was lost must not close the congestion window. Section 7.2, TLP_calc_PTO.
  static base::Nanoseconds Deadline(const SegmentQueue& queue, const Times& times) {
    base::Nanoseconds wait = kUnknownWait;
    if (times.srtt > base::Nanoseconds(0)) {
      wait = 2 * times.srtt;
      if (queue.first() == queue.last_sent()) wait += times.max_ack_delay;
    }
    return base::Earlier(base::DeadlineAfter(times.now, wait), times.rto_deadline);
  }

  // What Deadline() is at least after `now`, cheaply: of a single segment, `max_ack_delay` as
  // there; of several.
  static base::Nanoseconds LeastForOne(base::Nanoseconds max_ack_delay) {
    return base::Earlier(max_ack_delay, kUnknownWait);
  }
  static base::Nanoseconds LeastForSome(base::Nanoseconds srtt) {
    return srtt > base::Nanoseconds(0) ? base::Earlier(2 * srtt, kUnknownWait) : kUnknownWait;
  }

  // A probe left; `nxt` is SND.NXT after it. Section 7.3.
  void OnSent(Seq nxt, bool is_retransmission) {
    outstanding_ = true;
    is_retransmission_ = is_retransmission;
    end_ = nxt;
  }

  struct Ack {
    Seq ack;
    std::optional<wire::SackBlock> dsack;
    bool has_sack = false;  // blocks other than a D-SACK
    bool advances = false;  // SND.UNA
  };

  // Section 7.4.2. Returns whether the probe repaired a loss of its own segment, to which the
  // congestion control has to react as to a fast retransmission.
  bool OnAck(const Ack& ack) {
    if (!outstanding_ || ack.ack < end_) return false;
    if (!is_retransmission_) {
      outstanding_ = false;
      return false;
    }
    if (ack.dsack && Seq(ack.dsack->right) == end_) {
      outstanding_ = false;  // both copies arrived
      return false;
    }
    if (ack.ack > end_) {
      outstanding_ = false;
      return true;
    }
    // A duplicate acknowledgement: the probe's, of a segment that had arrived before.
    if (!ack.advances && !ack.has_sack) outstanding_ = false;
    return false;
  }

  // Recovery begins, or the connection is idle again.
  void Cancel() { outstanding_ = false; }

  bool outstanding() const { return outstanding_; }

 private:
  static constexpr base::Nanoseconds kUnknownWait = base::Seconds(1);  // before any round trip

  bool outstanding_ = false;
  bool is_retransmission_ = false;
  Seq end_;  // TLP.end_seq
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_TAIL_LOSS_PROBE_H_
