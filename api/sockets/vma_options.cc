// SPDX-License-Identifier: Apache-2.0
//
// Socket options of VMA's, level SOL_SOCKET: what completions carry, which ring a socket goes to,
// what its frames' CQEs carry, and that it never receives again.

#include <cerrno>
#include <cstring>
#include <optional>

#include "api/sockets/faces.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_options.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::sockets {
namespace {

// SO_VMA_... (api/vma/mellanox/vma_extra.h, which stands above this package).
constexpr int kUserData = 2801;
constexpr int kRingAllocLogic = 2810;
constexpr int kFlowTag = 2820;
constexpr int kShutdownRx = 2821;
// VMA's word for none, as 0 is.
constexpr uint32_t kNoFlowTag = (1 << 20) - 1;
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
    case kUserData: return SetUserData(value, length);
    case kRingAllocLogic: return SetRingLogic(value, length);
    case kFlowTag: return SetFlowTag(value, length);
    case kShutdownRx: return ShutdownRx();
    default: return -ENOPROTOOPT;
  }
}

int Socket::SetUserData(const void* value, socklen_t length) {
  RingDoor* const ring = door();
  std::optional<RingDoor::Entry> entry;
  if (ring != nullptr) entry.emplace(ring);
  if (!Take(value, length, &user_data)) return -EINVAL;
  if (ring != nullptr) ring->ForgetLinks();
  return 0;
}

// Without a peer too, of which the kernel's shutdown() says ENOTCONN, of datagrams.
int Socket::ShutdownRx() {
  deaf_ = true;
  const int result = Shutdown(SHUT_RD);
  return result == -ENOTCONN && stream_ == nullptr ? 0 : result;
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

// Of rules that are made from here on.
int Socket::SetFlowTag(const void* value, socklen_t length) {
  uint32_t tag = 0;
  if (!Take(value, length, &tag)) return -EINVAL;
  if (tag == 0 || tag == kNoFlowTag || tag > engine::kMostFlowTag) return -EINVAL;
  const std::lock_guard lock(faces_->setup());
  flow_tag_ = tag;
  if (stream_ != nullptr || path() != Path::kOffloaded) return 0;
  const RingDoor::Entry entry(door());
  engine::UdpSocket* const socket = door()->ring().udp().Find(handle_);
  if (socket != nullptr) socket->SetFlowTag(FlowTagOnRing());
  return 0;
}

// A ring that finds the socket by a tag of its own keeps it: nobody else sees its CQEs.
uint32_t Socket::FlowTagOnRing() const {
  const RingProfile* const profile = faces_->FindProfile(choice_.profile);
  return profile != nullptr && profile->external ? flow_tag_ : 0;
}

int Socket::GetVmaOption(int name, void* value, const socklen_t* length) const {
  if (name == kFlowTag) {
    if (*length < sizeof flow_tag_) return -EINVAL;
    memcpy(value, &flow_tag_, sizeof flow_tag_);
    return 0;
  }
  if (name != kUserData) return -ENOPROTOOPT;
  if (*length != sizeof user_data) return -EINVAL;
  memcpy(value, &user_data, sizeof user_data);
  return 0;
}

}  // namespace xtreme::sockets
