// SPDX-License-Identifier: Apache-2.0
//
// Times of scenarios against each other: interleaved batches in one process, so that noise of a
// shared machine falls on both, and medians.
//
// Units: nanoseconds an operation. Threads: one.

#ifndef XTREME_BENCHMARKS_TIMING_H_
#define XTREME_BENCHMARKS_TIMING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

struct TimingOptions {
  uint32_t batches = 31;          // Of each scenario, in turn.
  uint32_t operations = 100'000;  // In one batch, or what 20 ms suffice for.
};

// The median of `values`, which are reordered; 0 without any.
double Median(std::vector<double>& values);

// The TSC, after what came before and before what follows.
uint64_t ReadTicks();
// Measured against CLOCK_MONOTONIC once for 20 ms.
double MeasureTicksPerNs();

// One batch: nanoseconds an operation, what Prepare() takes left out.
double TimeBatch(Scenario& scenario, uint32_t operations, double ticks_per_ns);

// The median of each scenario, in the order given.
std::vector<double> TimeInterleaved(std::span<Scenario* const> scenarios,
                                    const TimingOptions& options);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TIMING_H_
