// SPDX-License-Identifier: Apache-2.0
//
// The options by which somebody says which rings a tool is to show: the same of each.

#ifndef XTREME_TOOLS_STATS_SELECTION_OPTIONS_H_
#define XTREME_TOOLS_STATS_SELECTION_OPTIONS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "tools/stats/rings.h"

namespace xtreme::stats {

// `about_socket`: what of the one socket is shown that --socket names.
inline void AddOptions(CLI::App& app, Selection& selection, const std::string& about_socket) {
  app.add_option("-k,--directory", selection.directory,
                 "where rings publish (counters_directory)")->capture_default_str();
  app.add_option("-p,--pid", selection.pid, "of this process only");
  app.add_option("-n,--program", selection.program, "of programs of this name");
  app.add_option("-r,--ring", selection.ring, "the ring of this number");
  app.add_option("--interface", selection.interface, "rings on this interface");
  app.add_option("-s,--socket", selection.socket, about_socket);
}

}  // namespace xtreme::stats

#endif  // XTREME_TOOLS_STATS_SELECTION_OPTIONS_H_
