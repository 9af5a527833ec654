// SPDX-License-Identifier: Apache-2.0

#include "api/preload/transfer.h"

#include <netinet/in.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "api/preload/preload.h"
#include "api/sockets/host_addresses.h"

namespace xtreme::preload {
namespace {

using sockets::kAskKernel;
using sockets::ReceiveRequest;
using sockets::Socket;

// The address of a send; false: not one that a ring can reach.
bool TakeAddress(const sockaddr* to, socklen_t length, std::optional<wire::Endpoint>* endpoint) {
  if (to == nullptr || length == 0) return true;
  if (length < sizeof(sockaddr_in) || to->sa_family != AF_INET) return false;
  *endpoint = sockets::FromSockaddr(*reinterpret_cast<const sockaddr_in*>(to));
  return true;
}

}  // namespace

void GiveAddress(const wire::Endpoint& endpoint, void* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return;
  const sockaddr_in address = sockets::ToSockaddr(endpoint);
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
                 socklen_t length) {
  std::optional<wire::Endpoint> endpoint;
  const bool datagrams = socket.type() == SOCK_DGRAM;
  if (datagrams && !TakeAddress(to, length, &endpoint)) return kAskKernel;
  const ssize_t sent =
      socket.Send({.from = parts, .flags = flags, .to = endpoint ? &*endpoint : nullptr});
  if (sent == -EPIPE && !datagrams && (flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
  return sent;
}

ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags, sockaddr* from,
                    socklen_t* from_length) {
  const auto ours = Ours(fd);
  if (ours == nullptr) return kAskKernel;
  const iovec part{.iov_base = to, .iov_len = size};
  return ReceiveInto(*ours, {&part, 1}, flags, from, from_length);
}

ssize_t SendOurs(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                 socklen_t length) {
  const auto ours = Ours(fd);
  if (ours == nullptr) return kAskKernel;
  const iovec part{.iov_base = const_cast<void*>(from), .iov_len = size};
  return SendFrom(*ours, {&part, 1}, flags, to, length);
}

}  // namespace xtreme::preload
