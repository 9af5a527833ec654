// SPDX-License-Identifier: Apache-2.0
//
// How a sample ends when its arguments are wrong: a script tells that from a failure by the exit
// code.

#ifndef XTREME_SAMPLES_WRONG_ARGUMENTS_H_
#define XTREME_SAMPLES_WRONG_ARGUMENTS_H_

#include <cstdio>
#include <string>

namespace samples {

inline constexpr int kWrongArguments = 2;

// The exit code of `program`, after it said what is wrong with them.
inline int RefuseArguments(const std::string& program, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), why.c_str());
  return kWrongArguments;
}

}  // namespace samples

#endif  // XTREME_SAMPLES_WRONG_ARGUMENTS_H_
