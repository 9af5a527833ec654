// SPDX-License-Identifier: Apache-2.0
//
// The distribution's libmlx5 as a peer: ibv_post_send and ibv_poll_cq on a RAW_PACKET QP of the
// software ConnectX, which works only between measured runs.
//
// One software ConnectX is in a process at a time, so one of these scenarios is too.
// Threads: one.

#ifndef XTREME_BENCHMARKS_VERBS_SCENARIOS_H_
#define XTREME_BENCHMARKS_VERBS_SCENARIOS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// Posts `burst` frames inline with one call, hence one doorbell, 1 in 128 signalled, checksums by
// the device.
absl::StatusOr<std::unique_ptr<Scenario>> VerbsTransmit(uint32_t operations, uint32_t burst);
// Posts frames of 1,024 bytes, gathered from registered memory, one with each call; the rest as
// above.
absl::StatusOr<std::unique_ptr<Scenario>> VerbsGather(uint32_t operations);
// Polls 16 completions at a time, and looks at no packet. Buffers are posted again unmeasured.
absl::StatusOr<std::unique_ptr<Scenario>> VerbsReceive(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_VERBS_SCENARIOS_H_
