// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the operator's tools: a script tells wrong ones from a failure by the exit code.

#ifndef XTREME_TOOLS_ARGUMENTS_H_
#define XTREME_TOOLS_ARGUMENTS_H_

#include <optional>

#include "CLI/CLI.hpp"

namespace xtreme::tools {

inline constexpr int kWrongArguments = 2;

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

}  // namespace xtreme::tools

#endif  // XTREME_TOOLS_ARGUMENTS_H_
