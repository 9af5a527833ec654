// SPDX-License-Identifier: Apache-2.0
//
// Frames for the tests of known flows: a datagram in an untagged frame without IP options, whose
// checksums nobody looks at.

#ifndef XTREME_XTREME_COMPLETION_FRAMES_TESTING_H_
#define XTREME_XTREME_COMPLETION_FRAMES_TESTING_H_

#include <array>
#include <cstdint>

#include "stack/base/byte_order.h"

namespace xtreme::completion::testing {

using FrameBytes = std::array<uint8_t, 128>;

// From 10.0.0.2:4000 to 10.0.0.1:5000.
inline FrameBytes DatagramFrame(uint16_t payload_bytes) {
  FrameBytes frame{};
  base::StoreBe16(&frame[12], 0x0800);
  frame[14] = 0x45;
  base::StoreBe16(&frame[16], static_cast<uint16_t>(28 + payload_bytes));
  frame[20] = 0x40;  // "Don't fragment".
  frame[22] = 64;
  frame[23] = 17;
  base::StoreBe32(&frame[26], 0x0a000002);
  base::StoreBe32(&frame[30], 0x0a000001);
  base::StoreBe16(&frame[34], 4000);
  base::StoreBe16(&frame[36], 5000);
  base::StoreBe16(&frame[38], static_cast<uint16_t>(8 + payload_bytes));
  return frame;
}

// Nothing but the lengths of an empty datagram and, as they stand, `addresses`: whatever place of a
// table of flows that picks, one that is empty has all the rest in common with it.
inline FrameBytes EmptyFrame(uint64_t addresses) {
  FrameBytes frame{};
  base::StoreNative(&frame[26], addresses);
  base::StoreBe16(&frame[16], 28);
  base::StoreBe16(&frame[38], 8);
  return frame;
}

}  // namespace xtreme::completion::testing

#endif  // XTREME_XTREME_COMPLETION_FRAMES_TESTING_H_
