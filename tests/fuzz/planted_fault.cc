// SPDX-License-Identifier: Apache-2.0
//
// A fuzz target with a fault that about one input in 200 reaches.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  if (length > 0 && bytes[0] == 0xFF) std::abort();
  return 0;
}
