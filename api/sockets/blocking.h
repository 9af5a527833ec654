// SPDX-License-Identifier: Apache-2.0
//
// Socket::Blocking: how every call that may block does: it tries, lets the ring make progress,
// tries again, and waits.
//
// A template, so that a call that need not wait costs no more than its tries. Threads: any.

#ifndef XTREME_API_SOCKETS_BLOCKING_H_
#define XTREME_API_SOCKETS_BLOCKING_H_

#include <sys/socket.h>

#include <cerrno>

#include "api/sockets/faces.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {

template <typename Take>
ssize_t Socket::Blocking(int flags, base::Nanoseconds limit, uint32_t events, const Take& take,
                         const ssize_t* done) {
  const auto again = [&](RingDoor* ring) {
    ring->Progress();
    return take();
  };
  return BlockingAs(flags, limit, events, take, again, done);
}

template <typename Take, typename Again>
ssize_t Socket::BlockingAs(int flags, base::Nanoseconds limit, uint32_t events, const Take& take,
                           const Again& again, const ssize_t* done) {
  const bool waits = Waits(flags);
  Waiting waiting(waits ? limit : base::Nanoseconds(0), faces_->settings().rx_poll, done);
  for (;;) {
    RingDoor* const ring = door();
    if (ring == nullptr) return Overtaken();
    {
      const RingDoor::Entry entry(ring);
      ssize_t result = take();
      if (result == -EAGAIN) result = again(ring);
      if (result != -EAGAIN || !waits) return result;
    }
    const int waited = waiting.Once(this, ring, events);
    if (waited != 0) return waited;
  }
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_BLOCKING_H_
