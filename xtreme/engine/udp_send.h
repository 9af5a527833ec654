// SPDX-License-Identifier: Apache-2.0
//
// The short way of a send: a plain datagram to where the socket is connected, copied whole into its
// WQE. Inlined into whoever sends at every turn; everything else goes on in udp_send.cc.
//
// Invariant: a flow that is not current, not ready or not allowed to send has no short payloads, so
// one comparison decides. Threads: the ring's owner.
// `Core` is RingCore and `Socket` UdpSocket: who includes this has them defined, and who only
// includes who does need not.

#ifndef XTREME_XTREME_ENGINE_UDP_SEND_H_
#define XTREME_XTREME_ENGINE_UDP_SEND_H_

#include <cstdint>

#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

// Whether nothing about this send needs more than SendShort does.
template <typename Core>
inline bool IsShort(const Core& core, const SendFlow& flow, const Payload& payload,
                    uint32_t flags) {
  constexpr uint32_t kPlainFlags = kNoDoorbell | kNowOrFail;
  return flow.epoch == core.host.routes_version && payload.length < flow.short_below &&
         payload.buffer == nullptr && (flags & ~kPlainFlags) == 0;
}

// One by one, of which a compiler would make a vector: two instructions in place of up to five.
inline void CountSent(SendFlows& flows, size_t bytes) {
  ++flows.counters.sent;
  asm("" : "+m"(flows.counters.sent));
  flows.counters.sent_bytes += bytes;
}

template <typename Core>
inline nic::TxStatus PostShort(Core& core, const SendFlow& flow, const Payload& payload,
                               uint32_t flags) {
  static_assert(int{nic::kTxMore} == kNoDoorbell << 2);
  const uint32_t no_doorbell = flags & kNoDoorbell;
  core.OweDoorbell(no_doorbell != 0);
  return core.device.queue->PostCopied(flow.prepared, payload.data,
                                       static_cast<uint32_t>(payload.length), no_doorbell << 2);
}

template <typename Core, typename Socket>
inline SendResult SendShort(Core& core, Udp& udp, Socket& socket, SendFlows& flows,
                            SendFlow& flow, const Payload& payload, uint32_t flags) {
  const nic::TxStatus status = PostShort(core, flow, payload, flags);
  if (status != nic::TxStatus::kPosted) [[unlikely]] {
    const Payload again = payload;  // Only here does it need an address.
    return udp.SendAgain(socket, flow, again, flags, status);
  }
  CountSent(flows, payload.length);
  return SendResult::kSent;
}

// Udp::Send, in its caller.
template <typename Core, typename Socket>
[[gnu::always_inline]] inline SendResult Send(Core& core, Udp& udp, Socket& socket,
                                              const Payload& payload, const SendOptions& options) {
  core.CheckOwner();
  SendFlows* const flows = socket.flows.get();
  if (flows == nullptr || !IsShort(core, flows->connected, payload, options.flags)) [[unlikely]] {
    const Payload otherwise = payload;  // Only here do they need an address.
    const SendOptions with = options;
    return udp.SendOtherwise(socket, otherwise, with);
  }
  return SendShort(core, udp, socket, *flows, flows->connected, payload, options.flags);
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_UDP_SEND_H_
