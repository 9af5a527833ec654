// SPDX-License-Identifier: Apache-2.0
//
// Which process serves a listener that several have, as workers have their master's: two rings with
// the same rule would both answer each SYN.
//
// Invariant: a claim ends with the process that has it, however that ends: it is a name of the
// abstract Unix domain, of the network namespace as addresses are (unix(7)).
// Threads: any.

#ifndef XTREME_API_SOCKETS_LISTENER_CLAIM_H_
#define XTREME_API_SOCKETS_LISTENER_CLAIM_H_

#include "stack/wire/address.h"

namespace xtreme::sockets {

// A descriptor to close when `local` is not served any more; -1: another process serves it.
int ClaimListener(const wire::Endpoint& local);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_LISTENER_CLAIM_H_
