// SPDX-License-Identifier: Apache-2.0
//
// Big-endian integers of any width up to 8 bytes, at any alignment: how both protocols write them.

#ifndef XTREME_SAMPLES_FEED_BIG_ENDIAN_H_
#define XTREME_SAMPLES_FEED_BIG_ENDIAN_H_

#include <cstddef>
#include <cstdint>

namespace feed {

// The unsigned value of `kBytes` bytes at `from`.
template <size_t kBytes>
uint64_t ReadBig(const uint8_t* from) {
  static_assert(kBytes >= 1 && kBytes <= 8);
  uint64_t value = 0;
  for (size_t i = 0; i < kBytes; ++i) value = value << 8 | from[i];
  return value;
}

// Writes the low `kBytes` bytes of `value`.
template <size_t kBytes>
void WriteBig(uint64_t value, uint8_t* to) {
  static_assert(kBytes >= 1 && kBytes <= 8);
  for (size_t i = kBytes; i-- > 0; value >>= 8) to[i] = static_cast<uint8_t>(value);
}

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_BIG_ENDIAN_H_
