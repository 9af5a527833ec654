// SPDX-License-Identifier: Apache-2.0
//
// SpuriousRecovery: finds out that a recovery was for nothing, so that its reduction can be undone.
//
// Two ways: every segment that was retransmitted is reported as received twice (D-SACK, RFC 2883
// section 5 and RFC 8985 section 3.3), or the first acknowledgement of a retransmitted segment
// echoes a timestamp from before the retransmission (Eifel detection, RFC 3522 section 3.2). Pure.
#ifndef XTREME_STACK_TCP_SPURIOUS_RECOVERY_H_
#define XTREME_STACK_TCP_SPURIOUS_RECOVERY_H_

#include <cstdint>
#include <optional>

#include "stack/tcp/sequence.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

class SpuriousRecovery {
 public:
  // A recovery begins, fast or by time-out; `una` is SND.UNA and `nxt` SND.NXT.
  void Begin(Seq una, Seq nxt) {
    *this = SpuriousRecovery();
    active_ = true;
    una_ = una;
    nxt_ = nxt;
  }

  // A segment was retransmitted in it, at TSval `timestamp` where timestamps are in use.
  void OnRetransmit(std::optional<uint32_t> timestamp) {
    if (!active_) return;
    if (retransmitted_ == 0) first_timestamp_ = timestamp;
    ++retransmitted_;
  }

  // Returns whether this D-SACK was the last one that lacked.
  bool OnDsack(const wire::SackBlock& dsack) {
    const bool of_this = Seq(dsack.left) >= una_ && Seq(dsack.right) <= nxt_;
    if (!active_ || !of_this || retransmitted_ == 0) return false;
    ++received_twice_;
    if (received_twice_ < retransmitted_) return false;
    active_ = false;
    return true;
  }

  // SND.UNA advanced to `ack`, by an acknowledgement that echoes `echo`. Returns whether it answers
  // a first copy; looks at the first one of a recovery only.
  bool OnNewAck(Seq ack, std::optional<uint32_t> echo) {
    if (!active_ || looked_ || retransmitted_ == 0 || ack <= una_) return false;
    looked_ = true;
    const bool older = echo && first_timestamp_ && IsOlderTimestamp(*echo, *first_timestamp_);
    if (older) active_ = false;
    return older;
  }

  // Nothing can be undone any more.
  void End() { active_ = false; }

 private:
  bool active_ = false;
  bool looked_ = false;
  Seq una_;
  Seq nxt_;
  uint32_t retransmitted_ = 0;   // segments
  uint32_t received_twice_ = 0;  // D-SACK blocks
  std::optional<uint32_t> first_timestamp_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SPURIOUS_RECOVERY_H_
