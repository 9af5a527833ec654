// SPDX-License-Identifier: Apache-2.0
//
// TcpPorts: the local ports of a ring's TCP: the block that connects are made from, those that are
// leased one by one, and which ports are the ring's at all.
//
// The block is leased, and its one rule made, before the first SYN; after that a connect needs
// neither. A port serves any number of peers at once, so ports are not taken and returned: a
// connect looks for one that is free towards its peer.
// However many are leased one by one, to find one and to give it back is the same little work.
// Invariant: the lease and the rules of a single port stand as long as a socket receives by them: a
// listener may go before the connections that it accepted, which then have rules of their own where
// the port is the kernel's too (tcp_hand_over.cc).
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_PORTS_H_
#define XTREME_XTREME_ENGINE_TCP_PORTS_H_

#include <bitset>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::engine {

struct SocketHoldings;

// Where a port stands among the others: those of one connection behind all that are looked for.
struct TcpPortKey {
  bool of_one = false;
  uint16_t port = 0;
  uint32_t address = 0;
  uint64_t serial = 0;  // Never another's.

  friend auto operator<=>(const TcpPortKey&, const TcpPortKey&) = default;
};

// A port leased by itself, with its rules: a listener's and its children's, or one connection's.
struct TcpPort {
  enum class State : uint8_t {
    kNone,  // Another ring's, or the kernel's, or it could not be had.
    kStarted,
    kReady,
  };

  TcpPortKey key;
  wire::Endpoint local;
  State state = State::kNone;  // Of the lease and the rules.
  uint32_t users = 1;  // Sockets that receive by it.
  std::shared_ptr<SocketHoldings> holdings;
};

struct TcpPorts {
  enum class State : uint8_t { kNone, kStarted, kReady };

  explicit TcpPorts(uint32_t count_log2) : count(1u << count_log2) {}

  // What the block's ports have in common.
  uint16_t mask() const { return static_cast<uint16_t>(~(count - 1)); }

  void AddBlock(uint16_t first_port) {
    first = first_port;
    for (uint32_t i = 0; i < count; ++i) ours.set(first + i);
  }

  bool IsOfBlock(uint16_t port) const {
    return state == State::kReady && static_cast<uint16_t>(port - first) < count;
  }

  // Allocates.
  TcpPort* Add(const wire::Endpoint& local) {
    ours.set(local.port);
    return Insert(local, /*of_one=*/false, TcpPort::State::kStarted);
  }
  // Of one connection: another ring has leased the port, or the kernel has it, and answers for it.
  TcpPort* AddOfOne(const wire::Endpoint& local) {
    return Insert(local, /*of_one=*/true, TcpPort::State::kNone);
  }
  // One that stands for `local` exactly, or is about to; null: none does.
  TcpPort* Find(const wire::Endpoint& local) {
    const TcpPortKey from{.port = local.port, .address = local.address.value()};
    for (auto at = single.lower_bound(from); at != single.end(); ++at) {
      TcpPort& port = at->second;
      if (port.key.of_one || port.local != local) return nullptr;
      if (port.state != TcpPort::State::kNone) return &port;
    }
    return nullptr;
  }
  // Null: it was given back.
  TcpPort* FindBy(const TcpPortKey& key) {
    const auto found = single.find(key);
    return found == single.end() ? nullptr : &found->second;
  }
  void Remove(const TcpPort& port) { single.erase(single.find(port.key)); }
  // What a lease of `port` held, or would have, is given back. One of the block stays.
  void OnReleased(uint16_t port) {
    if (IsOfBlock(port)) return;
    for (auto at = single.lower_bound({.port = port}); at != single.end(); ++at) {
      const TcpPort& other = at->second;
      if (other.key.of_one || other.local.port != port) break;
      if (other.state != TcpPort::State::kNone) return;
    }
    ours.reset(port);
  }

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
  std::shared_ptr<SocketHoldings> holdings;  // Of the block.
  std::map<TcpPortKey, TcpPort> single;
  // To these ports the ring answers, with RST when it must; others may be the kernel's.
  std::bitset<65'536> ours;

 private:
  TcpPort* Insert(const wire::Endpoint& local, bool of_one, TcpPort::State state) {
    const TcpPortKey key{.of_one = of_one,
                         .port = local.port,
                         .address = local.address.value(),
                         .serial = ++last_serial_};
    return &single.emplace(key, TcpPort{.key = key, .local = local, .state = state}).first->second;
  }

  uint64_t last_serial_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_PORTS_H_
