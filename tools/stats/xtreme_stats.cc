// SPDX-License-Identifier: Apache-2.0
//
// xtreme_stats: the counters of running and of dead programs, from outside.

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tools/arguments.h"
#include "tools/stats/pause.h"
#include "tools/stats/rings.h"
#include "tools/stats/selection_options.h"
#include "tools/stats/views.h"
#include "xtreme/stats/frame_reader.h"

namespace xtreme::stats {
namespace {

constexpr char kAbout[] =
    "Shows the counters that rings publish once a second in shared memory, of running programs and "
    "of those that were killed. Reads only.";

constexpr char kForUsersOfVma[] =
    "The views of vma_stats and their counterparts:\n"
    "  -v 1, basic counters             --view=summary\n"
    "  -v 2, extra counters             --view=counters, --view=drops\n"
    "  -v 3, with the configuration     --view=configuration, --view=histograms\n"
    "  -v 4, multicast groups           --view=groups\n"
    "  -v 5, like netstat               --view=netstat\n"
    "  -d 2, deltas                     --delta\n"
    "  -p, -n, -k, -i, -c               --pid, --program, --directory, --interval, --count\n"
    "  -S FD, -s LIST, one socket       --view=sockets --socket=HANDLE\n"
    "  -z, zero counters                none: counters only grow, --delta subtracts\n"
    "  -F, keep files of dead programs  always, until the next ring starts; --clean removes them\n";

struct Command {
  Selection selection;
  View view = View::kSummary;
  bool json = false;
  bool prometheus = false;
  bool delta = false;
  bool watch = false;
  bool clean = false;
  double interval_s = 1;
  uint64_t count = 0;
};

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// `unread`, if anybody asks: whether a file could not be read.
std::vector<Segment> CollectAndComplain(const Selection& selection, bool* unread = nullptr) {
  std::vector<std::string> problems;
  std::vector<Segment> rings = Collect(selection, &problems);
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "xtreme_stats: %s\n", problem.c_str());
  }
  if (unread != nullptr) *unread = !problems.empty();
  return rings;
}

std::string Format(const Command& command, const std::vector<Segment>& rings) {
  if (command.json) return ToJson(rings, NowNs());
  if (command.prometheus) return ToPrometheus(rings, NowNs());
  return ToText(rings, command.view, NowNs());
}

// False: nobody reads any more.
bool Sleep(const Command& command) {
  const std::chrono::duration<double> interval(command.interval_s);
  return Pause(STDOUT_FILENO, std::chrono::duration_cast<std::chrono::nanoseconds>(interval));
}

int SayThatItCannotBeWritten() {
  std::fprintf(stderr, "xtreme_stats: the report cannot be written\n");
  return 1;
}

int SayThatThereIsNone(const Selection& selection) {
  const char* const directory = selection.directory.c_str();
  if (selection.socket.empty()) {
    std::fprintf(stderr, "xtreme_stats: no such ring in %s\n", directory);
  } else {
    std::fprintf(stderr, "xtreme_stats: no such socket in %s, of those that rings publish\n",
                 directory);
  }
  return 1;
}

int Run(const Command& command) {
  if (const std::string why = WhyUnreadable(command.selection.directory); !why.empty()) {
    std::fprintf(stderr, "xtreme_stats: %s\n", why.c_str());
    return 1;
  }
  if (command.clean) {
    const std::string& directory = command.selection.directory;
    std::printf("%d removed\n", RemoveStale(directory) + RemoveStaleFrames(directory));
    return 0;
  }
  const bool once = !command.watch && command.count == 0;
  const bool clear = command.watch && isatty(STDOUT_FILENO) == 1;
  std::vector<Segment> before;
  if (command.delta) {
    before = CollectAndComplain(command.selection);
    if (!Sleep(command)) return SayThatItCannotBeWritten();
  }
  for (uint64_t report = 1;; ++report) {
    bool unread = false;
    std::vector<Segment> rings = CollectAndComplain(command.selection, &unread);
    // For programs none is an answer: who keeps the last one would go on with rings long gone.
    const bool may_be_none = (command.json || command.prometheus) && !unread;
    if (rings.empty() && once && !may_be_none) return SayThatThereIsNone(command.selection);
    if (clear) std::fputs("\033[H\033[2J", stdout);
    std::fputs(Format(command, command.delta ? RisesSince(before, rings) : rings).c_str(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return SayThatItCannotBeWritten();
    }
    if (once || report == command.count) return 0;
    before = std::move(rings);
    if (!Sleep(command)) return SayThatItCannotBeWritten();
  }
}

// "nan" is in every range.
std::string IsNumber(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : "";
}

int Main(int argc, char** argv) {
  Command command;
  CLI::App app{kAbout, "xtreme_stats"};
  app.footer(kForUsersOfVma);
  AddOptions(app, command.selection, "one socket: its handle, ADDRESS:PORT or :PORT");
  std::vector<std::string> views;
  for (const auto& [name, view] : ViewNames()) views.push_back(name);
  app.add_option_function<std::string>(
         "-v,--view", [&](const std::string& name) { command.view = ViewNames().at(name); },
         "what to show; without it: summary")
      ->check(CLI::IsMember(views));
  auto* json = app.add_flag("--json", command.json, "everything, as JSON");
  auto* prometheus = app.add_flag("--prometheus", command.prometheus, "everything, for Prometheus");
  prometheus->excludes(json);
  // It subtracts by itself, and takes a count that falls for one that began anew.
  app.add_flag("-d,--delta", command.delta, "what counters rose by in an interval")
      ->excludes(prometheus);
  app.add_flag("-w,--watch", command.watch, "again after each interval, until interrupted");
  app.add_option("-i,--interval", command.interval_s, "seconds between reports")
      ->check(CLI::Range(0.05, 86'400.0))->check(&IsNumber)->capture_default_str();
  app.add_option("-c,--count", command.count, "so many reports")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  app.add_flag("--clean", command.clean, "remove what killed programs left, and end");
  if (const auto code = tools::ParseArguments(app, argc, argv)) return *code;
  return Run(command);
}

}  // namespace
}  // namespace xtreme::stats

int main(int argc, char** argv) { return xtreme::stats::Main(argc, argv); }
