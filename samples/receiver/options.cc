// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/options.h"

#include "CLI/CLI.hpp"
#include "samples/arguments.h"

namespace receiver {

std::optional<int> ParseCommandLine(int argc, char** argv, const std::string& description,
                                    Options* options) {
  CLI::App app(description);
  app.add_option("--interface", options->interface, "Interface that the feed arrives at")
      ->required();
  app.add_option("--line-a", options->lines[0], "Group and port of line A")
      ->capture_default_str();
  app.add_option("--line-b", options->lines[1], "Group and port of line B")
      ->capture_default_str();
  app.add_option("--request-to", options->request_to,
                 "A.B.C.D:PORT that is asked for what both lines lost");
  app.add_option("--symbols", options->symbols, "Keep the books of these only (A,B,C)")
      ->delimiter(',');
  app.add_option("--timeout", options->timeout_s, "Seconds until the run has failed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--datagrams", options->datagrams,
                 "Only count datagrams, whatever they are, and end after so many");
  app.add_option("--json", options->json, "Write the figures to this file");
  app.add_flag("--quiet", options->quiet, "No line every second");
  return samples::ParseArguments(app, argc, argv);
}

}  // namespace receiver
