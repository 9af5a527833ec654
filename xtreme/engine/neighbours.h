// SPDX-License-Identifier: Apache-2.0
//
// Neighbours: next hops that the kernel does not know (yet), and the sends that wait for them.
//
// Our ARP request leaves by the ring; the reply goes to the kernel, a packet socket sees it, and
// the control thread tells us. Invariant: a waiting send is posted once, in order, or reported as
// failed once. Requests are repeated kTries times; an answer is asked for again, by unicast, before
// it expires.
// Units: nanoseconds. Threads: the ring's owner. Spec: RFC 826, RFC 1122 section 2.3.2.

#ifndef XTREME_XTREME_ENGINE_NEIGHBOURS_H_
#define XTREME_XTREME_ENGINE_NEIGHBOURS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "stack/wire/address.h"
#include "xtreme/engine/neighbour_waiters.h"
#include "xtreme/engine/ring_timer.h"
#include "xtreme/engine/send_log.h"

namespace xtreme::engine {

struct RingCore;

// A frame that waits for its destination MAC address; the headers are complete but for it.
struct WaitingFrame {
  std::array<uint8_t, 64> headers;
  uint32_t header_bytes = 0;
  packet::Buffer* buffer = nullptr;  // The payload, and one reference; null: no payload.
  const uint8_t* data = nullptr;
  uint32_t length = 0;
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
  static constexpr int kTries = 4;
  static constexpr base::Nanoseconds kFirstInterval = base::Milliseconds(200);  // Then doubled.
  static constexpr base::Nanoseconds kValid = base::Seconds(30);
  static constexpr base::Nanoseconds kProbeBefore = base::Seconds(5);

  // Both outlive it.
  Neighbours(RingCore* core, NeighbourWaiters* waiters) : core_(core), waiters_(waiters) {}
  ~Neighbours();

  // The MAC address of `next_hop` when we know it; null, and a request on its way, when not.
  const wire::MacAddress* Find(wire::Ipv4Address next_hop, wire::Ipv4Address source);
  // Whether `count` more frames may wait for it.
  bool HasRoom(wire::Ipv4Address next_hop, uint32_t count) const;
  // After Find() gave null. HasRoom() said yes.
  void Wait(wire::Ipv4Address next_hop, const WaitingFrame& frame);
  void Wait(wire::Ipv4Address next_hop, const WaitingConnect& connect);

  // Somebody, or the kernel, says so: what waits is posted. Nothing happens for one that nobody
  // asked for.
  void Seen(wire::Ipv4Address address, wire::MacAddress mac);
  void Expire(RingTimer* timer);
  // Asks the kernel's snapshot for all that wait.
  void AdoptRoutes();

 private:
  enum class State : uint8_t { kAsking, kKnown };

  struct Entry : RingTimer {
    Entry() : RingTimer(Use::kNeighbour) {}
    wire::Ipv4Address address;
    wire::Ipv4Address source;
    wire::MacAddress mac;
    State state = State::kAsking;
    int tries = 0;
    base::Nanoseconds valid_until;
    bool used = false;  // Since it was last confirmed.
    std::deque<WaitingFrame> frames;
    std::vector<WaitingConnect> connects;
  };

  void SendRequest(Entry& entry);
  void Ask(Entry& entry);
  void Fail(Entry& entry);
  void Flush(Entry& entry);
  void PostWaiting(Entry& entry, WaitingFrame& frame);

  RingCore* const core_;
  NeighbourWaiters* const waiters_;
  std::map<wire::Ipv4Address, std::unique_ptr<Entry>> entries_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_NEIGHBOURS_H_
