// SPDX-License-Identifier: Apache-2.0
//
// The kernel's TCP connections at an address, in the calling thread's network namespace: those that
// a peer has begun and not completed (SYN-RECEIVED), those that processes have, and those that they
// have closed, as long as the peer has not acknowledged what was sent on them.
//
// Threads: any; system calls. Spec: sock_diag(7).

#ifndef XTREME_XTREME_HOST_KERNEL_CONNECTIONS_H_
#define XTREME_XTREME_HOST_KERNEL_CONNECTIONS_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "stack/wire/address.h"

namespace xtreme::host {

// How many there are at `local`, of IPv4, whatever kind of listener has or had them; but those with
// a peer of `own` address, those that wait to be accepted, and those of which their process has
// closed and the peer acknowledged all.
// INTERNAL: the kernel has no sock_diag for TCP or does not say (the message has the reason); no
// memory.
absl::StatusOr<uint32_t> CountConnections(const wire::Endpoint& local,
                                          std::span<const wire::Ipv4Address> own);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_KERNEL_CONNECTIONS_H_
