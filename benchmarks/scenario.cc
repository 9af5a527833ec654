// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/scenario.h"

extern "C" {

[[gnu::noinline]] void xtreme_benchmark_measured(xtreme::benchmarks::Scenario* scenario) {
  scenario->Run();
  asm volatile("" ::: "memory");  // No tail call: the function ends where it says.
}

[[gnu::noinline]] void xtreme_benchmark_device(void (*work)(void*), void* argument) {
  work(argument);
  asm volatile("" ::: "memory");
}

}  // extern "C"
