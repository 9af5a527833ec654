// SPDX-License-Identifier: Apache-2.0
//
// A run of a fuzz target that clang's libFuzzer guides: what covers more of the code is kept and
// changed on. In builds by --config=fuzzer alone.
#ifndef XTREME_TESTS_FUZZ_GUIDED_H_
#define XTREME_TESTS_FUZZ_GUIDED_H_

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/input.h"

namespace xtreme::fuzz {

struct GuidedRun {
  const char* program;
  uint64_t seed;
  size_t max_bytes;
  uint64_t iterations;
  double seconds;  // 0: as many as `iterations` says.
};

// Begins with `inputs`' first ones. An input that the target does not survive is left in a file,
// and its name is printed. Exits. Null in any other build.
[[gnu::weak, noreturn]] void RunGuided(const Inputs& inputs, const GuidedRun& run);

}  // namespace xtreme::fuzz

#endif  // XTREME_TESTS_FUZZ_GUIDED_H_
