// SPDX-License-Identifier: Apache-2.0
//
// What a test bed does about wrong use: it says what was wrong, and ends the test.

#ifndef XTREME_TOOLS_CONNECTX_TESTING_WRONG_USE_H_
#define XTREME_TOOLS_CONNECTX_TESTING_WRONG_USE_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace xtreme::connectx {

[[noreturn]] inline void Die(const std::string& why) {
  std::fprintf(stderr, "test bed: %s\n", why.c_str());
  std::abort();
}

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_TESTING_WRONG_USE_H_
