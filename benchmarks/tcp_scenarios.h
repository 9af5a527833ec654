// SPDX-License-Identifier: Apache-2.0
//
// TCP through ring, stack and driver over null devices: what an application's thread runs, at one
// end of a connection or at both.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_TCP_SCENARIOS_H_
#define XTREME_BENCHMARKS_TCP_SCENARIOS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// A request of 64 bytes and its answer, both ends in one thread, over `connections` in turn.
// `still_clock`: see TcpPair. `memory`: gets a line about a ring's pool, unless it is null.
absl::StatusOr<std::unique_ptr<Scenario>> TcpPingPong(uint32_t operations, uint32_t connections,
                                                      bool still_clock,
                                                      std::string* memory = nullptr);
// The same over one connection of rings that keep their frames for xtreme_dump.
absl::StatusOr<std::unique_ptr<Scenario>> TcpPingPongKept(uint32_t operations,
                                                          bool still_clock);
// What both devices of TcpPingPong take by themselves: part of its time, not of its instructions.
absl::StatusOr<std::unique_ptr<Scenario>> TcpDevices(uint32_t operations);
// Segments of 1,460 bytes one way, `burst` on one doorbell; sending, receiving, acknowledging.
absl::StatusOr<std::unique_ptr<Scenario>> TcpBulk(uint32_t operations, uint32_t burst,
                                                  bool kept = false);
// The same by sends of kLongSendBytes, which the device cuts; an operation is a full segment still.
absl::StatusOr<std::unique_ptr<Scenario>> TcpBulkRuns(uint32_t operations);
// Of such sends the sending alone, kRunBytes of registered memory each, on connections of which
// nothing is under way; the same operation.
absl::StatusOr<std::unique_ptr<Scenario>> TcpSendRuns(uint32_t operations);
// Sends of 64 bytes, each on an established connection of which nothing is under way.
absl::StatusOr<std::unique_ptr<Scenario>> TcpSendSmall(uint32_t operations);
// Fires prepared sends of 64 bytes, each on such a connection.
absl::StatusOr<std::unique_ptr<Scenario>> TcpFire(uint32_t operations);
// Segments of 64 bytes wait in the queue: a poll for each, and it is released.
absl::StatusOr<std::unique_ptr<Scenario>> TcpReceiveOne(uint32_t operations);
// Connections from connect to the end at both ends, one after the other.
absl::StatusOr<std::unique_ptr<Scenario>> TcpOpenClose(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TCP_SCENARIOS_H_
