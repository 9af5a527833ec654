// SPDX-License-Identifier: Apache-2.0
//
// SO_MAX_PACING_RATE: how fast a socket may send, held by the device; as the kernel knows it, bytes
// a second, and as VMA does, with a burst.
//
// A datagram socket whose ring cannot pace is the kernel's; a connection goes on unpaced, which the
// call says, or, if the rate was set before there was one, the log.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/sockets/faces.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/nic/nic.h"

namespace xtreme::sockets {
namespace {

// vma_rate_limit_t (api/vma/mellanox/vma_extra.h, which stands above this package).
struct VmaRateLimit {
  uint32_t kilobits_per_second;
  uint32_t burst_bytes;
  uint16_t typical_packet_bytes;
};
static_assert(sizeof(VmaRateLimit) == kVmaRateBytes);
constexpr uint64_t kBytesOfKilobit = 125;

}  // namespace

int Socket::SetPace(const void* value, socklen_t length) {
  Pace asked;
  if (length == sizeof(VmaRateLimit)) {
    VmaRateLimit limit;
    memcpy(&limit, value, sizeof limit);
    asked = {.bytes_per_second = limit.kilobits_per_second * kBytesOfKilobit,
             .burst_bytes = limit.burst_bytes,
             .typical_packet_bytes = limit.typical_packet_bytes};
  } else if (length >= sizeof(uint64_t)) {
    memcpy(&asked.bytes_per_second, value, sizeof(uint64_t));
    if (asked.bytes_per_second == ~uint64_t{0}) asked.bytes_per_second = 0;
  } else if (length >= sizeof(uint32_t)) {
    uint32_t rate = 0;
    memcpy(&rate, value, sizeof rate);
    if (rate != ~uint32_t{0}) asked.bytes_per_second = rate;
  }
  // A child that inherits it, inside its listener's door, is nobody else's yet; who waited for the
  // lock would step out of the door, and a close could take the listener away.
  if (fd() < 0) {
    pace_ = asked;
    return 0;
  }
  const std::lock_guard lock(faces_->setup());
  pace_ = asked;
  if (path() != Path::kOffloaded || listening()) return 0;
  const engine::Outcome outcome = StartPace(/*waits=*/true);
  if (outcome.ok()) return 0;
  pace_ = {};
  if (stream_ != nullptr || length == sizeof(VmaRateLimit)) return -outcome.error;
  LeaveToKernelLocked(outcome.text);
  return 0;
}

engine::Outcome Socket::StartPace(bool waits) {
  const nic::RateLimit rate{.bytes_per_second = pace_.bytes_per_second,
                            .burst_bytes = pace_.burst_bytes,
                            .typical_packet_bytes = pace_.typical_packet_bytes};
  const RingDoor::Entry entry(door());
  engine::Ring& ring = door()->ring();
  engine::Outcome outcome = stream_ == nullptr ? ring.udp().SetRate(handle_, rate, kPaceCookie)
                                               : ring.tcp().SetRate(handle_, rate, kPaceCookie);
  if (outcome.ok() && waits) outcome = door()->Await(handle_, kPaceCookie);
  if (!outcome.ok()) Log(LogLevel::kDetails, "fd {} is not paced: {}", fd(), outcome.text);
  return outcome;
}

bool Socket::TellPace(void* value, const socklen_t* length) const {
  if (*length != sizeof(VmaRateLimit)) return false;
  const VmaRateLimit limit{
      .kilobits_per_second = static_cast<uint32_t>(pace_.bytes_per_second / kBytesOfKilobit),
      .burst_bytes = pace_.burst_bytes,
      .typical_packet_bytes = pace_.typical_packet_bytes};
  memcpy(value, &limit, sizeof limit);
  return true;
}

}  // namespace xtreme::sockets
