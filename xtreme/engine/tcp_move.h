// SPDX-License-Identifier: Apache-2.0
//
// What moving a connection from ring to ring needs: the door that each ring has for those that
// come, what crosses from owner to owner, and what a ring keeps of a connection that left.
//
// A connection's home is the ring that listened or connected: its lease and its rule stay there
// until the connection ends, wherever that is. Invariant: a TcpMove ends in exactly one of ARRIVED
// and TERMINATED on the new ring, unless that closes first: then the old one resets the peer.
// Threads: said per struct.

#ifndef XTREME_XTREME_ENGINE_TCP_MOVE_H_
#define XTREME_XTREME_ENGINE_TCP_MOVE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stack/packet/buffer.h"
#include "stack/tcp/departure.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/stack.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/tcp_options.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

struct ControlSide;
struct SocketHoldings;
struct TcpPort;

// The way into a ring's TCP. Outlives the ring. Any thread.
struct TcpDoor {
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ControlSide> side;  // The control thread's.
  uint16_t vlan_id = 0;
  uint32_t capacity = 0;
  std::atomic<uint32_t> ifindex{0};   // Of the port that the ring is on.
  std::shared_ptr<std::atomic<uint32_t>> open;  // Connections and listeners, a moment ago.
};

// One connection on its way. The old ring's owner, then the new one's.
struct TcpMove {
  std::unique_ptr<tcp::Departure> departure;
  TcpSettings settings;
  uint64_t user_data = 0;
  uint64_t cookie = 0;
  wire::Ipv4Address next_hop;
  TcpTrail trail;
  std::shared_ptr<SocketHoldings> holdings;  // Of its rule on the new ring; null: that is its home.
};

// Brings it to the new ring, or, where that closed first, back to the last of the trail.
struct ArrivalNotice final : RingNotice {
  explicit ArrivalNotice(std::unique_ptr<TcpMove> move) : move(std::move(move)) {}
  ~ArrivalNotice() override;
  void Arrive(Ring& ring) override;

  std::unique_ptr<TcpMove> move;
};

// A frame that came to a ring which the connection had left, or (`early`) to one where it was not
// yet, with its reference, until it arrives.
struct StrayNotice final : RingNotice {
  StrayNotice(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp, bool early)
      : frame(frame), buffer(buffer), stamp(stamp), early(early) {}
  ~StrayNotice() override;
  void Arrive(Ring& ring) override;

  const wire::TcpFrame frame;
  packet::Buffer* buffer;
  const uint64_t stamp;
  const bool early;
};

// What a ring keeps of a connection that left it, until that has ended. The ring's owner.
struct TcpForward final : tcp::Onward {
  void PassOn(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp) override {
    to->mailbox->Push(std::make_unique<StrayNotice>(frame, buffer, stamp, /*early=*/false));
  }

  tcp::FlowKey key;
  std::shared_ptr<TcpDoor> to;
  TcpPort* port = nullptr;    // What it received by; null: the ring's block.
  // Of what was handed out here and is held still: see TcpSocket.
  uint32_t early_credit = 0;
  uint32_t returned = 0;      // Released, and not passed on.
};

// Those of a ring, by the handles that its buffers were lent under: without the ring's number.
struct TcpForwards {
  static uint64_t KeyOf(Handle handle) { return handle << 16 >> 16; }
  TcpForward* Find(Handle handle) {
    const auto found = by_handle.find(KeyOf(handle));
    return found == by_handle.end() ? nullptr : found->second.get();
  }
  // Of one connection: it may have left more than once.
  template <typename Visit>
  void ForEachOf(const tcp::FlowKey& key, Visit&& visit) {
    const auto [first, end] = of_flow_.equal_range(key);
    for (auto at = first; at != end; ++at) visit(*by_handle.find(at->second)->second);
  }
  TcpForward& Add(Handle handle, std::unique_ptr<TcpForward> forward) {
    of_flow_.emplace(forward->key, KeyOf(handle));
    return *(by_handle[KeyOf(handle)] = std::move(forward));
  }
  // All of one connection.
  void Erase(const tcp::FlowKey& key) {
    const auto [first, end] = of_flow_.equal_range(key);
    for (auto at = first; at != end; ++at) by_handle.erase(at->second);
    of_flow_.erase(first, end);
  }

  std::unordered_map<uint64_t, std::unique_ptr<TcpForward>> by_handle;
  bool credit_due = false;  // Some have `returned`.

 private:
  struct Hash {
    size_t operator()(const tcp::FlowKey& key) const { return key.Hash(); }
  };
  std::unordered_multimap<tcp::FlowKey, uint64_t, Hash> of_flow_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_MOVE_H_
