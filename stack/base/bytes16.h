// SPDX-License-Identifier: Apache-2.0
//
// 16 bytes of any alignment, compared as one where the machine can.
#ifndef XTREME_STACK_BASE_BYTES16_H_
#define XTREME_STACK_BASE_BYTES16_H_

#include <cstdint>

namespace xtreme::base {

typedef uint64_t Bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

// Whether the 16 bytes at `bytes` and those at `expected` are equal where `mask` has bits.
[[gnu::always_inline]] inline bool EqualUnder16(const void* mask, const void* bytes,
                                                const void* expected) {
  const Bytes16 differ =
      *static_cast<const Bytes16*>(bytes) ^ *static_cast<const Bytes16*>(expected);
  const Bytes16 relevant = *static_cast<const Bytes16*>(mask);
#if defined(__SSE4_1__)
  typedef long long Pair __attribute__((vector_size(16)));
  return __builtin_ia32_ptestz128(reinterpret_cast<Pair>(differ),
                                  reinterpret_cast<Pair>(relevant)) != 0;
#else
  const Bytes16 seen = differ & relevant;
  return (seen[0] | seen[1]) == 0;
#endif
}

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_BYTES16_H_
