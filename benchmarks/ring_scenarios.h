// SPDX-License-Identifier: Apache-2.0
//
// UDP through ring, stack and driver over null devices: what an application's thread runs.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_RING_SCENARIOS_H_
#define XTREME_BENCHMARKS_RING_SCENARIOS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// Whether the ring keeps its frames for xtreme_dump.
enum class Frames { kNotKept, kKept };

// Sends on a connected socket, `burst` on one doorbell.
absl::StatusOr<std::unique_ptr<Scenario>> RingTransmit(uint32_t operations, uint32_t burst,
                                                       Frames frames = Frames::kNotKept);
// Sends datagrams too long for a WQE, by on-device memory.
absl::StatusOr<std::unique_ptr<Scenario>> RingTransmitLong(uint32_t operations,
                                                           Frames frames = Frames::kNotKept);
// Fires prepared sends, each once a run.
absl::StatusOr<std::unique_ptr<Scenario>> RingFire(uint32_t operations,
                                                   Frames frames = Frames::kNotKept);
// Packets wait in the queue: polls `batch` at a time, releases each, and the poll re-posts.
absl::StatusOr<std::unique_ptr<Scenario>> RingReceive(uint32_t operations, uint32_t batch,
                                                      Frames frames = Frames::kNotKept);
// `burst` packets wait in the queue: one poll for `max` of them, which is the operation.
absl::StatusOr<std::unique_ptr<Scenario>> RingBurst(uint32_t burst, uint32_t max);
// Joins a group: the call, and the polls that bring its OP_DONE.
absl::StatusOr<std::unique_ptr<Scenario>> RingJoin(uint32_t operations);
// Polls that find nothing, on a ring with so many sockets and groups; `timers` armed far ahead.
absl::StatusOr<std::unique_ptr<Scenario>> RingIdle(uint32_t operations, uint32_t sockets,
                                                   uint32_t groups, uint32_t timers);
// The loop around the polls of RingIdle: the application's, not counted as ours.
absl::StatusOr<std::unique_ptr<Scenario>> IdleLoop(uint32_t operations);
// A request and its answer between two rings of one thread.
absl::StatusOr<std::unique_ptr<Scenario>> RingEcho(uint32_t operations);
// What both devices of RingEcho take by themselves: part of its time, not of its instructions.
absl::StatusOr<std::unique_ptr<Scenario>> RingEchoDevices(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_RING_SCENARIOS_H_
