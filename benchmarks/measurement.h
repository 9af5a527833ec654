// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the report share: how long to measure, and what was counted already.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_MEASUREMENT_H_
#define XTREME_BENCHMARKS_MEASUREMENT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/counting.h"
#include "benchmarks/row.h"
#include "benchmarks/timing.h"

namespace xtreme::benchmarks {

struct Measurement {
  bool quick = false;  // Few iterations: the rows are made, the figures mean little.
  TimingOptions timing;
  absl::StatusOr<Counts> counts = absl::UnavailableError("nothing was counted");

  // Instructions an operation of a scenario, or why there is no count.
  absl::StatusOr<double> Instructions(std::string_view scenario) const;
};

// --- The parts of the report, in its order ---

// udp_tx_post, udp_rx, idle_poll, udp_echo, tcp_pingpong, tcp_bulk and so on: times and instruction
// counts.
std::vector<Row> OperationRows(const Measurement& measurement);
// memory_ring, memory_udp, startup.
std::vector<Row> ResourceRows(const Measurement& measurement);
// rtt_two_cores, control_stall.
std::vector<Row> TwoThreadRows(const Measurement& measurement);
// rtt_two_processes.
std::vector<Row> TwoProcessRows(const Measurement& measurement);
// The other process of it: answers on the wire of that segment until it is killed.
int AnswerOverSharedWire(const std::string& segment);
// steady_state, cold_lines, tail_instructions.
std::vector<Row> SteppedRows(const Measurement& measurement);
// growth, memory_tcp, and rtt_two_cores of TCP.
std::vector<Row> TcpRows(const Measurement& measurement);

// face_vma, face_posix: what the faces cost over the engine.
std::vector<Row> FaceRows(const Measurement& measurement);

// sockperf, unchanged, on the preloaded library and on the kernel.
std::vector<Row> SockperfRows(const Measurement& measurement);

// The scenarios whose instructions OperationRows wants.
std::vector<std::string> CountedScenarios();

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_MEASUREMENT_H_
