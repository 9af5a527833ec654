// SPDX-License-Identifier: Apache-2.0
//
// SendFlow: everything a send to one destination needs, resolved ahead: headers, next hop, limits.
//
// Invariant: a flow is right for the state of the world that `epoch` names; when the ring's epoch
// has moved on (a route, a neighbour, a membership changed), the next send resolves it anew,
// without a system call.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_SEND_FLOW_H_
#define XTREME_XTREME_ENGINE_SEND_FLOW_H_

#include <array>
#include <cstdint>

#include "stack/base/counters.h"
#include "stack/wire/address.h"
#include "stack/wire/frame_template.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

enum SendFlag : uint32_t {
  kNowOrFail = 1 << 0,
  kNoDoorbell = 1 << 1,
  kSendWantDone = 1 << 2,
  kSendWantWire = 1 << 3,
  kWarm = 1 << 4,
  kMore = 1 << 5,  // TCP: more follows at once, a segment that is not full may wait for it.
};

struct SendOptions {
  uint32_t flags = 0;  // SendFlag.
  uint64_t cookie = 0;
};

// A datagram to send. With `buffer` the payload lies in it and one reference goes over to the ring
// when it is accepted; without, the payload is copied before the call returns.
struct Payload {
  const uint8_t* data = nullptr;
  size_t length = 0;
  packet::Buffer* buffer = nullptr;
};

struct SendFlow {
  enum class State : uint8_t {
    kUnresolved,
    kReady,
    kNeighbour,  // The next hop's MAC address is asked for.
    kNoRoute,    // None, another interface's, or not allowed.
  };

  // The headers as the device wants them.
  nic::TxTemplate prepared;
  // What a send looks at.
  uint64_t epoch = 0;
  State state = State::kUnresolved;
  bool loopback = false;       // Own listeners of the group get a copy.
  uint8_t header_bytes = 0;
  uint16_t tx_flags = 0;       // nic::TxFlag of every frame.
  // Payloads shorter than this take the short way (PostShort): copied whole into the WQE, checksums
  // by the NIC, no copy for own listeners. 0: none, the flow is not ready or not of that kind, or
  // the ring does not send. As wide as what is compared with it.
  uint64_t short_below = 0;
  // Of those that are not shorter, so many lengths from there on may be copied to on-device memory,
  // with as little to look at. 0: as above, or the device has none.
  uint64_t stored_lengths = 0;
  uint32_t max_payload = 0;    // Bytes that fit one frame.
  uint32_t mtu = 0;            // Of the IP packet.
  wire::Endpoint peer;
  wire::Endpoint source;
  wire::Ipv4Address next_hop;
  wire::FrameTemplate pattern;

  // All payloads, whatever their length.
  void TakeTheLongWay() { short_below = stored_lengths = 0; }
};

struct SendCounters {
  uint64_t sent = 0;
  uint64_t sent_bytes = 0;
  uint64_t queued = 0;

  static constexpr auto Table() {
    using C = SendCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"sent", "datagrams posted to the send queue", &C::sent},
        {"sent_bytes", "payload bytes of those datagrams", &C::sent_bytes},
        {"queued", "datagrams that waited for a neighbour", &C::queued},
    });
  }
};
static_assert(base::DescribesEveryCounter<SendCounters>());

// The flows of one socket: to its default destination, and to the last few others. They come with
// the first send or connect and go with the socket.
struct SendFlows {
  static constexpr uint32_t kRemembered = 4;

  // Of the socket whose flows they are; 0 if it has none.
  static const SendCounters& CountersOf(const SendFlows* flows) {
    static constexpr SendCounters kNone;
    return flows == nullptr ? kNone : flows->counters;
  }

  SendCounters counters;
  SendFlow connected;
  std::array<SendFlow, kRemembered> recent;
  uint32_t next = 0;  // Which of them is given up next.
  // Accepted, and neither sent nor failed yet: those that wait for a neighbour.
  uint64_t waiting = 0;
  uint64_t waiting_bytes = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SEND_FLOW_H_
