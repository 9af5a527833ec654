// SPDX-License-Identifier: Apache-2.0
//
// RingChoice: by what the sockets of an interface are divided among rings, and RingKey: which ring
// that makes. Numbers as VMA has them (VMA_RING_ALLOCATION_LOGIC_RX, SO_VMA_RING_ALLOC_LOGIC).
//
// Threads: plain values.

#ifndef XTREME_API_SOCKETS_RING_CHOICE_H_
#define XTREME_API_SOCKETS_RING_CHOICE_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace xtreme::sockets {

enum class RingLogic : uint32_t {
  kPerInterface = 0,
  kPerAddress = 1,
  kPerSocket = 10,
  kPerUserId = 11,
  kPerThread = 20,       // Which opened the socket.
  kPerCore = 30,         // On which its ring was first asked for.
  kPerBoundCore = 31,    // The same, and the thread that asked stays on it.
};

inline std::optional<RingLogic> RingLogicOf(int64_t number) {
  switch (number) {
    case 0:
    case 1:
    case 10:
    case 11:
    case 20:
    case 30:
    case 31: return static_cast<RingLogic>(number);
    default: return std::nullopt;
  }
}

// What a ring is beyond a common one.
struct RingProfile {
  bool external = false;  // Its queues are the program's, who asks for their addresses.
};

struct RingChoice {
  RingLogic logic = RingLogic::kPerInterface;
  uint64_t user_id = 0;
  uint32_t profile = 0;  // Of Faces::AddProfile(); 0: none.
};

struct RingKey {
  std::string interface;
  RingLogic logic = RingLogic::kPerInterface;
  uint64_t separator = 0;  // What the logic tells apart.
  uint32_t profile = 0;

  auto operator<=>(const RingKey&) const = default;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_RING_CHOICE_H_
