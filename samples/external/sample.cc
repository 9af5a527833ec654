// SPDX-License-Identifier: Apache-2.0
//
// A program outside Xtreme's workspace: a fuzz target that runs on Xtreme's driver and survives
// every input.
#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  uint32_t sum = 0;
  for (const uint8_t byte : std::span(bytes, length)) sum += byte;
  return sum > 255u * length ? -1 : 0;
}
