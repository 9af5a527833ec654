// SPDX-License-Identifier: Apache-2.0
//
// UdpSocket: one UDP socket of a ring.
//
// Life: kOpen, then kClosing (after close: its TX_DONEs and TERMINATED may come), then gone.
// kDetached tells nothing more. Invariant: the socket is freed when TERMINATED was handed out, so
// every completion that waits for it finds it.
// Threads: the ring's owner. What the control thread holds for it stands there (control_side.h).

#ifndef XTREME_XTREME_ENGINE_UDP_SOCKET_H_
#define XTREME_XTREME_ENGINE_UDP_SOCKET_H_

#include <array>
#include <cstdint>
#include <memory>

#include "stack/base/counters.h"
#include "stack/udp/endpoint.h"
#include "stack/wire/address.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/paced_use.h"

namespace xtreme::engine {

struct SendFlows;
class HeldBuffers;

// What was sent counts where it was sent to (SendFlows).
struct UdpCounters {
  uint64_t refused = 0;

  static constexpr auto Table() {
    using C = UdpCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"refused", "sends refused", &C::refused},
    });
  }
};
static_assert(base::DescribesEveryCounter<UdpCounters>());

// What few sockets have.
struct UdpSeldom {
  PacedUse pace;                      // The queue that it sends by; null: the ring's.
  std::unique_ptr<HeldBuffers> held;  // Null: it has no limit.
  wire::Ipv4Address group_source;     // To groups, if bound to no host's; any: the route's.
  uint32_t flow_tag = 0;  // Of rules that are made from here on; 0: the ring's own.
};

// The endpoint is the part of a socket that the demultiplexer finds; a UdpSocket is always one.
struct alignas(64) UdpSocket : udp::Endpoint {
  enum class State : uint8_t { kOpen, kClosing, kTerminated, kDetached };

  explicit UdpSocket(const udp::Endpoint::Options& options = {});
  ~UdpSocket();

  // Where datagrams to groups leave: by the ring's interface; by the routes, which may lead to
  // another one; not by the ring. By another interface than the ring's they are refused.
  enum class Groups : uint8_t { kByRing, kByRoute, kElsewhere };

  // Settings that sends look at, and rules.
  struct Settings {
    uint8_t ttl = 64;
    uint8_t multicast_ttl = 1;
    uint8_t tos = 0;
    bool multicast_loop : 1 = false;
    bool broadcast : 1 = false;
    bool reuse : 1 = false;
    bool kernel_unicast : 1 = false;
    bool dont_fragment : 1 = true;  // What fits in a frame is not to be cut on its way.
    bool whole : 1 = false;         // What does not is refused, not cut here.
    Groups groups = Groups::kByRing;
  };

  PacedQueue* pace() const { return seldom == nullptr ? nullptr : seldom->pace.get(); }
  HeldBuffers* held() const { return seldom == nullptr ? nullptr : seldom->held.get(); }
  wire::Ipv4Address group_source() const {
    return seldom == nullptr ? wire::Ipv4Address() : seldom->group_source;
  }
  uint32_t flow_tag() const { return seldom == nullptr ? 0 : seldom->flow_tag; }
  // Allocates, if it has none yet.
  UdpSeldom& Seldom();
  void SetGroupSource(wire::Ipv4Address source) {
    if (source != group_source()) Seldom().group_source = source;
  }
  void SetFlowTag(uint32_t tag) {
    if (tag != flow_tag()) Seldom().flow_tag = tag;
  }

  // The smallest first, where the endpoint ends.
  Settings settings;
  State state = State::kOpen;
  bool released = false;          // The control thread has given back what it held.
  uint32_t sends_wanted = 0;      // Sends of which a TX_DONE or TX_WIRE is still to come.
  uint32_t next_news = kNoNews;   // The place of the next socket with something to tell.
  Handle handle = 0;
  uint64_t user_data = 0;
  UdpCounters sends;
  std::unique_ptr<SendFlows> flows;
  std::unique_ptr<UdpSeldom> seldom;

  static constexpr uint32_t kNoNews = ~uint32_t{0};     // It has nothing to tell.
  static constexpr uint32_t kLastNews = kNoNews - 1;    // It has, and none after it.
};
static_assert(sizeof(UdpSocket) == 128);

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_UDP_SOCKET_H_
