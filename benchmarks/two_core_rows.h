// SPDX-License-Identifier: Apache-2.0
//
// rtt_two_cores of one protocol: our round trip beside a cache line's and beside the kernel's.
//
// Threads: one calls; what measures binds itself as two_cores.h says.

#ifndef XTREME_BENCHMARKS_TWO_CORE_ROWS_H_
#define XTREME_BENCHMARKS_TWO_CORE_ROWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/row.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

struct TwoCoreRoundTrip {
  // Nanoseconds of one of `rounds` round trips.
  using RoundTripNs = std::function<double(uint32_t rounds, double ticks_per_ns)>;
  using Sockets = absl::StatusOr<std::unique_ptr<Scenario>>;

  std::string unit;
  double most_cache_lines = 0;  // The goal: so many times a cache line's round trip.
  std::string kernel_peer;
  RoundTripNs ours;
  std::function<Sockets(uint32_t operations)> kernel;
};

// Two rows, each the best of five tries. One core only: one row that says so.
std::vector<Row> RoundTripRows(const TwoCoreRoundTrip& trip, bool quick);

// A row of the same name that could not be measured.
Row UnmeasuredRoundTrip(const TwoCoreRoundTrip& trip, const absl::Status& why);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TWO_CORE_ROWS_H_
