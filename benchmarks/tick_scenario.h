// SPDX-License-Identifier: Apache-2.0
//
// A feed and an order on one ring.

#ifndef XTREME_BENCHMARKS_TICK_SCENARIO_H_
#define XTREME_BENCHMARKS_TICK_SCENARIO_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// Datagrams of 64 bytes wait in the queue: each is polled for by itself and answered by firing a
// prepared TCP send of 64 bytes, on a connection of which nothing is under way. From the look at
// the receive queue to the doorbell; the release of the datagram is not part of it.
absl::StatusOr<std::unique_ptr<Scenario>> TickToOrder(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TICK_SCENARIO_H_
