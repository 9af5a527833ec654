// SPDX-License-Identifier: Apache-2.0
//
// What both feed handlers, on the ring and on kernel sockets, are told on the command line.

#ifndef XTREME_SAMPLES_RECEIVER_OPTIONS_H_
#define XTREME_SAMPLES_RECEIVER_OPTIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace receiver {

struct Options {
  std::string interface;
  std::array<std::string, 2> lines = {"233.54.12.111:26477", "233.54.12.112:26477"};
  std::string request_to;            // Empty: nothing is asked for, what is lost is missing.
  std::vector<std::string> symbols;  // Whose books are kept; empty: all.
  double timeout_s = 60;
  uint64_t datagrams = 0;  // Not 0: count so many datagrams of whatever kind, and end.
  std::string json;        // A file for the figures; empty: none.
  bool quiet = false;      // No line every second.
};

// Fills `options`. The exit code when the program is to end at once: --help, or a mistake (it was
// said on standard error).
std::optional<int> ParseCommandLine(int argc, char** argv, const std::string& description,
                                    Options* options);

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_OPTIONS_H_
