// SPDX-License-Identifier: Apache-2.0
//
// TcpPorts: the local ports of a ring's TCP: the block that connects are made from, and which ports
// are the ring's at all.
//
// The block is leased, and its one rule made, before the first SYN; after that a connect needs
// neither. A port serves any number of peers at once, so ports are not taken and returned: a
// connect looks for one that is free towards its peer.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_PORTS_H_
#define XTREME_XTREME_ENGINE_TCP_PORTS_H_

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::engine {

struct SocketHoldings;

struct TcpPorts {
  enum class State : uint8_t { kNone, kStarted, kReady };

  explicit TcpPorts(uint32_t count_log2) : count(1u << count_log2) {}

  // What the block's ports have in common.
  uint16_t mask() const { return static_cast<uint16_t>(~(count - 1)); }

  void Add(uint16_t first, uint32_t ports) {
    for (uint32_t i = 0; i < ports; ++i) ours.set(first + i);
  }
  void Remove(uint16_t port) { ours.reset(port); }

  // The ports of the block, each once, from a place on that moves on from call to call.
  template <typename Try>
  bool TryEach(Try&& try_port) {
    for (uint32_t i = 0; i < count; ++i) {
      next = (next + 1) & (count - 1);
      if (try_port(static_cast<uint16_t>(first + next))) return true;
    }
    return false;
  }

  State state = State::kNone;
  const uint32_t count;
  uint16_t first = 0;
  uint32_t next = 0;
  // Of the interface: those that the rules are for.
  std::vector<wire::Ipv4Address> addresses;
  std::shared_ptr<SocketHoldings> holdings;
  // To these ports the ring answers, with RST when it must; others may be the kernel's.
  std::bitset<65'536> ours;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_PORTS_H_
