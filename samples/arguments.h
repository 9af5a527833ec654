// SPDX-License-Identifier: Apache-2.0
//
// The arguments of samples that have many.

#ifndef XTREME_SAMPLES_ARGUMENTS_H_
#define XTREME_SAMPLES_ARGUMENTS_H_

#include <optional>

#include "CLI/CLI.hpp"
#include "samples/wrong_arguments.h"

namespace samples {

// Fills what `app` was told to. The exit code when the program is to end at once: 0 after --help,
// kWrongArguments after it said what is wrong.
inline std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongArguments;
  }
  return std::nullopt;
}

}  // namespace samples

#endif  // XTREME_SAMPLES_ARGUMENTS_H_
