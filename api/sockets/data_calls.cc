// SPDX-License-Identifier: Apache-2.0
//
// Invariant of the short ways: nobody has a reference to the socket, but it lives until something
// is given that came, which may close it: then a reference is taken first, or the socket is not
// touched after. They are one function a call: what is inlined has no other caller.

#include "api/sockets/data_calls.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/progress.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::sockets {
namespace {

// The address of a send; false: not one that a ring can reach.
bool TakeAddress(const sockaddr* to, socklen_t length, std::optional<wire::Endpoint>* endpoint) {
  if (to == nullptr) return true;
  if (length < sizeof(sockaddr_in) || to->sa_family != AF_INET) return false;
  *endpoint = FromSockaddr(*reinterpret_cast<const sockaddr_in*>(to));
  return true;
}

bool IsTaken(engine::SendResult result) {
  // Where too many wait for a neighbour it is dropped, and counted, as by the kernel.
  return static_cast<int>(result) >= 0 || result == engine::SendResult::kRefusedNeighbour;
}

// The long way tries again, and is not to count it again.
ssize_t Refused(bool* refused) {
  *refused = true;
  return kLongWay;
}

// What `call(socket, door)` says of the socket behind `fd`, inside the door that leads to it;
// kLongWay: no way does.
template <typename Call>
[[gnu::always_inline]] inline ssize_t ByShortWay(int fd, const Call& call) {
  if (Passage::Inside()) [[unlikely]] return kLongWay;
  const Descriptors::Way* const way = Faces::The().descriptors().WayTo(fd);
  RingDoor* const door = way == nullptr ? nullptr : way->door();
  if (door == nullptr) return kLongWay;
  const RingDoor::Entry entry(door);
  Socket* const socket = way->socket();
  return socket != nullptr && socket->door() == door ? call(*socket, door) : kLongWay;
}

// The next call may come by a short way.
void MakeWay(int fd, Socket* socket) {
  RingDoor* const door = socket->door();
  if (door == nullptr || socket->path() != Path::kOffloaded) return;
  if (Faces::The().descriptors().WayTo(fd)->door() == nullptr) {
    Faces::The().descriptors().MakeWay(fd, socket, door);
  }
}

// Null: the kernel's.
std::shared_ptr<Socket> Ours(int fd) {
  return Passage::Inside() ? nullptr : Faces::The().descriptors().FindSocket(fd);
}

[[gnu::noinline]] ssize_t ReceiveLong(int fd, const iovec& to, int flags, sockaddr* from,
                                      socklen_t* from_length, std::shared_ptr<Socket> ours) {
  const ErrnoKept kept;
  if (ours == nullptr) ours = Ours(fd);
  if (ours == nullptr) return kAskKernel;
  MakeWay(fd, ours.get());
  return ReceiveInto(*ours, {&to, 1}, flags, from, from_length);
}

[[gnu::noinline]] ssize_t SendLong(int fd, const iovec& from, int flags, const sockaddr* to,
                                   socklen_t length, bool refused) {
  const ErrnoKept kept;
  const auto ours = Ours(fd);
  if (ours == nullptr) return kAskKernel;
  MakeWay(fd, ours.get());
  return SendFrom(*ours, {&from, 1}, flags, to, length, refused);
}

}  // namespace

// --- Short ways ---

[[gnu::always_inline]] inline ssize_t Socket::SendShort(RingDoor* door,
                                                        std::span<const uint8_t> from, int flags,
                                                        const wire::Endpoint* to, bool* refused) {
  const uint8_t needed = to == nullptr ? kSends : kSendsTo;
  if ((plain_ & needed) == 0 || (flags & ~kUsualFlags) != 0) return kLongWay;
  return stream_ == nullptr ? SendDatagramShort(door, from, to, refused)
                            : SendStreamShort(door, from, refused);
}

[[gnu::always_inline]] inline ssize_t Socket::SendDatagramShort(RingDoor* door,
                                                                std::span<const uint8_t> from,
                                                                const wire::Endpoint* to,
                                                                bool* refused) {
  if (from.size() > wire::kUdpMaxPayloadBytes) [[unlikely]] return kLongWay;
  if (to != nullptr && to->port == 0) return kLongWay;
  engine::Ring& ring = door->ring();
  const engine::Payload payload{.data = from.data(), .length = from.size()};
  const engine::SendResult result =
      to == nullptr ? engine::Send(ring.core(), ring.udp(), *udp_socket_, payload, {})
                    : ring.udp().SendTo(udp_socket_, *to, payload, {});
  if (!IsTaken(result)) [[unlikely]] return Refused(refused);
  CountSent(/*warm=*/false, from.size());
  // Linux: a datagram that has left is an edge.
  Change(0, 0, EPOLLOUT | EPOLLWRNORM);
  return static_cast<ssize_t>(from.size());
}

// Of what leaves ample room. While what was polled is given, a connection may have ended that is
// not known to yet.
[[gnu::always_inline]] inline ssize_t Socket::SendStreamShort(RingDoor* door,
                                                              std::span<const uint8_t> from,
                                                              bool* refused) {
  if (from.empty() || door->polling()) return kLongWay;
  engine::TcpSocket* const socket = stream_->tcp_socket;
  const tcp::Connection* const connection = socket->connection;
  if (connection == nullptr) return kLongWay;
  if (connection->SendRoom() < connection->AmpleRoom() + from.size()) return kLongWay;
  const engine::SendResult result =
      door->ring().tcp().Send(socket, {.data = from.data(), .length = from.size()}, {});
  if (!IsTaken(result)) [[unlikely]] return Refused(refused);
  CountSent(/*warm=*/false, from.size());
  return static_cast<ssize_t>(from.size());
}

[[gnu::always_inline]] inline ssize_t Socket::ReceiveShort(RingDoor* door,
                                                           std::span<uint8_t> to, int flags,
                                                           wire::Endpoint* source,
                                                           std::shared_ptr<Socket>* held) {
  if ((plain_ & kReceives) == 0 || (flags & ~kUsualFlags) != 0) return kLongWay;
  // Connections have no source to tell, and of no bytes nothing is to be said but errors.
  if (stream_ != nullptr && (source != nullptr || to.empty())) return kLongWay;
  if (!queue_.empty()) return TakeQueued(to, source);
  const bool waits = Waits(flags);
  Arrived about;
  const ssize_t got = TakeArriving(door, to, &about, held);
  if (got == -EAGAIN && waits) return kLongWay;
  if (source != nullptr && got >= 0) *source = about.source;
  return got;
}

ssize_t Socket::TakeQueued(std::span<uint8_t> to, wire::Endpoint* source) {
  if (stream_ != nullptr) {
    const iovec part{.iov_base = to.data(), .iov_len = to.size()};
    ReceiveRequest request{.to = {&part, 1}};
    return TakeBytes(&request);
  }
  const Received& front = queue_.front();
  if (source != nullptr) *source = front.source;
  const size_t copied = CopyOut(front, to.data(), to.size());
  DropFirst();
  return static_cast<ssize_t>(copied);
}

// --- The calls ---

ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags, sockaddr* from,
                    socklen_t* from_length) {
  std::shared_ptr<Socket> held;
  wire::Endpoint source;
  const bool asks = from != nullptr || from_length != nullptr;
  const ssize_t got = ByShortWay(fd, [&](Socket& socket, RingDoor* door) {
    return socket.ReceiveShort(door, {static_cast<uint8_t*>(to), size}, flags,
                               asks ? &source : nullptr, &held);
  });
  if (got == kLongWay) [[unlikely]] {
    const iovec part{.iov_base = to, .iov_len = size};
    return ReceiveLong(fd, part, flags, from, from_length, std::move(held));
  }
  if (asks && got >= 0) GiveAddress(source, from, from_length);
  return got;
}

ssize_t SendOurs(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                 socklen_t length) {
  bool refused = false;
  const ssize_t sent = ByShortWay(fd, [&](Socket& socket, RingDoor* door) {
    std::optional<wire::Endpoint> endpoint;
    if (to != nullptr && !TakeAddress(to, length, &endpoint)) [[unlikely]] return kLongWay;
    return socket.SendShort(door, {static_cast<const uint8_t*>(from), size}, flags,
                            endpoint ? &*endpoint : nullptr, &refused);
  });
  if (sent != kLongWay) [[likely]] return sent;
  const iovec part{.iov_base = const_cast<void*>(from), .iov_len = size};
  return SendLong(fd, part, flags, to, length, refused);
}

void GiveAddress(const wire::Endpoint& endpoint, void* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return;
  const sockaddr_in address = ToSockaddr(endpoint);
  memcpy(to, &address, std::min<size_t>(*length, sizeof address));
  *length = sizeof address;
}

ssize_t ReceiveInto(Socket& socket, std::span<const iovec> parts, int flags, sockaddr* from,
                    socklen_t* from_length) {
  ReceiveRequest request{.to = parts, .flags = flags};
  const ssize_t got = socket.Receive(&request);
  if (got < 0) return got;
  // Connections have no source to tell (recv(2)).
  if (socket.type() == SOCK_DGRAM) {
    GiveAddress(request.about.source, from, from_length);
  } else if (from_length != nullptr) {
    *from_length = 0;
  }
  return got;
}

ssize_t SendFrom(Socket& socket, std::span<const iovec> parts, int flags, const sockaddr* to,
                 socklen_t length, bool refused) {
  std::optional<wire::Endpoint> endpoint;
  const bool datagrams = socket.type() == SOCK_DGRAM;
  if (datagrams && !TakeAddress(to, length, &endpoint)) return kAskKernel;
  const ssize_t sent = socket.Send({.from = parts,
                                    .flags = flags,
                                    .to = endpoint ? &*endpoint : nullptr,
                                    .refused = refused});
  if (sent == -EPIPE && !datagrams && (flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
  return sent;
}

}  // namespace xtreme::sockets
