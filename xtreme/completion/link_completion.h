// SPDX-License-Identifier: Apache-2.0
//
// LinkCompletion: a packet as programs on VMA's extra API poll for it: its links are its buffers.
//
// The layout is theirs to the byte, paddings included (api/vma asserts it), so that the loop which
// takes a frame from the queue writes into the program's array and nobody translates.
// Byte order: port and address as on the wire.

#ifndef XTREME_XTREME_COMPLETION_LINK_COMPLETION_H_
#define XTREME_XTREME_COMPLETION_LINK_COMPLETION_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/packet/buffer.h"

namespace xtreme::completion {

// Written where the program wants it, which may be any address that suits a uint64_t.
struct LinkCompletion {
  uint64_t links = 0;
  uint64_t length = 0;  // Of the payload, all links; what is above 16 bits is padding.
  packet::Buffer* first = nullptr;
  int64_t seconds = 0;  // When it came; both 0: not known.
  int64_t nanoseconds = 0;
  uint64_t events = 0;
  uint64_t user_data = 0;
  // The source: a sockaddr_in.
  uint16_t family = 0;
  uint16_t port = 0;
  std::array<uint8_t, 4> address{};
  uint64_t zero = 0;
  int32_t listen_fd = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(LinkCompletion) == 80);
static_assert(offsetof(LinkCompletion, zero) == 64);

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_LINK_COMPLETION_H_
