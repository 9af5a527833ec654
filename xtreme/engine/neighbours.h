// SPDX-License-Identifier: Apache-2.0
//
// Neighbours: the stack's neighbour cache on this ring, and the sends that wait for it.
//
// What the kernel knows is believed; but it does not see what the ring sends, so that it never asks
// again: a neighbour in use is asked for here in time. Our ARP request leaves by the ring; the
// reply goes to the kernel, a packet socket sees it, and the control thread tells us. Invariant: a
// waiting send is posted once, in order, or reported as failed once; the frames of a datagram wait
// and leave, or fail, one behind the other. Nothing is allocated after construction but room for
// connects beyond kConnects.
// Units: nanoseconds. Threads: the ring's owner. Spec: RFC 826, RFC 1122 section 2.3.2.

#ifndef XTREME_XTREME_ENGINE_NEIGHBOURS_H_
#define XTREME_XTREME_ENGINE_NEIGHBOURS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "stack/ip/neighbour_cache.h"
#include "stack/wire/address.h"
#include "xtreme/engine/neighbour_waiters.h"
#include "xtreme/engine/ring_counters.h"
#include "xtreme/engine/ring_timer.h"
#include "xtreme/engine/send_log.h"

namespace xtreme::host {
struct Neighbour;
}

namespace xtreme::engine {

struct RingCore;

// A frame that waits for its destination MAC address; the headers are complete but for it.
struct WaitingFrame {
  std::array<uint8_t, 64> headers;
  uint32_t header_bytes = 0;
  packet::Buffer* buffer = nullptr;  // The payload, and one reference; null: no payload.
  const uint8_t* data = nullptr;
  uint32_t length = 0;
  uint32_t length_before = 0;        // Of the payload in the datagram's frames before it.
  uint16_t tx_flags = 0;
  bool last = true;                  // Of its datagram.
  wire::Endpoint peer;
  SendRecord record;                 // Of the datagram's last frame; wants nothing in the others.
};

// A connect that waits to hear that its next hop is known.
struct WaitingConnect {
  Handle socket = 0;
  uint64_t cookie = 0;
};

class Neighbours {
 public:
  // Frames that may wait in all: so many full queues.
  static constexpr uint32_t kFullQueues = 4;
  static constexpr uint32_t kConnects = 64;

  // Both outlive it.
  Neighbours(RingCore* core, NeighbourWaiters* waiters);
  ~Neighbours();

  // The MAC address of `next_hop` as it last said, else as the kernel knows it; nothing, and a
  // request on its way, when neither does.
  std::optional<wire::MacAddress> MacOf(wire::Ipv4Address next_hop);
  // The same of one that either knows of already; nobody else is asked for.
  std::optional<wire::MacAddress> KnownMacOf(wire::Ipv4Address next_hop);
  // Whether `count` more frames may wait for it, which is asked for: too many do otherwise.
  bool HasRoom(wire::Ipv4Address next_hop, uint32_t count);
  // HasRoom() said yes.
  void Wait(wire::Ipv4Address next_hop, const WaitingFrame& frame);
  // After MacOf() gave nothing. 0; or errno, and it does not wait: EHOSTUNREACH, that the next
  // hop did not answer is being told; ENOBUFS, too many are being asked for.
  int Wait(wire::Ipv4Address next_hop, const WaitingConnect& connect);

  // Whether any frame waits.
  bool HasWaiting() const { return free_.size() < places_; }

  // Somebody, or the kernel, says so: what waits is posted. Nothing happens for one that nobody
  // asked for.
  void Seen(wire::Ipv4Address address, wire::MacAddress mac);
  // Its timer fired.
  void Expire() { Act(); }
  // Tells the network that the addresses of the ring's own interface are where it is now: a
  // gratuitous ARP request for each (RFC 5227 section 3).
  void Announce();
  // Asks the kernel's snapshot for all that wait.
  void AdoptRoutes();

  const ip::NeighbourCounters& counters() const { return cache_.counters(); }

 private:
  using Action = ip::NeighbourCache::Action;
  struct Waiting : ip::NeighbourCache::Packet {
    WaitingFrame frame;
    bool used = false;
  };
  struct Connecting {
    wire::Ipv4Address next_hop;
    WaitingConnect connect;
  };

  std::optional<wire::MacAddress> MacBy(const host::Neighbour* kernels,
                                        wire::Ipv4Address next_hop);
  std::optional<wire::MacAddress> Find(wire::Ipv4Address next_hop);
  void Ask(wire::Ipv4Address next_hop);
  // Flows of what the cache let go ask again.
  void ConsiderForgotten();
  // Does what the cache says is to be done, and arms the timer for what will be.
  void Act();
  void Perform(const Action& action);
  void SendArp(const Action& action);
  bool PostArp(const wire::ArpRepr& arp, wire::MacAddress to);
  void Post(Waiting& waiting, wire::MacAddress mac);
  void Fail(Waiting& waiting, Drop reason, int error);
  void Settle(wire::Ipv4Address next_hop, int error);
  void Free(Waiting& waiting);

  RingCore* const core_;
  NeighbourWaiters* const waiters_;
  ip::NeighbourCache cache_;
  RingTimer timer_{RingTimer::Use::kNeighbour};
  const uint32_t places_;
  std::unique_ptr<Waiting[]> waiting_;
  std::vector<Waiting*> free_;
  std::vector<Connecting> connecting_;
  uint64_t forgotten_ = 0;  // By the cache, as seen.
  bool acting_ = false;     // Act() is under way.
  bool failing_ = false;    // The frame before was of the same datagram as the next, and failed.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_NEIGHBOURS_H_
