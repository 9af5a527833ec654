// SPDX-License-Identifier: Apache-2.0
//
// Handshake: what both ends agreed on with their SYNs, of a connection that a listener's queue, or
// a cookie, has brought that far. Units: bytes. Plain values.

#ifndef XTREME_STACK_TCP_HANDSHAKE_H_
#define XTREME_STACK_TCP_HANDSHAKE_H_

#include <cstdint>
#include <optional>

#include "stack/base/time.h"
#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

struct Handshake {
  Seq iss;                   // ours
  Seq irs;                   // the peer's
  uint32_t peer_window = 0;  // as the last segment of the handshake said, scaled
  uint16_t peer_mss = 536;   // RFC 9293 section 3.7.1: without the option
  std::optional<uint8_t> peer_window_scale;  // none: neither end scales
  bool sack = false;
  std::optional<uint32_t> peer_timestamp;  // TSval last seen; none: not in use
  // From our SYN-ACK to its acknowledgement; none: nobody knows. After a time-out, of
  // the copy that the timestamp names.
  std::optional<base::Nanoseconds> rtt;
  bool timed_out = false;  // the timer of our SYN-ACK expired
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_HANDSHAKE_H_
