// SPDX-License-Identifier: Apache-2.0
//
// What the calls of the C API have in common: from a handle to its object, and the checks of a
// debug build. The layout of a completion is the engine's, asserted here.

#ifndef XTREME_API_NATIVE_CALLS_H_
#define XTREME_API_NATIVE_CALLS_H_

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

#include "api/native/failure.h"
#include "api/native/process.h"
#include "api/xtreme.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/ring.h"

namespace xtreme::api {

template <typename C>
constexpr std::array<size_t, 20> FieldPlaces() {
  return {offsetof(C, kind),        offsetof(C, event),          offsetof(C, flags),
          offsetof(C, status),      offsetof(C, socket),         offsetof(C, user_data),
          offsetof(C, buffer),      offsetof(C, data),           offsetof(C, length),
          offsetof(C, count),       offsetof(C, hw_time_ns),     offsetof(C, poll_tsc),
          offsetof(C, source_ip),   offsetof(C, destination_ip), offsetof(C, source_port),
          offsetof(C, destination_port), offsetof(C, interface_index), offsetof(C, hw_clock),
          offsetof(C, cookie),      offsetof(C, vlan)};
}
static_assert(FieldPlaces<xtreme_completion>() == FieldPlaces<engine::Completion>());
static_assert(sizeof(xtreme_completion) == sizeof(engine::Completion));

// Fewer bytes do not tell what a completion is.
inline constexpr size_t kLeastCompletionBytes = 64;

inline int NoSuch(const char* what) {
  return Fail(EBADF, std::string("handle: there is no such ") + what);
}

inline int NotIpv4(const char* action) {
  return Fail(EAFNOSUPPORT, std::string(action) + ": IPv4 only");
}

inline int ToResult(const engine::Outcome& outcome) {
  return outcome.ok() ? 0 : Fail(outcome.error, outcome.text);
}

// The ring of any handle that carries its number; null, with the failure noted, when there is none.
inline engine::Ring* FindRing(uint64_t handle) {
  engine::Ring* ring = Process::The().FindRing(handle);
  if (ring == nullptr) [[unlikely]] NoSuch("ring");
  return ring;
}

// Whether the calling thread may touch a ring, or a group; looked at in debug builds only.
template <typename RingOrGroup>
bool MayTouch([[maybe_unused]] const RingOrGroup& polled) {
#if XTREME_DEBUG
  return polled.OwnedByThisThread();
#else
  return true;
#endif
}

inline int NotOwner() {
  return Fail(EBUSY, "ring: another thread owns it; see xtreme_ring_adopt()");
}

// The ring of a handle for a call that is its owner's: 0, -EBADF, or in debug builds -EBUSY.
inline int Reach(uint64_t handle, engine::Ring** ring) {
  *ring = FindRing(handle);
  if (*ring == nullptr) [[unlikely]] return -EBADF;
  return MayTouch(**ring) ? 0 : NotOwner();
}

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_CALLS_H_
