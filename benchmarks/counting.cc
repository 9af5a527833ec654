// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/counting.h"

#include <valgrind/callgrind.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "benchmarks/scenario.h"
#include "benchmarks/subprocess.h"

namespace xtreme::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWarm = "warm";
constexpr uint32_t kWarmRuns = 3;
// Of lines that the two sides agree on.
constexpr std::string_view kDone = "counted ";
constexpr std::string_view kRefused = "refused ";

// What one profile says: which dump it is, and its cost.
struct Profile {
  std::string trigger;
  double instructions = 0;
};

Profile ReadProfile(const fs::path& path) {
  constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
  constexpr std::string_view kTotals = "totals: ";
  Profile profile;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kTrigger)) profile.trigger = line.substr(kTrigger.size());
    if (line.starts_with(kTotals)) {
      profile.instructions = std::strtod(line.c_str() + kTotals.size(), nullptr);
    }
  }
  return profile;
}

// Lines "counted NAME OPERATIONS" and "refused NAME REASON".
Counts ReadOutput(const std::string& output, const std::map<std::string, double>& instructions) {
  Counts counts;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string kind, name;
    fields >> kind >> name;
    if (line.starts_with(kRefused)) {
      std::string reason;
      std::getline(fields >> std::ws, reason);
      counts.insert_or_assign(name, absl::UnavailableError(reason));
    }
    double operations = 0;
    const auto found = instructions.find(name);
    if (line.starts_with(kDone) && fields >> operations && found != instructions.end()) {
      // To a tenth: what Run() does once is spread over its operations.
      counts.insert_or_assign(name, std::round(found->second / operations * 10) / 10);
    }
  }
  return counts;
}

}  // namespace

absl::StatusOr<Counts> CountInstructions(const std::string& program,
                                         const std::vector<std::string>& scenarios,
                                         uint32_t operations, const std::string& directory,
                                         const std::vector<std::string>& environment) {
  std::vector<std::string> command = {
      "valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no",
      "--toggle-collect=xtreme_benchmark_measured", "--toggle-collect=xtreme_benchmark_device",
      absl::StrCat("--callgrind-out-file=", directory, "/profile"), program,
      absl::StrCat("--operations=", operations), "--count", absl::StrJoin(scenarios, ",")};
  command.insert(command.begin(), environment.begin(), environment.end());
  command.insert(command.begin(), "env");
  auto output = RunProgram(command);
  if (!output.ok()) return output.status();
  std::map<std::string, double> instructions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const Profile profile = ReadProfile(entry.path());
    if (!profile.trigger.empty()) instructions[profile.trigger] = profile.instructions;
  }
  return ReadOutput(*output, instructions);
}

void RunCounted(const std::vector<std::string>& scenarios, uint32_t operations) {
  for (const std::string& name : scenarios) {
    auto made = MakeScenario(name);
    if (!made.ok()) {
      std::cout << kRefused << name << ' ' << made.status().message() << std::endl;
      continue;
    }
    Scenario& scenario = **made;
    for (uint32_t i = 0; i < kWarmRuns; ++i) {
      scenario.Prepare();
      xtreme_benchmark_measured(&scenario);
    }
    CALLGRIND_DUMP_STATS_AT(kWarm.data());
    uint64_t done = 0;
    for (; done < operations; done += scenario.operations()) {
      scenario.Prepare();
      xtreme_benchmark_measured(&scenario);
    }
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    std::cout << kDone << name << ' ' << done << std::endl;
  }
}

}  // namespace xtreme::benchmarks
