// SPDX-License-Identifier: Apache-2.0
//
// Names: the kernel's socket has them first, so that its errors and answers are the right ones.

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/udp.h"

namespace xtreme::sockets {

void Socket::LearnLocal() {
  sockaddr_in name{};
  socklen_t length = sizeof name;
  if (Kernel().getsockname(fd(), reinterpret_cast<sockaddr*>(&name), &length) == 0) {
    local_ = FromSockaddr(name);
  }
}

// Linux: a connection that ends gives up the port that was chosen for it. The kernel's socket was
// never connected: it gives up its own where it ceases to listen.
void Socket::GiveUpPort() {
  if (!std::exchange(any_port_, false)) return;
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  if (Kernel().listen(fd(), 0) == 0) Kernel().connect(fd(), &nobody, sizeof nobody);
}

int Socket::Bind(const sockaddr_in& local) {
  const std::lock_guard lock(faces_->setup());
  // Linux: a connection that has ended may have another port, but does not connect again. One that
  // the program chose the kernel's socket has.
  const bool ended = stream_ != nullptr && stream_->state == Stream::State::kEnded;
  if (stream_ != nullptr && path() == Path::kOffloaded && !ended) {
    // It has a name already, of which the kernel's socket may not know.
    const wire::Ipv4Address address = FromSockaddr(local).address;
    return address.IsAny() || !InterfaceOf(address).empty() ? -EINVAL : -EADDRNOTAVAIL;
  }
  if (ended) GiveUpPort();
  if (Kernel().bind(fd(), reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    return -errno;
  }
  bound_ = true;
  any_port_ = local.sin_port == 0 && !ended;
  LearnLocal();
  // Whether one with SO_REUSEPORT takes groups is seen when it joins one, or is used before.
  const bool may_join = reuse_port_ && local_.address.IsAny() && memberships_.empty();
  if (path() == Path::kUndecided && stream_ == nullptr && !may_join) DecideLocked();
  return 0;
}

int Socket::Connect(const sockaddr* peer, socklen_t length) {
  if (stream_ != nullptr && path() != Path::kKernel) {
    if (peer->sa_family == AF_INET) {
      const int result = ConnectStream(*reinterpret_cast<const sockaddr_in*>(peer));
      if (result != kAskKernel) return result;
    } else if (const std::lock_guard lock(faces_->setup()); path() == Path::kOffloaded) {
      EndStreamAnew();
      return 0;
    } else if (path() == Path::kUndecided) {
      stream_->state = Stream::State::kIdle;  // It may have been to be a listener.
    }
    return Kernel().connect(fd(), peer, length) == 0 ? 0 : -errno;
  }
  // It may wait there, and nobody is to wait for it meanwhile.
  if (stream_ != nullptr) return Kernel().connect(fd(), peer, length) == 0 ? 0 : -errno;
  const std::lock_guard lock(faces_->setup());
  if (Kernel().connect(fd(), peer, length) != 0) return -errno;
  if (peer->sa_family == AF_UNSPEC) return Dissolve();
  return ConnectDatagram(*reinterpret_cast<const sockaddr_in*>(peer));
}

int Socket::ConnectDatagram(const sockaddr_in& peer) {
  const bool was_any = local_.address.IsAny();
  {
    std::optional<RingDoor::Entry> entry;
    if (door() != nullptr) entry.emplace(door());
    peer_ = FromSockaddr(peer);
    if (!bound_) LearnLocal();
  }
  bound_ = true;
  if (path() != Path::kUndecided && path() != Path::kOffloaded) return 0;
  if (peer_.port == 0) {
    LeaveToKernelLocked("its peer has no port");
    return 0;
  }
  const auto departure = DepartureTo(fd(), peer_, group_interface_);
  if (!departure) {
    LeaveToKernelLocked("its peer is in this host, or has no route");
    return 0;
  }
  if (path() == Path::kUndecided) {
    DecideLocked();
    return 0;
  }
  if (departure->interface != door()->interface()) {
    LeaveToKernelLocked("its peer is reached by " + departure->interface);
    return 0;
  }
  if (std::string rule = RuleAgainst(Role::kUdpConnect, peer_, local_); !rule.empty()) {
    LeaveToKernelLocked(rule);
    return 0;
  }
  const RingDoor::Entry entry(door());
  const engine::Outcome outcome = door()->ring().udp().Connect(handle_, peer_, 0);
  SetPlain();
  if (!outcome.ok()) LeaveToKernelLocked(outcome.text);
  if (was_any) LearnLocal();
  return 0;
}

// What came before goes to the socket that took the place of the one on `ring`; if none did, it is
// lost.
void Socket::KeepWaiting(RingDoor* ring, std::deque<Received>* waits) {
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  if (door() != ring) {
    for (Received& packet : *waits) Release(&packet);
    return;
  }
  waits->insert(waits->end(), queue_.begin(), queue_.end());
  queue_.clear();
  queued_bytes_ = 0;
  for (const Received& packet : *waits) Queue(packet);
}

// A ring's socket stays connected: another one takes its place.
int Socket::Dissolve() {
  const bool was_on_ring = path() == Path::kOffloaded;
  RingDoor* const ring = door();
  std::deque<Received> waits;
  if (was_on_ring) {
    const RingDoor::Entry entry(ring);
    waits.swap(queue_);
    path_.store(Path::kUndecided, std::memory_order_release);
  }
  TakeDown();
  peer_ = {};
  LearnLocal();
  if (!was_on_ring) return 0;
  // The kernel took the port too, if it had chosen it.
  bound_ = local_.port != 0;
  if (bound_) DecideLocked();
  KeepWaiting(ring, &waits);
  // Until it has a port, who watches it watches the kernel's socket.
  Change(0, 0, EPOLLHUP);
  return 0;
}

namespace {

int Give(const wire::Endpoint& endpoint, sockaddr* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return -EFAULT;
  if (static_cast<int>(*length) < 0) return -EINVAL;
  const sockaddr_in address = ToSockaddr(endpoint);
  memcpy(to, &address, std::min<size_t>(*length, sizeof address));
  *length = sizeof address;
  return 0;
}

}  // namespace

// A connection's ends are the ring's. A child of fork() still knows its parent's, and asks for them
// before it gets as far as a call that says what it cannot do.
std::optional<Socket::Ends> Socket::EndsOnRing() const {
  if (path() == Path::kParents && peer_.port != 0) return Ends{local_, peer_};
  RingDoor* const ring = door();
  if (stream_ == nullptr || ring == nullptr) return std::nullopt;
  const RingDoor::Entry entry(ring);
  if (path() != Path::kOffloaded || peer_.port == 0) return std::nullopt;
  return Ends{local_, peer_};
}

namespace {

// Of what connects from a port of the ring's, which chooses it as SYN leaves: the first waits for
// ports, and any for a neighbour that is asked for. 0: it waits for longer than this.
uint16_t PortOfAttempt(const Socket& socket) {
  constexpr int kTries = 20;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  const Uncancelled whole;
  for (int tries = 0; tries < kTries; ++tries) {
    RingDoor* const ring = socket.door();
    if (ring == nullptr) return 0;
    {
      const RingDoor::Entry entry(ring);
      ring->Progress();
      const engine::TcpSocket* const attempt = ring->ring().tcp().Find(socket.handle());
      if (attempt == nullptr) return socket.local().port;
      if (attempt->local.port != 0) return attempt->local.port;
    }
    nanosleep(&kPause, nullptr);
  }
  return 0;
}

}  // namespace

int Socket::Name(sockaddr* to, socklen_t* length) const {
  auto ends = EndsOnRing();
  if (ends && ends->local.port == 0) {
    const uint16_t port = PortOfAttempt(*this);
    ends = EndsOnRing();  // It may be the kernel's by now.
    if (ends && ends->local.port == 0) ends->local.port = port;
  }
  if (ends) return Give(ends->local, to, length);
  return Kernel().getsockname(fd(), to, length) == 0 ? 0 : -errno;
}

int Socket::PeerName(sockaddr* to, socklen_t* length) const {
  if (const auto ends = EndsOnRing()) {
    const bool there = stream_->established && stream_->state != Stream::State::kEnded;
    return there ? Give(ends->peer, to, length) : -ENOTCONN;
  }
  return Kernel().getpeername(fd(), to, length) == 0 ? 0 : -errno;
}

}  // namespace xtreme::sockets
