// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/kernel_port.h"

#include <linux/errqueue.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace xtreme::engine {
namespace {

wire::Endpoint ToEndpoint(const sockaddr_in& address) {
  return {wire::Ipv4Address(ntohl(address.sin_addr.s_addr)), ntohs(address.sin_port)};
}

// What the control messages say of a datagram or of an error; `fragments`: of how many bytes the
// longest fragment was, 0 for a datagram that came whole.
void ReadControl(msghdr& message, KernelDatagram* datagram, int* fragments) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != IPPROTO_IP) continue;
    if (c->cmsg_type == IP_PKTINFO) {
      in_pktinfo local;
      memcpy(&local, CMSG_DATA(c), sizeof(local));
      datagram->destination.address = wire::Ipv4Address(ntohl(local.ipi_addr.s_addr));
      datagram->ifindex = static_cast<uint32_t>(local.ipi_ifindex);
    } else if (c->cmsg_type == IP_RECVFRAGSIZE) {
      memcpy(fragments, CMSG_DATA(c), sizeof(*fragments));
    } else if (c->cmsg_type == IP_RECVERR) {
      sock_extended_err error;
      memcpy(&error, CMSG_DATA(c), sizeof(error));
      datagram->error = static_cast<int>(error.ee_errno);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelPort>> LeasedPort::Lease(const wire::Endpoint& local,
                                                              bool reuse, bool deliver) {
  auto lease = host::PortLease::Acquire({.local = local,
                                         .reuse_address = reuse,
                                         .deliver = deliver});
  if (!lease.ok()) return lease.status();
  return Configure(*std::move(lease), deliver ? Reads::kAll : Reads::kErrors);
}

absl::StatusOr<std::unique_ptr<KernelPort>> LeasedPort::Adopt(int bound_socket, bool deliver) {
  auto lease = host::PortLease::Adopt(bound_socket);
  if (!lease.ok()) return lease.status();
  // Nothing is drained: its options stay its owner's.
  if (!deliver) {
    return std::unique_ptr<KernelPort>(new LeasedPort(*std::move(lease), Reads::kNothing));
  }
  return Configure(*std::move(lease), Reads::kAll);
}

absl::StatusOr<std::unique_ptr<KernelPort>> LeasedPort::Configure(host::PortLease lease,
                                                                  Reads reads) {
  const int on = 1;
  const int fd = lease.fd();
  // What is dropped takes no memory; errors do.
  constexpr int kErrorBytes = 64 << 10;
  if (reads == Reads::kErrors) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kErrorBytes, sizeof(kErrorBytes));
  }
  const bool set =
      setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) == 0 &&
      setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) == 0 &&
      setsockopt(fd, IPPROTO_IP, IP_RECVFRAGSIZE, &on, sizeof(on)) == 0;
  if (!set) return host::ErrnoStatus(errno, "set options of a leased port's socket");
  return std::unique_ptr<KernelPort>(new LeasedPort(std::move(lease), reads));
}

void LeasedPort::Drain(const std::function<void(const KernelDatagram&)>& take) {
  int left = kBound;
  while (left-- > 0 && Take(MSG_ERRQUEUE, take)) {
  }
  // One that found no room in the queue stands there still.
  int error = 0;
  socklen_t length = sizeof(error);
  if (reads_ == Reads::kErrors) getsockopt(lease_.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  while (reads_ == Reads::kAll && left-- > 0 && Take(0, take)) {
  }
}

absl::StatusOr<std::unique_ptr<KernelPort>> LeasedTcpPorts::LeaseOne(const wire::Endpoint& local) {
  auto lease = host::PortLease::Acquire({.protocol = host::PortProtocol::kTcp, .local = local});
  if (!lease.ok()) return lease.status();
  const wire::Endpoint bound = lease->local();
  return std::unique_ptr<KernelPort>(new LeasedTcpPorts(bound, *std::move(lease), std::nullopt));
}

absl::StatusOr<std::unique_ptr<KernelPort>> LeasedTcpPorts::LeaseBlock(wire::Ipv4Address address,
                                                                       uint8_t count_log2) {
  auto block = host::PortBlock::Acquire({.protocol = host::PortProtocol::kTcp,
                                         .address = address,
                                         .count_log2 = count_log2});
  if (!block.ok()) return block.status();
  const wire::Endpoint first{address, block->first_port()};
  return std::unique_ptr<KernelPort>(new LeasedTcpPorts(first, std::nullopt, *std::move(block)));
}

uint32_t LeasedPort::TakeLost() {
  if (reads_ != Reads::kAll) return 0;
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof(memory);
  if (getsockopt(lease_.fd(), SOL_SOCKET, SO_MEMINFO, memory, &length) != 0) return 0;
  return memory[SK_MEMINFO_DROPS] - std::exchange(lost_, memory[SK_MEMINFO_DROPS]);
}

bool LeasedPort::Take(int flags, const std::function<void(const KernelDatagram&)>& take) {
  sockaddr_in from{};
  iovec bytes{.iov_base = payload_.data(), .iov_len = payload_.size()};
  alignas(cmsghdr) uint8_t control[512];
  msghdr message{.msg_name = &from,
                 .msg_namelen = sizeof(from),
                 .msg_iov = &bytes,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof(control)};
  const ssize_t length = recvmsg(lease_.fd(), &message, flags | MSG_DONTWAIT);
  if (length < 0) return errno == EINTR;
  KernelDatagram datagram{.payload = {payload_.data(), static_cast<size_t>(length)}};
  int fragments = 0;
  ReadControl(message, &datagram, &fragments);
  if (datagram.error != 0) {
    // msg_name of the error queue is where our datagram was going.
    datagram.destination = ToEndpoint(from);
    datagram.payload = {};
  } else {
    datagram.source = ToEndpoint(from);
    datagram.destination.port = lease_.local().port;
  }
  const bool whole_to_group = datagram.destination.address.IsMulticast() && fragments == 0;
  if (datagram.error != 0 || !whole_to_group) take(datagram);
  return true;
}

}  // namespace xtreme::engine
