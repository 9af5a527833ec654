// SPDX-License-Identifier: Apache-2.0
//
// Every scenario as a Google Benchmark.
//
//   bazel run -c opt //benchmarks:micro -- --benchmark_filter=udp_rx

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "benchmarks/scenario.h"
#include "benchmarks/timing.h"

namespace xtreme::benchmarks {
namespace {

// Times Run() alone.
void RunScenario(benchmark::State& state, const NamedScenario& named, double ticks_per_ns) {
  auto scenario = named.make(named.operations);
  if (!scenario.ok()) {
    state.SkipWithError(std::string(scenario.status().message()).c_str());
    return;
  }
  for ([[maybe_unused]] auto _ : state) {
    (*scenario)->Prepare();
    const uint64_t start = ReadTicks();
    (*scenario)->Run();
    const uint64_t ticks = ReadTicks() - start;
    state.SetIterationTime(static_cast<double>(ticks) / ticks_per_ns / 1e9);
  }
  state.SetItemsProcessed(state.iterations() * (*scenario)->operations());
}

}  // namespace
}  // namespace xtreme::benchmarks

int main(int argc, char** argv) {
  const double ticks_per_ns = xtreme::benchmarks::MeasureTicksPerNs();
  for (const auto& named : xtreme::benchmarks::AllScenarios()) {
    benchmark::RegisterBenchmark(std::string(named.name).c_str(),
                                 [named, ticks_per_ns](benchmark::State& state) {
                                   xtreme::benchmarks::RunScenario(state, named, ticks_per_ns);
                                 })
        ->UseManualTime();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
