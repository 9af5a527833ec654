// SPDX-License-Identifier: Apache-2.0
//
// Runs another program to its end.
//
// Threads: any.

#ifndef XTREME_BENCHMARKS_SUBPROCESS_H_
#define XTREME_BENCHMARKS_SUBPROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xtreme::benchmarks {

// What `command`, found along PATH, wrote to standard output; its standard error is ours.
// NotFound: no such program. Internal: it could not be started, or did not exit with 0.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_SUBPROCESS_H_
