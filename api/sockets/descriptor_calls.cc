// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/descriptor_calls.h"

#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <utility>

#include "api/sockets/data_calls.h"
#include "api/sockets/deferred_listeners.h"
#include "api/sockets/descriptors.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/poll.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {
namespace {

// One descriptor of `what` is gone, which was `fd`.
template <typename T>
void Drop(Faces& faces, int fd, const std::shared_ptr<T>& what) {
  if (what == nullptr) return;
  if (--what->descriptors == 0) return what->Close();
  if (what->fd() != fd) return;
  // The others are as good to call the kernel by.
  faces.descriptors().ForEach([&](int other, const Descriptors::Meaning& meaning) {
    const bool same = static_cast<const Pollable*>(meaning.socket.get()) == what.get() ||
                      static_cast<const Pollable*>(meaning.epoll.get()) == what.get();
    if (same && !meaning.closing) what->Rename(other);
  });
}

void Drop(Faces& faces, int fd, const Descriptors::Meaning& meaning) {
  Drop(faces, fd, meaning.socket);
  Drop(faces, fd, meaning.epoll);
  if (meaning.way == nullptr) return;
  // Who came by the way that led here has left when this thread has been inside.
  const std::lock_guard lock(faces.setup());
  const RingDoor::Entry pass(meaning.way);
}

// Whether what wakes its sleepers is not the kernel's.
bool IsOnRings(const Descriptors::Meaning& meaning) {
  Doors doors;
  if (meaning.socket != nullptr) meaning.socket->AddDoors(&doors);
  if (meaning.epoll != nullptr) meaning.epoll->AddDoors(&doors);
  return !doors.empty();
}

// A child of the listener becomes a descriptor of the program.
int HandOut(Faces& faces, const std::shared_ptr<Socket>& child, sockaddr* address,
            socklen_t* length) {
  const int fd = child->fd();
  Drop(faces, fd, faces.descriptors().Put(fd, {.socket = child}));
  const bool wrong = address != nullptr && length != nullptr && static_cast<int>(*length) < 0;
  if (wrong) {  // Linux: it is accepted all the same, and closed.
    Forget(faces, fd);
    Kernel().close(fd);
    return -EINVAL;
  }
  // Linux: of one that its peer has reset already, too.
  GiveAddress(child->peer(), address, length);
  return fd;
}

// Waits for either side. 0; -EAGAIN: SO_RCVTIMEO is over; -EINTR.
int AwaitConnection(Faces& faces, int fd, base::Nanoseconds until) {
  for (;;) {
    const base::Nanoseconds left =
        until == base::kNever ? until
                              : base::Later(until - SteadyNow(), base::Nanoseconds(0));
    pollfd one{.fd = fd, .events = POLLIN};
    const int ready = Poll(faces, {&one, 1}, left, nullptr);
    if (ready > 0) return 0;
    if (ready == 0) return -EAGAIN;
    if (ready != -EINTR || until != base::kNever || !CallsAreRestarted()) return ready;
  }
}

}  // namespace

std::shared_ptr<Socket> AddSocket(Faces& faces, int fd, int type, bool nonblocking) {
  const Uncancelled whole;
  const int own_multicast = faces.settings().multicast_loop ? 1 : 0;
  if (type == SOCK_DGRAM && own_multicast == 0) {
    Kernel().setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &own_multicast, sizeof own_multicast);
  }
  auto socket =
      std::make_shared<Socket>(&faces, fd, type, nonblocking, faces.OffloadsThisThread());
  Drop(faces, fd, faces.descriptors().Put(fd, {.socket = socket}));
  return socket;
}

std::shared_ptr<EpollSet> AddSet(Faces& faces, int fd) {
  const Uncancelled whole;
  auto set = std::make_shared<EpollSet>(&faces, fd);
  Drop(faces, fd, faces.descriptors().Put(fd, {.epoll = set}));
  return set;
}

int Share(Faces& faces, int fd, int copy) {
  if (copy < 0 || copy == fd) return copy;
  const Uncancelled whole;
  Drop(faces, copy, faces.descriptors().Share(fd, copy));
  // Most likely for a program that it is to be the standard input of.
  if (const auto socket = faces.descriptors().FindSocket(copy)) socket->WarnOfParents();
  return copy;
}

void Forget(Faces& faces, int fd) {
  const Uncancelled whole;
  if (const auto socket = faces.descriptors().FindSocket(fd)) socket->LingerBeforeClose();
  const Descriptors::Meaning meaning = faces.descriptors().BeginClose(fd);
  if (meaning.socket == nullptr && meaning.epoll == nullptr && meaning.ring == nullptr) return;
  if (meaning.socket != nullptr && meaning.socket->descriptors > 1) meaning.socket->SayCloses(fd);
  const bool on_rings = IsOnRings(meaning);
  // The kernel's side of a listener ends first, unless another process has it too: the port that
  // the ring's side leaves to connections is nobody's to listen at.
  const bool listens = on_rings && meaning.socket != nullptr && meaning.socket->listening();
  if (listens && meaning.socket->descriptors == 1) Deaden(fd);
  Drop(faces, fd, meaning);
  // Who found nothing here would ask the kernel, which would let it sleep for ever on what nothing
  // comes to any more.
  if (on_rings) Deaden(fd);
  faces.descriptors().EndClose(fd);
}

int Accept(Faces& faces, const std::shared_ptr<Socket>& listener, int fd, sockaddr* address,
           socklen_t* length, int flags) {
  if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return -EINVAL;
  const bool waits = !listener->nonblocking();
  const base::Nanoseconds limit = listener->receive_timeout();
  const base::Nanoseconds until =
      !waits || limit == base::kNever ? base::kNever : base::DeadlineAfter(SteadyNow(), limit);
  for (;;) {
    int error = 0;
    if (const auto child = listener->Accept(flags, &error)) {
      return HandOut(faces, child, address, length);
    }
    if (error != kAskKernel) return error;
    const int waited = waits ? AwaitConnection(faces, fd, until) : 0;
    if (waited != 0) return waited;
    // What the kernel has; if it has nothing, the ring has.
    pollfd kernels{.fd = fd, .events = POLLIN};
    const bool on_both = waits && listener->listening();
    if (on_both && Kernel().poll(&kernels, 1, 0) != 1) continue;
    if (listener->Ended()) return -EBADF;
    if (!waits) {
      const int accepted = Kernel().accept4(fd, address, length, flags);
      const int result = accepted >= 0 ? accepted : -errno;
      if (result == -EAGAIN) faces.deferred().OfferAgain();
      return result;
    }
    const int accepted = on_both ? listener->AcceptInKernel(fd, address, length, flags)
                                 : listener->AwaitInKernel(fd, address, length, flags);
    const int once_more = on_both ? -EAGAIN : kAskKernel;
    if (accepted != once_more) return accepted;
  }
}

std::shared_ptr<Pollable> Target(Faces& faces, int fd, bool polls) {
  auto meaning = faces.descriptors().Find(fd);
  if (meaning.socket == nullptr) return meaning.epoll;
  if (polls) meaning.socket->TakeByCalls();
  if (polls && meaning.socket->path() == Path::kUndecided) meaning.socket->Decide();
  return meaning.socket;
}

}  // namespace xtreme::sockets
