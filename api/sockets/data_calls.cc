// SPDX-License-Identifier: Apache-2.0
//
// The short ways (short_way.h) are one function a call: what is inlined has no other caller, and
// stands there for a program of one thread and for others.

#include "api/sockets/data_calls.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/progress.h"
#include "api/sockets/short_way.h"
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

[[gnu::noinline]] ssize_t ReceiveLong(int fd, iovec to, int flags, sockaddr* from,
                                      socklen_t* from_length) {
  const ErrnoKept kept;
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  MakeWay(fd, ours.get());
  return ReceiveInto(*ours, {&to, 1}, flags, from, from_length);
}

// No more arguments than there are registers for: else its callers need a frame.
[[gnu::noinline]] ssize_t GiveAndReceive(Socket* socket, iovec to, int flags, sockaddr* from,
                                         socklen_t* from_length) {
  return GiveAndCall(socket, [&](Socket& ours) {
    return ReceiveInto(ours, {&to, 1}, flags, from, from_length);
  });
}

[[gnu::noinline]] ssize_t SendLong(int fd, iovec from, int flags, const sockaddr* to,
                                   socklen_t length) {
  const ErrnoKept kept;
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  MakeWay(fd, ours.get());
  return SendFrom(*ours, {&from, 1}, flags, to, length);
}

}  // namespace

std::shared_ptr<Socket> OursByFd(int fd) {
  return Passage::Inside() ? nullptr : Faces::The().descriptors().FindSocket(fd);
}

void MakeWay(int fd, Socket* socket) {
  ShowOutside();
  RingDoor* const door = socket->door();
  if (door == nullptr || socket->path() != Path::kOffloaded) return;
  const Descriptors::Way* const way = Descriptors::WayTo(fd);
  if (way != nullptr && way->door() == nullptr) {
    Faces::The().descriptors().MakeWay(fd, socket, door);
  }
}

// --- Short ways ---

[[gnu::always_inline]] inline ssize_t Socket::SendShort(RingDoor* door,
                                                        std::span<const uint8_t> from, int flags) {
  if ((flags & ~kUsualFlags) != 0) [[unlikely]] return kLongWay;
  if ((plain_ & kSends) == 0) return SendStreamShort(door, from);
  if (from.size() > wire::kUdpMaxPayloadBytes) [[unlikely]] return kLongWay;
  engine::Ring& ring = door->ring();
  return SentDatagram(engine::Send(ring.core(), ring.udp(), *udp_socket_,
                                   {.data = from.data(), .length = from.size()}, {}),
                      from.size());
}

[[gnu::always_inline]] inline bool Socket::SendsAlone(size_t size) const {
  if (alone_.owner != OutsideToken()) return false;
  const engine::SendFlow& flow = alone_.flows->connected;
  return flow.epoch == alone_.core->host.routes_version && size < flow.short_below;
}

// Counted first, and the call kept where it is found again: nothing but this has to be saved.
[[gnu::always_inline]] inline ssize_t Socket::SendAlone(std::span<const uint8_t> from, int flags) {
  alone_.from = from;
  alone_.flags = flags;
  engine::CountSent(*alone_.flows, from.size());
  const auto length = static_cast<uint32_t>(from.size());
  const nic::TxStatus status = alone_.core->device.queue->PostCopied(
      alone_.flows->connected.prepared, from.data(), length, /*flags=*/0);
  if (status != nic::TxStatus::kPosted) [[unlikely]] return SendAloneAgain(status);
  return static_cast<ssize_t>(alone_.from.size());
}

// It was not sent, nor is its count true.
[[gnu::noinline]] ssize_t Socket::SendAloneAgain(nic::TxStatus status) {
  const ErrnoKept kept;
  const std::span<const uint8_t> from = alone_.from;
  --alone_.flows->counters.sent;
  alone_.flows->counters.sent_bytes -= from.size();
  const engine::SendResult result = door()->ring().udp().SendAgain(
      *udp_socket_, alone_.flows->connected, {.data = from.data(), .length = from.size()},
      /*flags=*/0, status);
  const ssize_t sent = SentDatagram(result, from.size());
  if (sent >= 0) return sent;
  const std::shared_ptr<Socket> held = shared_from_this();
  const iovec part{.iov_base = const_cast<uint8_t*>(from.data()), .iov_len = from.size()};
  return SendFrom(*held, {&part, 1}, alone_.flags, nullptr, 0);
}

[[gnu::always_inline]] inline ssize_t Socket::SendShortTo(RingDoor* door,
                                                          std::span<const uint8_t> from, int flags,
                                                          const wire::Endpoint& to) {
  if ((plain_ & kSendsTo) == 0 || (flags & ~kUsualFlags) != 0) return kLongWay;
  if (from.size() > wire::kUdpMaxPayloadBytes || to.port == 0) [[unlikely]] return kLongWay;
  return SentDatagram(door->ring().udp().SendTo(udp_socket_, to,
                                                {.data = from.data(), .length = from.size()}, {}),
                      from.size());
}

// The long way tries again, and counts what is refused for good.
[[gnu::noinline]] ssize_t Socket::TakeBackRefusal(engine::SendResult reason) {
  engine::Ring& ring = door()->ring();
  if (stream_ == nullptr) {
    ring.udp().Uncount(*udp_socket_, reason);
  } else {
    ring.tcp().Uncount(*stream_->tcp_socket, reason);
  }
  return kLongWay;
}

[[gnu::always_inline]] inline ssize_t Socket::SentDatagram(engine::SendResult result,
                                                           size_t bytes) {
  if (!IsTaken(result)) [[unlikely]] return TakeBackRefusal(result);
  if (awaited(kSent)) [[unlikely]] Change(0, 0, kSent);
  return static_cast<ssize_t>(bytes);
}

// Of what leaves ample room. While what was polled is not given, a connection may have ended that
// is not known to yet.
[[gnu::always_inline]] inline ssize_t Socket::SendStreamShort(RingDoor* door,
                                                              std::span<const uint8_t> from) {
  // Of none, or of more than there ever is room for.
  const bool odd = from.size() - 1 >= std::numeric_limits<int32_t>::max();
  if ((plain_ & kSendsBytes) == 0 || odd || door->behind()) return kLongWay;
  engine::TcpSocket* const socket = stream_->tcp_socket;
  const tcp::Connection* const connection = socket->connection;
  if (connection == nullptr) return kLongWay;
  if (!connection->LeavesAmpleRoom(static_cast<uint32_t>(from.size()))) return kLongWay;
  static constexpr engine::SendOptions kPlainly;
  const engine::SendResult result =
      door->ring().tcp().Send(socket, {.data = from.data(), .length = from.size()}, kPlainly);
  if (!IsTaken(result)) [[unlikely]] return TakeBackRefusal(result);
  CountSent(/*warm=*/false, from.size());
  return static_cast<ssize_t>(from.size());
}

// Here, where most packets of connections are read, so that it is no call of its own.
void Socket::ReleaseRead(RingDoor* door, packet::Buffer* buffer) {
  door->ring().tcp().ReleaseRead(*stream_->tcp_socket, buffer);
}

// Connections have no source to tell.
[[gnu::always_inline]] inline ssize_t Socket::ReceiveShort(RingDoor* door,
                                                           std::span<uint8_t> to, int flags,
                                                           Arrived* about) {
  if ((flags & ~kUsualFlags) != 0) [[unlikely]] return kLongWay;
  if (about != nullptr && stream_ != nullptr) [[unlikely]] return kLongWay;
  if ((plain_ & kTakesNext) == 0) return ReceiveQueued(to, about);
  if (door->behind()) [[unlikely]] return kLongWay;
  const ssize_t got = TakeArriving(door, to, about);
  return got == -EAGAIN && Waits(flags) ? kLongWay : got;
}

// Of no bytes of a connection nothing is to be said but errors; of its packets, what is read may
// be a part of one, or several.
[[gnu::noinline]] ssize_t Socket::ReceiveQueued(std::span<uint8_t> to, Arrived* about) {
  if ((plain_ & kReceives) == 0 || queue_.empty()) return kLongWay;
  if (stream_ != nullptr && to.empty()) return kLongWay;
  const Received& front = queue_.front();
  if (stream_ != nullptr && (queue_.size() != 1 || front.length > to.size())) {
    const iovec part{.iov_base = to.data(), .iov_len = to.size()};
    ReceiveRequest request{.to = {&part, 1}};
    return TakeBytes(&request);
  }
  if (about != nullptr) *about = {front.source, front.length};
  const size_t copied = CopyOut(front, to.data(), to.size());
  DropFirst();
  return static_cast<ssize_t>(copied);
}

// --- The calls ---

ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags) {
  const auto call = [&](Socket& socket, RingDoor* door) __attribute__((always_inline)) {
    const ssize_t taken =
        socket.ReceiveShort(door, {static_cast<uint8_t*>(to), size}, flags, nullptr);
    if (taken != kGiveFirst) [[likely]] return taken;
    return GiveAndReceive(&socket, {to, size}, flags, nullptr, nullptr);
  };
  const ssize_t got = ByShortWay(fd, call);
  if (got != kLongWay) [[likely]] return got;
  return ReceiveLong(fd, {to, size}, flags, nullptr, nullptr);
}

ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags, sockaddr* from,
                    socklen_t* from_length) {
  if (from == nullptr && from_length == nullptr) return ReceiveOurs(fd, to, size, flags);
  const auto call = [&](Socket& socket, RingDoor* door) __attribute__((always_inline)) {
    Socket::Arrived about;
    const ssize_t taken =
        socket.ReceiveShort(door, {static_cast<uint8_t*>(to), size}, flags, &about);
    if (taken == kGiveFirst) [[unlikely]] {
      return GiveAndReceive(&socket, {to, size}, flags, from, from_length);
    }
    if (taken >= 0) GiveAddress(about.source, from, from_length);
    return taken;
  };
  const ssize_t got = ByShortWay(fd, call);
  if (got != kLongWay) [[likely]] return got;
  return ReceiveLong(fd, {to, size}, flags, from, from_length);
}

namespace {

// A function of its own: who finds out that it is this one has nothing to save.
[[gnu::noinline]] ssize_t SendByWay(int fd, const void* from, size_t size, int flags,
                                    const Descriptors::Way& way) {
  const auto call = [&](Socket& socket, RingDoor* door) __attribute__((always_inline)) {
    return socket.SendShort(door, {static_cast<const uint8_t*>(from), size}, flags);
  };
  const ssize_t sent = ByShortWay(way, call);
  if (sent >= 0) [[likely]] return sent;
  return SendLong(fd, {const_cast<void*>(from), size}, flags, nullptr, 0);
}

}  // namespace

ssize_t SendOurs(int fd, const void* from, size_t size, int flags) {
  const Descriptors::Way* const way = Descriptors::WayTo(fd);
  if (way == nullptr) [[unlikely]] {
    return SendLong(fd, {const_cast<void*>(from), size}, flags, nullptr, 0);
  }
  Socket* const alone = way->alone();
  if (alone != nullptr && (flags & ~kUsualFlags) == 0 && alone->SendsAlone(size)) {
    return alone->SendAlone({static_cast<const uint8_t*>(from), size}, flags);
  }
  return SendByWay(fd, from, size, flags, *way);
}

ssize_t SendOurs(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                 socklen_t length) {
  if (to == nullptr) return SendOurs(fd, from, size, flags);
  const auto call = [&](Socket& socket, RingDoor* door) __attribute__((always_inline)) {
    std::optional<wire::Endpoint> endpoint;
    if (!TakeAddress(to, length, &endpoint)) [[unlikely]] return kLongWay;
    return socket.SendShortTo(door, {static_cast<const uint8_t*>(from), size}, flags, *endpoint);
  };
  const ssize_t sent = ByShortWay(fd, call);
  if (sent >= 0) [[likely]] return sent;
  return SendLong(fd, {const_cast<void*>(from), size}, flags, to, length);
}

void GiveAddress(const wire::Endpoint& endpoint, void* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return;
  const sockaddr_in address = ToSockaddr(endpoint);
  memcpy(to, &address, std::min<size_t>(*length, sizeof address));
  *length = sizeof address;
}

void GiveSource(const Socket& socket, const wire::Endpoint& source, void* to, socklen_t* length) {
  if (socket.type() == SOCK_DGRAM) return GiveAddress(source, to, length);
  if (to != nullptr && length != nullptr) *length = 0;
}

ssize_t ReceiveInto(Socket& socket, std::span<const iovec> parts, int flags, sockaddr* from,
                    socklen_t* from_length) {
  ReceiveRequest request{.to = parts, .flags = flags};
  const ssize_t got = socket.Receive(&request);
  if (got < 0) return got;
  GiveSource(socket, request.about.source, from, from_length);
  return got;
}

ssize_t SendFrom(Socket& socket, std::span<const iovec> parts, int flags, const sockaddr* to,
                 socklen_t length, bool wrong) {
  std::optional<wire::Endpoint> endpoint;
  const bool datagrams = socket.type() == SOCK_DGRAM;
  if (datagrams && !TakeAddress(to, length, &endpoint)) return kAskKernel;
  const ssize_t sent = socket.Send({.from = parts,
                                    .flags = flags,
                                    .to = endpoint ? &*endpoint : nullptr,
                                    .wrong = wrong});
  if (sent == -EPIPE && !datagrams && (flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
  return sent;
}

}  // namespace xtreme::sockets
