// SPDX-License-Identifier: Apache-2.0
//
// The kernel's sockets as a peer: UDP between two network namespaces over a veth pair.
//
// Threads: one, which enters the namespaces only while it opens the sockets.

#ifndef XTREME_BENCHMARKS_KERNEL_SCENARIO_H_
#define XTREME_BENCHMARKS_KERNEL_SCENARIO_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// A datagram and its echo, both ends in one thread. PermissionDenied: no namespaces here.
absl::StatusOr<std::unique_ptr<Scenario>> KernelEcho(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_KERNEL_SCENARIO_H_
