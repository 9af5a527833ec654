// SPDX-License-Identifier: Apache-2.0
//
// WindowAhead: what the next segment's header says of the receive window, worked out before there
// is one: so who has an order to send looks whether it still holds, and works out nothing.
//
// The invariant: it holds while the connection's RCV.NXT, and the credit given to it, are those it
// was made of (Pcb::Holds): then the right edge is no other than what this says; the scale, and
// options of its opening, stay. Whoever keeps one may make it at any time, and need not.
// Units: bytes. One thread, the connection's. RFC 9293 section 3.1.
#ifndef XTREME_STACK_TCP_WINDOW_AHEAD_H_
#define XTREME_STACK_TCP_WINDOW_AHEAD_H_

#include <cstdint>

#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

struct WindowAhead {
  // Bytes 8 to 15 of the header, as a number: acknowledgement, data offset, ACK and PSH, window.
  // 0: nothing is known ahead.
  uint64_t words = 0;
  Seq credited;  // Of which they were made, beside the acknowledgement.

  uint32_t acknowledgement() const { return static_cast<uint32_t>(words >> 32); }
  uint16_t window() const { return static_cast<uint16_t>(words); }
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_WINDOW_AHEAD_H_
