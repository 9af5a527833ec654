// SPDX-License-Identifier: Apache-2.0
//
// NeighbourWaiters: what the end of a next hop's resolution means to whoever waited for it.

#ifndef XTREME_XTREME_ENGINE_NEIGHBOUR_WAITERS_H_
#define XTREME_XTREME_ENGINE_NEIGHBOUR_WAITERS_H_

#include "stack/wire/address.h"

namespace xtreme::engine {

struct PacedQueue;
struct WaitingConnect;
struct WaitingFrame;

class NeighbourWaiters {
 public:
  virtual ~NeighbourWaiters() = default;
  // The queue with a rate that the frame goes by; null: the ring's own.
  virtual PacedQueue* PaceOf(const WaitingFrame& frame) const = 0;
  // The frame is in the send queue.
  virtual void OnPosted(const WaitingFrame& frame) = 0;
  // It never will be, because of `error`. The callee releases its buffer, and tells it once: with
  // the last frame of a datagram, which fails if one before it did.
  virtual void OnFailed(const WaitingFrame& frame, int error) = 0;
  // `error` 0: the next hop is known.
  virtual void OnConnected(const WaitingConnect& connect, int error) = 0;
  // A next hop that answered before does so no more.
  virtual void OnLost(wire::Ipv4Address next_hop) = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_NEIGHBOUR_WAITERS_H_
