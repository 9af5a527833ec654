// SPDX-License-Identifier: Apache-2.0
//
// Names: the kernel's socket has them first, so that its errors and answers are the right ones.

#include <cerrno>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/socket.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/udp.h"

namespace xtreme::sockets {

void Socket::LearnLocal() {
  sockaddr_in name{};
  socklen_t length = sizeof name;
  if (Kernel().getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &length) == 0) {
    local_ = FromSockaddr(name);
  }
}

int Socket::Bind(const sockaddr_in& local) {
  const std::lock_guard<std::recursive_mutex> lock(faces_->setup());
  if (Kernel().bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    return -errno;
  }
  bound_ = true;
  LearnLocal();
  if (path() == Path::kUndecided) DecideLocked();
  return 0;
}

int Socket::Connect(const sockaddr* peer, socklen_t length) {
  const std::lock_guard<std::recursive_mutex> lock(faces_->setup());
  if (Kernel().connect(fd_, peer, length) != 0) return -errno;
  if (peer->sa_family == AF_UNSPEC) return Dissolve();
  return ConnectDatagram(*reinterpret_cast<const sockaddr_in*>(peer));
}

int Socket::ConnectDatagram(const sockaddr_in& peer) {
  peer_ = FromSockaddr(peer);
  const bool was_any = local_.address.IsAny();
  if (!bound_) LearnLocal();
  bound_ = true;
  if (path() == Path::kKernel) return 0;
  const auto departure = DepartureTo(fd_, peer_);
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
  const RingDoor::Entry entry(door());
  const engine::Outcome outcome = door()->ring().udp().Connect(handle_, peer_, 0);
  if (!outcome.ok()) LeaveToKernelLocked(outcome.text);
  if (was_any) LearnLocal();
  return 0;
}

// A ring's socket stays connected: another one takes its place.
int Socket::Dissolve() {
  peer_ = {};
  LearnLocal();
  if (path() != Path::kOffloaded) return 0;
  TakeDown();
  path_.store(Path::kUndecided, std::memory_order_release);
  // The kernel took the port too, if it had chosen it.
  bound_ = local_.port != 0;
  if (bound_) DecideLocked();
  return 0;
}

int Socket::Name(sockaddr* to, socklen_t* length) const {
  return Kernel().getsockname(fd_, to, length) == 0 ? 0 : -errno;
}

int Socket::PeerName(sockaddr* to, socklen_t* length) const {
  return Kernel().getpeername(fd_, to, length) == 0 ? 0 : -errno;
}

}  // namespace xtreme::sockets
