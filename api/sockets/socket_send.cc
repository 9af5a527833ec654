// SPDX-License-Identifier: Apache-2.0
//
// Sending: by the ring, or by the kernel's socket of the same name where the ring does not lead.

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <vector>

#include "api/sockets/blocking.h"
#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/refused_once.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"

namespace xtreme::sockets {
namespace {

size_t LengthOf(std::span<const iovec> parts) {
  size_t length = 0;
  for (const iovec& part : parts) length += part.iov_len;
  return length;
}

// The parts in one piece: in place, else in `scratch`.
[[gnu::always_inline]] inline std::span<const uint8_t> Gather(
    std::span<const iovec> parts, std::vector<uint8_t>* scratch) {
  if (parts.size() == 1) return {static_cast<const uint8_t*>(parts[0].iov_base), parts[0].iov_len};
  for (const iovec& part : parts) {
    const auto* bytes = static_cast<const uint8_t*>(part.iov_base);
    scratch->insert(scratch->end(), bytes, bytes + part.iov_len);
  }
  return *scratch;
}

// Of a datagram that the ring was asked to send. 0: it left, or waits for a neighbour that does not
// answer yet; where too many wait it is dropped, and counted, as by the kernel.
int ErrnoOf(engine::SendResult result) {
  switch (result) {
    case engine::SendResult::kRefusedSqFull:
    case engine::SendResult::kRefusedBuffers: return EAGAIN;
    case engine::SendResult::kRefusedRoute: return EHOSTUNREACH;
    case engine::SendResult::kRefusedSize: return EMSGSIZE;
    case engine::SendResult::kRefusedState: return ENETDOWN;
    case engine::SendResult::kRefusedNeighbour:
    default: return 0;
  }
}

}  // namespace

ssize_t Socket::SendByKernel(const msghdr& message, int flags) const {
  const ErrnoKept kept;
  ssize_t sent = Kernel().sendmsg(fd(), &message, flags);
  // An error of before, which the ring is to hear of (SetForRing()), and tells who has a peer;
  // Linux tells none of it to who has none. That a port is refused is never of this one, and there
  // may be more of them.
  constexpr int kMost = 16;
  for (int tries = 0; sent < 0 && tries < kMost; ++tries) {
    const bool first = tries == 0 && peer_.port == 0 && errno != EINTR && errno != EAGAIN;
    const bool may_be = errno == ECONNREFUSED || first;
    if (!may_be) break;
    sent = Kernel().sendmsg(fd(), &message, flags);
  }
  return sent < 0 ? -errno : sent;
}

ssize_t Socket::SendByKernel(const SendRequest& request) const {
  sockaddr_in to{};
  msghdr message{.msg_iov = const_cast<iovec*>(request.from.data()),
                 .msg_iovlen = request.from.size()};
  if (request.to != nullptr) {
    to = ToSockaddr(*request.to);
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
  }
  return SendByKernel(message, request.flags);
}

bool Socket::IsKernelsToSend(const wire::Endpoint* to) const {
  std::string line;
  return !sender_rules_->Offloads(Role::kUdpSender, to == nullptr ? peer_ : *to, {}, &line);
}

ssize_t Socket::Send(const SendRequest& request) {
  if (path() == Path::kUndecided && request.to != nullptr && type_ == SOCK_DGRAM) {
    const ErrnoKept kept;
    const std::lock_guard lock(faces_->setup());
    // As the kernel does at the first send: any address, a port of its choice.
    if (!DepartureTo(fd(), *request.to, group_interface_)) {
      LeaveToKernelLocked("its first datagram stays in this host, or has no route");
    } else if (LearnLocal(); local_.port != 0) {
      // By a message of the kernel's, with control data.
      bound_ = true;
      DecideLocked();
    } else {
      sockaddr_in any = ToSockaddr({});
      if (const int bound = Bind(any); bound != 0) return bound;
    }
  }
  if (path() == Path::kUndecided && stream_ != nullptr && (request.flags & MSG_FASTOPEN) != 0) {
    LeaveToKernel("MSG_FASTOPEN: the kernel connects as it sends");
  }
  if (path() != Path::kOffloaded) {
    return (request.flags & kDummySend) != 0 ? -EINVAL : Elsewhere();
  }
  return stream_ == nullptr ? SendDatagram(request) : SendStream(request);
}

ssize_t Socket::SendDatagram(const SendRequest& request) {
  if ((request.flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  if (request.to != nullptr && request.to->port == 0) return -EINVAL;
  const bool part = (request.flags & MSG_MORE) != 0 || in_parts_.load(std::memory_order_relaxed);
  if (part && (request.flags & kDummySend) == 0) [[unlikely]] return SendPart(request);
  const size_t length = LengthOf(request.from);
  const bool nowhere = request.nowhere();
  std::vector<uint8_t> scratch;
  const std::span<const uint8_t> bytes =
      nowhere ? std::span<const uint8_t>() : Gather(request.from, &scratch);
  const engine::Payload payload{.data = bytes.data(), .length = bytes.size()};
  const bool warm = (request.flags & kDummySend) != 0;
  const engine::SendOptions options{.flags = warm ? uint32_t{engine::kWarm} : 0};
  RefusedOnce refusals;
  const auto send_once = [&]() -> engine::SendResult {
    engine::Udp& udp = door()->ring().udp();
    engine::UdpSocket* const socket = udp.Find(handle_);
    if (socket == nullptr) return engine::SendResult::kRefusedState;
    const engine::SendResult result = request.to == nullptr
                                          ? udp.Send(socket, payload, options)
                                          : udp.SendTo(socket, *request.to, payload, options);
    if (ErrnoOf(result) == 0) [[likely]] {
      refusals.Taken(udp, *socket);
    } else {
      refusals.Refused(udp, *socket, result);
    }
    return result;
  };
  return Blocking(request.flags, send_timeout_, EPOLLOUT, [&]() -> ssize_t {
    if (path() != Path::kOffloaded) return Elsewhere();
    if (request.to == nullptr && peer_.port == 0) return -EDESTADDRREQ;
    if (length > wire::kUdpMaxPayloadBytes) return -EMSGSIZE;
    if (const int error = TakeError(); error != 0) return -error;
    if (write_shut_) return -EPIPE;
    if (nowhere) [[unlikely]] return -EFAULT;
    if (sender_rules_ != nullptr && IsKernelsToSend(request.to)) [[unlikely]] {
      return warm ? -EINVAL : SendByKernel(request);
    }
    const engine::SendResult result = send_once();
    if (const int error = ErrnoOf(result); error != 0) [[unlikely]] {
      if (result != engine::SendResult::kRefusedRoute) return -error;
      return warm ? -EINVAL : SendByKernel(request);  // The kernel would send it.
    }
    if (warm) ++counters_.dummies;
    if (!warm) Change(0, 0, kSent);
    return static_cast<ssize_t>(length);
  });
}

// --- One datagram by several calls: MSG_MORE, UDP_CORK ---

// As Linux: the first part says where it goes to, and whether it may be sent, and an error loses
// the datagram.
[[gnu::noinline]] ssize_t Socket::SendPart(const SendRequest& request) {
  if (request.nowhere()) return -EFAULT;
  std::vector<uint8_t> scratch;
  const std::span<const uint8_t> bytes = Gather(request.from, &scratch);
  return Blocking(request.flags, send_timeout_, EPOLLOUT, [&]() -> ssize_t {
    if (path() != Path::kOffloaded) return Elsewhere();
    if (parts_ == nullptr && request.to == nullptr && peer_.port == 0) return -EDESTADDRREQ;
    const bool first = parts_ == nullptr;
    if (first) {
      parts_ = std::make_unique<Parts>();
      parts_->to = request.to == nullptr ? peer_ : *request.to;
    }
    const size_t before = parts_->bytes.size();
    int error = before + bytes.size() > wire::kUdpMaxPayloadBytes ? EMSGSIZE : TakeError();
    if (error == 0 && first && write_shut_) error = EPIPE;
    if (error == 0) {
      parts_->bytes.insert(parts_->bytes.end(), bytes.begin(), bytes.end());
      in_parts_.store(true, std::memory_order_relaxed);
      SetPlain();
      const bool last = (request.flags & MSG_MORE) == 0 && !corked_;
      error = last ? SendParts() : 0;
      if (error == EAGAIN) {  // As if this part had not been tried.
        parts_->bytes.resize(before);
        if (first) DropParts();
        return -EAGAIN;
      }
      if (!last) return static_cast<ssize_t>(bytes.size());
    }
    DropParts();
    return error != 0 ? -error : static_cast<ssize_t>(bytes.size());
  });
}

// The whole datagram; errno.
int Socket::SendParts() {
  if (sender_rules_ != nullptr && IsKernelsToSend(&parts_->to)) return PartsToKernel(0);
  engine::Udp& udp = door()->ring().udp();
  engine::UdpSocket* const socket = udp.Find(handle_);
  if (socket == nullptr) return ENETDOWN;
  const std::vector<uint8_t>& bytes = parts_->bytes;
  const engine::SendResult result =
      udp.SendTo(socket, parts_->to, {.data = bytes.data(), .length = bytes.size()}, {});
  if (result == engine::SendResult::kRefusedRoute) return PartsToKernel(0);
  if (const int error = ErrnoOf(result); error != 0) return error;
  Change(0, 0, kSent);
  return 0;
}

// To the kernel's socket, with MSG_MORE as its beginning; errno.
int Socket::PartsToKernel(int flags) const {
  const iovec whole{.iov_base = parts_->bytes.data(), .iov_len = parts_->bytes.size()};
  const ssize_t sent = SendByKernel({.from = {&whole, 1}, .flags = flags, .to = &parts_->to});
  return sent < 0 ? static_cast<int>(-sent) : 0;
}

void Socket::DropParts() {
  parts_.reset();
  in_parts_.store(corked_, std::memory_order_relaxed);
  SetPlain();
}

int Socket::Cork(bool on) {
  RingDoor* const ring = door();
  if (ring == nullptr) {
    corked_ = on;
    in_parts_.store(on, std::memory_order_relaxed);
    return 0;
  }
  const RingDoor::Entry entry(ring);
  corked_ = on;
  in_parts_.store(on || parts_ != nullptr, std::memory_order_relaxed);
  SetPlain();
  if (on || parts_ == nullptr) return 0;
  // Nobody would try again where the ring has no room: then the kernel sends it. Linux tells of no
  // other error here either.
  if (SendParts() == EAGAIN) PartsToKernel(MSG_DONTWAIT);
  DropParts();
  return 0;
}

}  // namespace xtreme::sockets
