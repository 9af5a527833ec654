// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/timing.h"

#include <x86intrin.h>

#include <algorithm>
#include <cstddef>

#include "xtreme/host/tsc_clock.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint64_t kCalibrationNs = 20'000'000;
constexpr uint32_t kWarmOperations = 4'096;
// What is slow, a kernel or a control thread, is not done as often.
constexpr double kLongestBatchNs = 20e6;

// What reading the TSC twice costs by itself.
uint64_t ReadingTicks() {
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 64; ++i) {
    const uint64_t start = ReadTicks();
    least = std::min(least, ReadTicks() - start);
  }
  return least;
}

}  // namespace

double Median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

uint64_t ReadTicks() {
  unsigned core;
  _mm_lfence();
  const uint64_t ticks = __rdtscp(&core);
  _mm_lfence();
  return ticks;
}

double MeasureTicksPerNs() {
  const uint64_t start_ns = host::MonotonicNs();
  const uint64_t start = ReadTicks();
  uint64_t now_ns = start_ns;
  while (now_ns - start_ns < kCalibrationNs) now_ns = host::MonotonicNs();
  return static_cast<double>(ReadTicks() - start) / static_cast<double>(now_ns - start_ns);
}

double TimeBatch(Scenario& scenario, uint32_t operations, double ticks_per_ns) {
  const uint64_t reading = ReadingTicks();
  const auto limit = static_cast<uint64_t>(kLongestBatchNs * ticks_per_ns);
  const uint64_t begin = ReadTicks();
  uint64_t ticks = 0;
  uint32_t done = 0;
  while (done == 0 || (done < operations && ReadTicks() - begin < limit)) {
    scenario.Prepare();
    const uint64_t start = ReadTicks();
    scenario.Run();
    const uint64_t took = ReadTicks() - start;
    ticks += took > reading ? took - reading : 0;
    done += scenario.operations();
  }
  return static_cast<double>(ticks) / ticks_per_ns / done;
}

std::vector<double> TimeInterleaved(std::span<Scenario* const> scenarios,
                                    const TimingOptions& options) {
  const double ticks_per_ns = MeasureTicksPerNs();
  std::vector<std::vector<double>> times(scenarios.size());
  for (Scenario* scenario : scenarios) TimeBatch(*scenario, kWarmOperations, ticks_per_ns);
  for (uint32_t batch = 0; batch < options.batches; ++batch) {
    for (size_t i = 0; i < scenarios.size(); ++i) {
      times[i].push_back(TimeBatch(*scenarios[i], options.operations, ticks_per_ns));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& batches : times) medians.push_back(Median(batches));
  return medians;
}

}  // namespace xtreme::benchmarks
