// SPDX-License-Identifier: Apache-2.0
//
// Fast recovery by duplicate acknowledgements, for a peer without SACK. RFC 6582 section 3.2, RFC
// 5681 section 3.2, limited transmit by RFC 3042.
//
// The invariant: one reduction for all losses of one window: below `recover` a recovery does not
// begin twice. The caller sends what it is told and keeps the window that this says. Bytes.
#ifndef XTREME_STACK_TCP_NEW_RENO_RECOVERY_H_
#define XTREME_STACK_TCP_NEW_RENO_RECOVERY_H_

#include <algorithm>
#include <cstdint>

#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

class NewRenoRecovery {
 public:
  enum class Action : uint8_t {
    kNothing,
    kSendNew,     // one new segment beyond the window (limited transmit), or as the window allows
    kRetransmit,  // the first unacknowledged segment
    kRecovered,   // all that was outstanding arrived
  };
  struct Verdict {
    Action action = Action::kNothing;
    bool entered =
        false;  // recovery began: the algorithm's OnLoss is due, before the window is set
  };

  // `initial` is the initial send sequence number.
  explicit NewRenoRecovery(Seq initial) : recover_(initial) {}

  // An acknowledgement of nothing new, without data and without a change of the window, while
  // something is outstanding (RFC 5681 section 2). `nxt` is SND.NXT.
  Verdict OnDuplicateAck(Seq una, Seq nxt) {
    ++duplicates_;
    if (in_recovery_) return {Action::kSendNew};
    if (duplicates_ < kDupThresh) return {Action::kSendNew};
    // Step 2: not for duplicates that the last recovery or time-out itself brought about.
    if (duplicates_ > kDupThresh || una - 1u < recover_) return {};
    in_recovery_ = true;
    recover_ = nxt;
    return {Action::kRetransmit, true};
  }

  // SND.UNA became `una`.
  Verdict OnNewAck(Seq una) {
    duplicates_ = 0;
    if (!in_recovery_) {
      // Kept near: after 2 GB it would seem to lie ahead.
      recover_ = Later(recover_, una - 1u);
      return {};
    }
    if (una >= recover_) {
      in_recovery_ = false;
      return {Action::kRecovered};
    }
    return {Action::kRetransmit};  // step 3, partial
  }

  // The retransmission timer expired: step 4.
  void OnTimeout(Seq nxt) {
    in_recovery_ = false;
    duplicates_ = 0;
    recover_ = nxt;
  }

  // Nothing had been lost: as if it were recovered.
  void Abandon() {
    in_recovery_ = false;
    duplicates_ = 0;
  }

  // The window as of step 2: what left the network by the three duplicates is added.
  static uint32_t WindowAtEntry(uint32_t ssthresh, uint32_t smss) {
    return ssthresh + kDupThresh * smss;
  }
  // Step 3, at each further duplicate.
  static uint32_t Inflated(uint32_t cwnd, uint32_t smss) { return cwnd + smss; }
  // Step 3, at a partial acknowledgement of `acked` bytes.
  static uint32_t Deflated(uint32_t cwnd, uint32_t acked, uint32_t smss) {
    const uint32_t left = cwnd > acked ? cwnd - acked : 0;
    return std::max(acked >= smss ? left + smss : left, smss);
  }
  // Step 3, at the full acknowledgement: without a burst.
  static uint32_t WindowAtEnd(uint32_t ssthresh, uint32_t flight, uint32_t smss) {
    return std::min(ssthresh, std::max(flight, smss) + smss);
  }

  bool in_recovery() const { return in_recovery_; }
  uint32_t duplicates() const { return duplicates_; }
  Seq recover() const { return recover_; }

 private:
  static constexpr uint32_t kDupThresh = 3;

  Seq recover_;
  uint32_t duplicates_ = 0;
  bool in_recovery_ = false;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_NEW_RENO_RECOVERY_H_
