// SPDX-License-Identifier: Apache-2.0
//
// The short way of a call: by its descriptor to the door of a ring, and inside, to the socket.
//
// Invariant: nobody has a reference to the socket, but it lives until something is given that came,
// which may close it: then a reference is taken first, or the socket is not touched after.
// Threads: any.

#ifndef XTREME_API_SOCKETS_SHORT_WAY_H_
#define XTREME_API_SOCKETS_SHORT_WAY_H_

#include <sys/types.h>

#include <memory>
#include <utility>

#include "api/sockets/descriptors.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/progress.h"
#include "api/sockets/socket.h"

namespace xtreme::sockets {

// What `call(socket, door)` says of the socket behind `way`, inside the door that it leads to;
// kLongWay: it leads nowhere, or the call is the kernel's.
template <typename Call>
[[gnu::always_inline]] inline ssize_t Inside(const Descriptors::Way& way, RingDoor* door,
                                             const Call& call) {
  Socket* const socket = way.socket();
  return socket != nullptr && socket->door() == door ? call(*socket, door) : kLongWay;
}

// Twice, and `call` with it, which is inlined by its word: so that a program of one thread neither
// keeps what it entered nor asks as it leaves.
template <typename Call>
[[gnu::always_inline]] inline ssize_t ByShortWay(const Descriptors::Way& way, const Call& call) {
  const uintptr_t self = OutsideToken();
  RingDoor* const door = way.door();
  if (door == nullptr) return kLongWay;
  if (door->single()) return door->EnterSingle(self) ? Inside(way, door, call) : kLongWay;
  if (self == 0) return kLongWay;
  const RingDoor::LockedEntry entry(door, self);
  return Inside(way, door, call);
}

template <typename Call>
[[gnu::always_inline]] inline ssize_t ByShortWay(int fd, const Call& call) {
  const Descriptors::Way* const way = Descriptors::WayTo(fd);
  return way != nullptr ? ByShortWay(*way, call) : kLongWay;
}

// The next call may come by a short way.
void MakeWay(int fd, Socket* socket);

// Of the long way. Null: the kernel's.
std::shared_ptr<Socket> OursByFd(int fd);

// From inside the socket's door, after kGiveFirst: what came there is given first, which may close
// the socket; then `call(socket)`, outside.
template <typename Call>
ssize_t GiveAndCall(Socket* socket, const Call& call) {
  const ErrnoKept kept;
  RingDoor* const door = socket->door();
  std::shared_ptr<Socket> held = socket->shared_from_this();
  door->EndProgress(0);
  const RingDoor::Outside outside(door);
  const std::shared_ptr<Socket> ours = std::move(held);  // It may end, outside.
  return call(*ours);
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_SHORT_WAY_H_
