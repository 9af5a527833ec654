// SPDX-License-Identifier: Apache-2.0
//
// The kernel's TCP as a peer: a connection between two namespaces over a veth pair, one thread for
// both ends.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_KERNEL_TCP_SCENARIO_H_
#define XTREME_BENCHMARKS_KERNEL_TCP_SCENARIO_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// A request of 64 bytes and its answer, without Nagle. PermissionDenied: no namespaces here.
absl::StatusOr<std::unique_ptr<Scenario>> KernelTcpPingPong(uint32_t operations);
// Writes of 64 KB, which the kernel and veth keep whole (GSO); an operation is 1,460 bytes.
absl::StatusOr<std::unique_ptr<Scenario>> KernelTcpBulk(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_KERNEL_TCP_SCENARIO_H_
