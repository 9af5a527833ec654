// SPDX-License-Identifier: Apache-2.0
//
// The driver alone over the null device: what the engine's rows are made of.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_DRIVER_SCENARIOS_H_
#define XTREME_BENCHMARKS_DRIVER_SCENARIOS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// Posts frames, `burst` on one doorbell.
absl::StatusOr<std::unique_ptr<Scenario>> DriverTransmit(uint32_t operations, uint32_t burst);
// Polls in batches of 16, releases, refills.
absl::StatusOr<std::unique_ptr<Scenario>> DriverReceive(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_DRIVER_SCENARIOS_H_
