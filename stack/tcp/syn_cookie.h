// SPDX-License-Identifier: Apache-2.0
//
// SYN cookies: what a listener would have to remember of a SYN, in the initial sequence number and
// the timestamp of its SYN-ACK, so that a flood of SYNs costs no memory. RFC 4987 section 3.6.
//
// The sequence number holds five bits of time, three of MSS and 24 of a keyed hash over the
// connection, both and the peer's sequence number; the low five bits of the timestamp hold window
// scale and SACK. A cookie is good for one to two periods. Immutable: any thread.
#ifndef XTREME_STACK_TCP_SYN_COOKIE_H_
#define XTREME_STACK_TCP_SYN_COOKIE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "stack/base/time.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/sequence.h"
#include "stack/tcp/sip_hash.h"

namespace xtreme::tcp {

class SynCookie {
 public:
  static constexpr base::Nanoseconds kPeriod = base::Seconds(64);
  // What an MSS is rounded down to. A smaller one reads as the first.
  static constexpr std::array<uint16_t, 8> kMss = {64, 536, 1200, 1360, 1440, 1452, 1460, 8960};

  explicit SynCookie(const SipHash::Key& key) : hash_(key) {}

  // ISS of the SYN-ACK that answers a SYN with sequence number `irs` and `mss`.
  Seq Make(const FlowKey& key, Seq irs, uint16_t mss, base::Nanoseconds now) const;

  // The MSS, if `ack` - 1 is a cookie made for this connection and `irs` in this period or the last
  // one. A guess is taken for one once in 2^23.
  std::optional<uint16_t> Check(const FlowKey& key, Seq irs, Seq ack, base::Nanoseconds now) const;

  // What besides the MSS has to survive; only with timestamps it can.
  struct Choices {
    std::optional<uint8_t> window_scale;  // at most 14
    bool sack_permitted = false;
    friend bool operator==(const Choices&, const Choices&) = default;
  };
  // TSval for the SYN-ACK: at most 31 ticks before `timestamp`, never after it.
  static uint32_t Encode(uint32_t timestamp, const Choices& choices);
  // From the TSecr of the acknowledgement.
  static Choices Decode(uint32_t echo);

 private:
  static constexpr uint32_t kTimeMask = 0x1F;
  static constexpr uint8_t kNoScale = 15;

  Seq MakeFor(const FlowKey& key, Seq irs, uint32_t mss_index, uint32_t period) const;

  SipHash hash_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SYN_COOKIE_H_
