// SPDX-License-Identifier: Apache-2.0
//
// lwIP as a peer: two instances back to back in memory, one thread (benchmarks/lwip).
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_LWIP_SCENARIO_H_
#define XTREME_BENCHMARKS_LWIP_SCENARIO_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// Fetches and builds lwIP unless it is there. Unavailable: it cannot be fetched or built here.
absl::Status FetchLwip();

// A datagram and its echo. Unavailable: lwIP was not fetched; so below.
absl::StatusOr<std::unique_ptr<Scenario>> LwipEcho(uint32_t operations);

// As TcpPingPong over one connection, TcpBulk and TcpOpenClose (benchmarks/tcp_scenarios.h).
absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpPingPong(uint32_t operations);
absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpBulk(uint32_t operations, uint32_t burst);
absl::StatusOr<std::unique_ptr<Scenario>> LwipTcpOpenClose(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_LWIP_SCENARIO_H_
