// SPDX-License-Identifier: Apache-2.0
//
// Copies of a few bytes, or of a frame, whose length is not known to the compiler, without a call.
//
// Invariant: exactly the bytes asked for are read, so a source may end where its page ends. Lengths
// between two powers of two are two moves that overlap in the middle.

#ifndef XTREME_STACK_BASE_COPY_H_
#define XTREME_STACK_BASE_COPY_H_

#include <cstdint>
#include <cstring>

#include "stack/base/bytes32.h"

namespace xtreme::base {

inline void Copy32(uint8_t* to, const uint8_t* from) { Store32(to, Load32(from)); }

inline void Copy64(uint8_t* to, const uint8_t* from) {
  Copy32(to, from);
  Copy32(to + 32, from + 32);
}

// `bytes` from `from`, with two moves of kMove bytes; kMove <= bytes <= 2 kMove.
template <uint32_t kMove>
[[gnu::always_inline]] inline void CopyOverlapping(uint8_t* to, const uint8_t* from,
                                                   uint32_t bytes) {
  uint8_t head[kMove];
  uint8_t tail[kMove];
  std::memcpy(head, from, kMove);
  std::memcpy(tail, from + bytes - kMove, kMove);
  std::memcpy(to, head, kMove);
  std::memcpy(to + bytes - kMove, tail, kMove);
}

// Any length; meant for at most a few hundred bytes. The ranges do not overlap.
[[gnu::always_inline]] inline void CopyShort(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  if (bytes - 16 <= 16) [[likely]] return CopyOverlapping<16>(to, from, bytes);
  if (bytes > 32) {
    uint32_t at = 0;
    do {
      Copy32(to + at, from + at);
      at += 32;
    } while (at + 32 < bytes);
    return Copy32(to + bytes - 32, from + bytes - 32);
  }
  if (bytes >= 8) return CopyOverlapping<8>(to, from, bytes);
  if (bytes >= 4) return CopyOverlapping<4>(to, from, bytes);
  if (bytes >= 2) return CopyOverlapping<2>(to, from, bytes);
  if (bytes == 1) *to = *from;
}

// The same, meant for a frame of some hundred bytes and more.
inline void CopyLong(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  const auto copy = [&]<uint32_t kBytes>() {
#pragma GCC unroll 8
    for (uint32_t at = 0; at < kBytes; at += 32) Copy32(to + at, from + at);
    to += kBytes;
    from += kBytes;
    bytes -= kBytes;
  };
  while (bytes >= 256) copy.template operator()<256>();
  if (bytes >= 128) copy.template operator()<128>();
  CopyShort(to, from, bytes);
}

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_COPY_H_
