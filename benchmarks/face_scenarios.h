// SPDX-License-Identifier: Apache-2.0
//
// What a program's calls cost over the engine: the socket faces and VMA's API over a null device,
// and the same by the engine alone.
//
// Threads: a scenario is its thread's. The faces are one to a process: face_rig.h.

#ifndef XTREME_BENCHMARKS_FACE_SCENARIOS_H_
#define XTREME_BENCHMARKS_FACE_SCENARIOS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// send() of a datagram.
absl::StatusOr<std::unique_ptr<Scenario>> FaceSend(uint32_t operations);
// Datagrams by socketxtreme_poll, `batch` at a time, and their packets freed.
absl::StatusOr<std::unique_ptr<Scenario>> FacePoll(uint32_t operations, uint32_t batch);
// send() of a datagram and recv() of another.
absl::StatusOr<std::unique_ptr<Scenario>> FaceUdp(uint32_t operations);
// The same by sendmsg() and recvmsg(), with SO_TIMESTAMPNS.
absl::StatusOr<std::unique_ptr<Scenario>> FaceMessage(uint32_t operations);
// The same as FaceUdp with epoll_wait() before recv(), of a set that holds the socket.
absl::StatusOr<std::unique_ptr<Scenario>> FaceEpoll(uint32_t operations);
// The same with poll(), and with select(), of the socket alone.
absl::StatusOr<std::unique_ptr<Scenario>> FacePollCall(uint32_t operations);
absl::StatusOr<std::unique_ptr<Scenario>> FaceSelect(uint32_t operations);
// By the engine.
absl::StatusOr<std::unique_ptr<Scenario>> EngineUdp(uint32_t operations);
// send() of 64 bytes on a connection, and recv() of as many that answer them.
absl::StatusOr<std::unique_ptr<Scenario>> FaceTcp(uint32_t operations);
// The same with epoll_wait() before recv().
absl::StatusOr<std::unique_ptr<Scenario>> FaceEpollTcp(uint32_t operations);
// By the engine.
absl::StatusOr<std::unique_ptr<Scenario>> EngineTcp(uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_FACE_SCENARIOS_H_
