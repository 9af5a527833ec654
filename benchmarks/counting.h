// SPDX-License-Identifier: Apache-2.0
//
// Instruction counts: this program again under valgrind, once for all scenarios, collecting inside
// xtreme_benchmark_measured() and not inside xtreme_benchmark_device().
//
// Invariant: the same binary on the same valgrind counts the same, whatever else the machine does.
// Units: instructions an operation. Threads: one.
// Spec: Valgrind manual, "Callgrind"; the profile's format there under "Callgrind Format".

#ifndef XTREME_BENCHMARKS_COUNTING_H_
#define XTREME_BENCHMARKS_COUNTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xtreme::benchmarks {

// Instructions an operation, or why there is no count, by scenario.
using Counts = std::map<std::string, absl::StatusOr<double>, std::less<>>;

// Runs `program --count NAME...` under valgrind and reads what it left in `directory`;
// `environment`: what is set for it, each as "NAME=VALUE".
// NotFound: no valgrind. Internal: it failed; its output is in the message.
absl::StatusOr<Counts> CountInstructions(const std::string& program,
                                         const std::vector<std::string>& scenarios,
                                         uint32_t operations, const std::string& directory,
                                         const std::vector<std::string>& environment = {});

// The other side: does `operations` of each scenario and has valgrind write a profile after each.
// A scenario that cannot be made is said on standard output.
void RunCounted(const std::vector<std::string>& scenarios, uint32_t operations);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_COUNTING_H_
