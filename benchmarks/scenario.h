// SPDX-License-Identifier: Apache-2.0
//
// Scenario: an operation of ours or of a peer, in the one form that everything here measures: timed
// in interleaved batches, counted under valgrind, stepped instruction by instruction, and run as a
// Google Benchmark.
//
// Invariant: what the device or the other side does stands in Prepare(), or inside Run() within
// AsDevice(); counts and steps leave it out. A scenario runs any number of times.
// Thread: one.

#ifndef XTREME_BENCHMARKS_SCENARIO_H_
#define XTREME_BENCHMARKS_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace xtreme::benchmarks {

class Scenario {
 public:
  virtual ~Scenario() = default;

  // Operations that one Run() does.
  virtual uint32_t operations() const = 0;
  // What comes before Run() and is not measured.
  virtual void Prepare() {}
  virtual void Run() = 0;
  // The registers of a device that takes what Run() posts: a store into them is a doorbell. Empty:
  // nothing is posted, or by a device that is not of memory.
  virtual std::span<const uint8_t> doorbells() const { return {}; }
};

// How many operations one Run() shall do: many for a time, one for a tail.
using ScenarioFactory =
    std::function<absl::StatusOr<std::unique_ptr<Scenario>>(uint32_t operations)>;

struct NamedScenario {
  std::string_view name;
  uint32_t operations;  // Of one Run(), for times and counts.
  ScenarioFactory make;
};

// Every scenario of this program. A peer's is called after ours: "udp_tx_post/libmlx5".
std::vector<NamedScenario> AllScenarios();
// InvalidArgument: no such name; or why the scenario cannot be set up here.
absl::StatusOr<std::unique_ptr<Scenario>> MakeScenario(std::string_view name);
absl::StatusOr<std::unique_ptr<Scenario>> MakeScenario(std::string_view name, uint32_t operations);

}  // namespace xtreme::benchmarks

// Where counting begins and where it pauses: valgrind knows the two functions by name, and so does
// the stepper.
extern "C" {
void xtreme_benchmark_measured(xtreme::benchmarks::Scenario* scenario);
void xtreme_benchmark_device(void (*work)(void*), void* argument);
}

namespace xtreme::benchmarks {

// Runs `work`, a device's or a wire's, in the middle of a measured run, and leaves it out.
template <typename Work>
void AsDevice(Work& work) {
  xtreme_benchmark_device([](void* it) { (*static_cast<Work*>(it))(); }, &work);
}

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_SCENARIO_H_
