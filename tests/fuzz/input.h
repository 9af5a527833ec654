// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a fuzz run. Input i of a run is a pure function of (seeds, seed, i), so that one
// failing input is made again from two numbers, without the inputs before it.
//
// Thread rule: immutable after construction.
#ifndef XTREME_TESTS_FUZZ_INPUT_H_
#define XTREME_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xtreme::fuzz {

using Bytes = std::vector<uint8_t>;

class Inputs {
 public:
  // `seeds` are mutated and spliced; without any, inputs are random bytes. No input is longer than
  // `max_bytes`.
  Inputs(std::vector<Bytes> seeds, uint64_t seed, size_t max_bytes);

  // Input number `index`. The first inputs are the seeds as they are, so that each is replayed.
  Bytes At(uint64_t index) const;

 private:
  std::vector<Bytes> seeds_;
  uint64_t seed_;
  size_t max_bytes_;
};

}  // namespace xtreme::fuzz

#endif  // XTREME_TESTS_FUZZ_INPUT_H_
