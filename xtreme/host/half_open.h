// SPDX-License-Identifier: Apache-2.0
//
// The kernel's TCP connections that a peer has begun and not completed (SYN-RECEIVED), in the
// calling thread's network namespace.
//
// Threads: any; system calls. Spec: sock_diag(7).

#ifndef XTREME_XTREME_HOST_HALF_OPEN_H_
#define XTREME_XTREME_HOST_HALF_OPEN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "stack/wire/address.h"

namespace xtreme::host {

// How many there are at `local`, of IPv4, whatever kind of listener has them. Address Any: at any
// address of the host. INTERNAL: the kernel has no sock_diag for TCP or does not say (the message
// has the reason); no memory.
absl::StatusOr<uint32_t> CountHalfOpen(const wire::Endpoint& local);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_HALF_OPEN_H_
