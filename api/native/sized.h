// SPDX-License-Identifier: Apache-2.0
//
// Structures of the C API that begin with their size: what a program compiled with an older or a
// newer xtreme.h hands in, as the structure that this library knows.
//
// Invariant: not one byte outside what the caller's `size` says is read or written.

#ifndef XTREME_API_NATIVE_SIZED_H_
#define XTREME_API_NATIVE_SIZED_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/native/failure.h"
#include "api/xtreme.h"
#include "fmt/format.h"

namespace xtreme::api {

// The sizes of the first version.
inline constexpr size_t kFirstRingOptions =
    offsetof(xtreme_ring_options, link_bits_per_second) + sizeof(uint64_t);
inline constexpr size_t kFirstUdpOptions = offsetof(xtreme_udp_options, flow_tag);
inline constexpr size_t kFirstTcpOptions = sizeof(xtreme_tcp_options);
inline constexpr size_t kFirstTcpInfo = sizeof(xtreme_tcp_info);
inline constexpr size_t kFirstQueues = sizeof(xtreme_queues);
// More than any version will have: what was never set is no size, and as much memory as it says is
// neither read nor written.
inline constexpr size_t kMostSized = 4'096;

// Whether a structure may have `size` bytes: 0, or -EINVAL.
inline int CheckSize(const char* action, size_t size, size_t first) {
  if (size >= first && size <= kMostSized) return 0;
  return Fail(EINVAL, fmt::format("{}: a structure of {} bytes asked, {} to {} possible", action,
                                  size, first, kMostSized));
}

// Copies `*from` into `*to`; what an older program does not have is 0. -EINVAL: as CheckSize(), or
// null.
// -E2BIG: what a newer program has and we do not know is not 0.
template <typename T>
int TakeSized(const char* action, const T* from, size_t first, T* to) {
  if (from == nullptr) return Fail(EINVAL, fmt::format("{}: no options", action));
  const size_t size = from->size;
  if (const int wrong = CheckSize(action, size, first); wrong != 0) return wrong;
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  const bool known = size <= sizeof(T) || std::all_of(bytes + sizeof(T), bytes + size,
                                                      [](uint8_t byte) { return byte == 0; });
  if (!known) {
    return Fail(E2BIG, fmt::format("{}: options of {} bytes asked, {} are known and the rest is "
                                   "not 0",
                                   action, size, sizeof(T)));
  }
  *to = {};
  memcpy(to, from, std::min(size, sizeof(T)));
  to->size = sizeof(T);
  return 0;
}

// 0, or -E2BIG: one of these, to which a later version may give a meaning, is not 0.
template <typename... Fields>
int CheckReserved(const char* action, const Fields&... fields) {
  const auto is_zero = [](const auto& field) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&field);
    return std::all_of(bytes, bytes + sizeof field, [](uint8_t byte) { return byte == 0; });
  };
  if ((is_zero(fields) && ...)) return 0;
  return Fail(E2BIG, fmt::format("{}: a reserved field of the options is not 0", action));
}

// The way back: `from` into `size` bytes at `to`, which CheckSize() took; what is beyond our
// structure is 0.
template <typename T>
void GiveSized(const T& from, T* to, size_t size) {
  const size_t common = std::min(size, sizeof(T));
  memcpy(static_cast<void*>(to), &from, common);
  memset(reinterpret_cast<uint8_t*>(to) + common, 0, size - common);
  to->size = size;
}

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_SIZED_H_
