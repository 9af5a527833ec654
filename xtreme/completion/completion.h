// SPDX-License-Identifier: Apache-2.0
//
// Completion: what a poll hands out, one for each packet, change of state or finished operation.
//
// The layout is the C API's `xtreme_completion` to the byte (api/ asserts it), so that the poll
// loop writes into the caller's array and nobody translates. The first 64 bytes tell what to do
// with it.
// Units: bytes, nanoseconds. Byte order: ports host, addresses as on the wire.

#ifndef XTREME_XTREME_COMPLETION_COMPLETION_H_
#define XTREME_XTREME_COMPLETION_COMPLETION_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stack/packet/buffer.h"

namespace xtreme::completion {

enum class Kind : uint8_t {
  kNone = 0,
  kPacket = 1,
  kAccepted = 2,
  kEstablished = 3,
  kPeerClosed = 4,
  kTxSpace = 5,
  kTxWire = 6,
  kTxDone = 7,
  kOpDone = 8,
  kTimer = 9,
  kPosted = 10,
  kFdEvent = 11,
  kRing = 12,
  kError = 13,
  kTerminated = 14,
  kDeparted = 15,
  kArrived = 16,
};

enum CompletionFlag : uint16_t {
  kChained = 1 << 0,
  kShared = 1 << 1,
  kLoopback = 1 << 2,
  kSlowPath = 1 << 3,
  kAfterDrop = 1 << 4,
  kClockSynced = 1 << 5,
  kMulticast = 1 << 6,
  kBroadcast = 1 << 7,
  kPortTime = 1 << 8,
  kPtpTime = 1 << 9,
};

enum class RingEvent : uint8_t {
  kNone = 0,
  kLinkDown = 1,
  kLinkUp = 2,
  kDropped = 3,
  kBroken = 4,
  kRemoved = 5,
  kClockLost = 6,
  kClockSynced = 7,
  kRuleFallback = 8,
  kNeighbourLost = 9,
  kPoolLow = 10,
  kPoolOk = 11,
  kMtuChanged = 12,
  kMoved = 13,
};

enum class Layer : uint8_t { kNone = 0, kPort = 1, kQueue = 2, kLibrary = 3 };

enum class SendResult : int {
  kSent = 0,
  kQueued = 1,
  kRefusedNeighbour = -1,
  kRefusedSqFull = -2,
  kRefusedBuffers = -3,
  kRefusedState = -4,
  kRefusedSize = -5,
  kRefusedRoute = -6,
  kRefusedWindow = -7,
  kRefusedCongestion = -8,
  kRefusedRecovery = -9,
};

// An address as completions have it: IPv6-sized; IPv4 behind ::ffff:0:0/96 (RFC 4291 2.5.5.2).
using IpBytes = std::array<uint8_t, 16>;

// Written where the application wants it, which may be any address that suits a uint64_t.
struct Completion {
  Kind kind;
  RingEvent event;
  uint16_t flags;
  int32_t status;
  uint64_t socket;  // The handle; 0 for what is not about a socket.
  uint64_t user_data;
  packet::Buffer* buffer;
  uint8_t* data;
  uint32_t length;
  uint32_t count;
  int64_t hw_time_ns;
  uint64_t poll_tsc;

  IpBytes source_ip;
  IpBytes destination_ip;
  uint16_t source_port;
  uint16_t destination_port;
  uint32_t interface_index;
  union {
    uint64_t hw_clock;
    int64_t deadline_ns;
    const char* text;
    uint64_t events;
  };
  union {
    uint64_t cookie;
    uint64_t value;
    int64_t fd;
  };
  union {
    uint64_t vlan;
    uint64_t late_ns;
    uint64_t layer;
    uint64_t error_ns;
  };
};
static_assert(sizeof(Completion) == 128);
static_assert(offsetof(Completion, source_ip) == 64);

// The fields before `socket`, in one word: no event, and status 0.
inline void SetHead(Completion* completion, Kind kind, uint16_t flags) {
  static_assert(std::endian::native == std::endian::little, "the first field is the lowest");
  static_assert(offsetof(Completion, flags) == 2 && offsetof(Completion, socket) == 8);
  const uint64_t head = uint64_t{flags} << 16 | static_cast<uint64_t>(kind);
  memcpy(static_cast<void*>(completion), &head, sizeof(head));
}

// Every field zero but the kind: where a completion is written piece by piece, start from this. In
// four parts, which become vectors: of so much at once gcc makes a dearer string instruction.
inline void Clear(Completion* completion, Kind kind) {
  constexpr size_t kVector = 32;
  auto* const bytes = reinterpret_cast<uint8_t*>(completion);
  memset(bytes, 0, kVector);
  memset(bytes + kVector, 0, kVector);
  memset(bytes + 2 * kVector, 0, kVector);
  memset(bytes + 3 * kVector, 0, kVector);
  completion->kind = kind;
}

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_COMPLETION_H_
