// SPDX-License-Identifier: Apache-2.0
//
// Socket options of VMA's, level SOL_SOCKET: what completions carry, which ring a socket goes to,
// and that it never receives again.

#include <cerrno>
#include <cstring>

#include "api/sockets/faces.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"

namespace xtreme::sockets {
namespace {

// SO_VMA_... (api/vma/mellanox/vma_extra.h, which stands above this package).
constexpr int kUserData = 2801;
constexpr int kRingAllocLogic = 2810;
constexpr int kShutdownRx = 2821;
constexpr int kFirst = 2800;
constexpr int kLast = 2829;

// vma_ring_alloc_logic_attr, and what its mask says of it.
struct RingAllocLogic {
  uint32_t mask;
  uint32_t logic;
  uint32_t profile;
  uint32_t user_id;
  uint32_t directions;
};
enum AllocMask : uint32_t {
  kHasProfile = 1 << 0,
  kHasUserId = 1 << 1,
  kHasIngress = 1 << 2,
  kHasEgress = 1 << 3,
  kHasAny = kHasProfile | kHasUserId | kHasIngress | kHasEgress,
};
static_assert(sizeof(RingAllocLogic) == 20);

template <typename T>
bool Take(const void* value, socklen_t length, T* taken) {
  if (value == nullptr || length != sizeof(T)) return false;
  memcpy(taken, value, sizeof(T));
  return true;
}

}  // namespace

bool Socket::IsVmaOption(int level, int name) {
  return level == SOL_SOCKET && name >= kFirst && name <= kLast;
}

int Socket::SetVmaOption(int name, const void* value, socklen_t length) {
  switch (name) {
    case kUserData: return Take(value, length, &user_data) ? 0 : -EINVAL;
    case kRingAllocLogic: return SetRingLogic(value, length);
    case kShutdownRx: deaf_ = true; return Shutdown(SHUT_RD);
    default: return -ENOPROTOOPT;
  }
}

// A socket has one ring for both directions: whichever is asked for, the logic is that ring's.
int Socket::SetRingLogic(const void* value, socklen_t length) {
  RingAllocLogic asked;
  if (!Take(value, length, &asked) || (asked.mask & kHasAny) == 0) return -EINVAL;
  const auto logic = RingLogicOf(asked.logic);
  if (!logic) return -EINVAL;
  RingChoice choice{.logic = *logic};
  if ((asked.mask & kHasUserId) != 0) choice.user_id = asked.user_id;
  if ((asked.mask & kHasProfile) != 0) {
    if (faces_->FindProfile(asked.profile) == nullptr) return -EINVAL;
    choice.profile = asked.profile;
  }
  return ChooseRing(choice);
}

int Socket::GetVmaOption(int name, void* value, const socklen_t* length) const {
  if (name != kUserData) return -ENOPROTOOPT;
  if (*length != sizeof user_data) return -EINVAL;
  memcpy(value, &user_data, sizeof user_data);
  return 0;
}

}  // namespace xtreme::sockets
