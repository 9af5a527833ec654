// SPDX-License-Identifier: Apache-2.0
//
// Steps a scenario instruction by instruction, on the CPU itself (trap flag, SIGTRAP), and looks at
// each: exact where a sample would miss one instruction in a million.
//
// Invariant: what runs in AsDevice() is stepped and not counted. A repeated string instruction
// counts once a repetition. Some microseconds an instruction. Thread: one stepping at a time;
// SIGTRAP is taken meanwhile.

#ifndef XTREME_BENCHMARKS_STEPPER_H_
#define XTREME_BENCHMARKS_STEPPER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {

// What was executed between two marks.
struct Steps {
  uint64_t instructions = 0;
  // Up to the first that touches one of Scenario::doorbells(), that included; 0: none did.
  uint64_t to_doorbell = 0;
  uint64_t locked = 0;         // LOCK prefix, or xchg with memory.
  uint64_t system_calls = 0;
  uint64_t allocations = 0;    // Entries into malloc, calloc, realloc, free and their like.
  uint64_t unknown = 0;        // Instructions whose memory is not told.
  uint64_t code_lines = 0;     // Distinct cache lines of 64 bytes.
  uint64_t data_lines = 0;
};

class Stepper {
 public:
  Stepper();
  ~Stepper();
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // Steps through one Run(); Prepare() was called.
  Steps Step(Scenario& scenario);

 private:
  struct State;

  // What SIGTRAP looks for: a signal handler is handed no state.
  static thread_local State* stepping_;
  std::unique_ptr<State> state_;
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_STEPPER_H_
