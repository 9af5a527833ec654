// SPDX-License-Identifier: Apache-2.0
//
// 32 bytes of any alignment, or 16, moved and compared as one where the machine can.
#ifndef XTREME_STACK_BASE_BYTES32_H_
#define XTREME_STACK_BASE_BYTES32_H_

#include <cstdint>

namespace xtreme::base {

typedef uint64_t Bytes32 __attribute__((vector_size(32), aligned(1), may_alias));

inline Bytes32 Load32(const void* from) { return *static_cast<const Bytes32*>(from); }
inline void Store32(void* to, Bytes32 bytes) { *static_cast<Bytes32*>(to) = bytes; }

typedef uint64_t Bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

inline Bytes16 Load16(const void* from) { return *static_cast<const Bytes16*>(from); }
inline void Store16(void* to, Bytes16 bytes) { *static_cast<Bytes16*>(to) = bytes; }

// Whether the 32 bytes at `bytes` and those at `expected` are equal where `mask` has bits.
[[gnu::always_inline]] inline bool EqualUnder(const void* mask, const void* bytes,
                                              const void* expected) {
  const Bytes32 differ = Load32(bytes) ^ Load32(expected);
#if defined(__AVX__)
  typedef long long Quads __attribute__((vector_size(32)));
  return __builtin_ia32_ptestz256(reinterpret_cast<Quads>(differ),
                                  reinterpret_cast<Quads>(Load32(mask))) != 0;
#else
  const Bytes32 seen = differ & Load32(mask);
  return (seen[0] | seen[1] | seen[2] | seen[3]) == 0;
#endif
}

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_BYTES32_H_
