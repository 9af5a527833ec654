// SPDX-License-Identifier: Apache-2.0
//
// A network of a test's own, without privilege: what one test opens no other test sees, nor the
// machine.
//
// Thread: the calling one, before the process has others (user_namespaces(7)).

#ifndef XTREME_TOOLS_CONNECTX_TESTING_OWN_NETWORK_H_
#define XTREME_TOOLS_CONNECTX_TESTING_OWN_NETWORK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/net/namespace.h"

namespace xtreme::connectx {

// Takes the process out of the machine's network, and makes a network namespace with loopback
// alone, which is up. The caller enters it (net::Namespace::Inside). A process that may not do so
// becomes root of a user namespace first.
// Error: PermissionDenied, which says what forbids it; what net::Namespace::Create says.
absl::StatusOr<std::unique_ptr<net::Namespace>> MakeOwnNetwork();

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_TESTING_OWN_NETWORK_H_
