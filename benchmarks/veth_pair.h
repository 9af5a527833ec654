// SPDX-License-Identifier: Apache-2.0
//
// Where the kernel's sockets are a peer: HostA and HostB in a network namespace each, joined by a
// veth pair.
//
// Threads: one; a socket is opened inside its host's namespace and used from anywhere.

#ifndef XTREME_BENCHMARKS_VETH_PAIR_H_
#define XTREME_BENCHMARKS_VETH_PAIR_H_

#include <netinet/in.h>

#include <memory>

#include "absl/status/statusor.h"
#include "stack/wire/address.h"
#include "tests/net/namespace.h"

namespace xtreme::benchmarks {

struct VethPair {
  std::unique_ptr<net::Namespace> a;  // 10.0.0.1
  std::unique_ptr<net::Namespace> b;  // 10.0.0.2

  // PermissionDenied: no namespaces here.
  static absl::StatusOr<VethPair> Create();
};

sockaddr_in ToSockaddr(const wire::Endpoint& endpoint);

// A socket of `type` (SOCK_DGRAM...) in `space`, bound to `local`; -1 and errno.
int OpenBoundSocket(const net::Namespace& space, int type, const wire::Endpoint& local);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_VETH_PAIR_H_
