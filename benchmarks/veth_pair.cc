// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/veth_pair.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"

namespace xtreme::benchmarks {

absl::StatusOr<VethPair> VethPair::Create() {
  auto a = net::Namespace::Create();
  if (!a.ok()) return a.status();
  auto b = net::Namespace::Create();
  if (!b.ok()) return b.status();
  absl::Status status = net::ConnectByVeth(**a, "x0", **b, "x1");
  status.Update((*a)->AddAddress("x0", "10.0.0.1/24"));
  status.Update((*b)->AddAddress("x1", "10.0.0.2/24"));
  if (!status.ok()) return status;
  return VethPair{*std::move(a), *std::move(b)};
}

sockaddr_in ToSockaddr(const wire::Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  address.sin_addr.s_addr = htonl(endpoint.address.value());
  return address;
}

int OpenBoundSocket(const net::Namespace& space, int type, const wire::Endpoint& local) {
  const net::Namespace::Inside inside(space);
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const sockaddr_in address = ToSockaddr(local);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace xtreme::benchmarks
