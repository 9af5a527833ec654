// SPDX-License-Identifier: Apache-2.0
//
// The report: every figure beside its peer's and its goal, as a table and as JSON lines.
//
//   bazel run -c opt //benchmarks:report -- --json=FILE [--quick] [--parts=tcp]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "benchmarks/counting.h"
#include "benchmarks/lwip_scenario.h"
#include "benchmarks/measurement.h"
#include "benchmarks/row.h"
#include "benchmarks/scratch_directory.h"
#include "tools/arguments.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint32_t kCountedOperations = 4'096;

struct Arguments {
  std::string json;
  bool quick = false;
  uint32_t operations = kCountedOperations;
  std::vector<std::string> parts;  // Of kParts; none: all.
  std::vector<std::string> count;  // We are the program under valgrind.
  std::string answer;              // We are the other one of two_processes.
};

struct Part {
  const char* name;
  std::vector<Row> (*rows)(const Measurement& measurement);
};
constexpr const char* kOperations = "operations";  // What is counted is theirs.
constexpr Part kParts[] = {{"resources", ResourceRows},
                           {kOperations, OperationRows},
                           {"two_threads", TwoThreadRows},
                           {"two_processes", TwoProcessRows},
                           {"stepped", SteppedRows},
                           {"tcp", TcpRows},
                           {"faces", FaceRows},
                           {"sockperf", SockperfRows}};

bool Wants(const Arguments& arguments, const char* part) {
  return arguments.parts.empty() || std::ranges::count(arguments.parts, part) != 0;
}

Measurement StartMeasurement(const Arguments& arguments) {
  Measurement measurement{.quick = arguments.quick};
  if (arguments.quick) measurement.timing = {.batches = 3, .operations = 1'024};
  if (!Wants(arguments, kOperations)) return measurement;
  // Where it fails, the row of its peer says so.
  if (!arguments.quick) FetchLwip().IgnoreError();
  const ScratchDirectory scratch;
  measurement.counts =
      CountInstructions(std::filesystem::read_symlink("/proc/self/exe"), CountedScenarios(),
                        arguments.quick ? 256 : arguments.operations, scratch.path());
  return measurement;
}

int Report(const Arguments& arguments) {
  const Measurement measurement = StartMeasurement(arguments);
  std::vector<Row> rows;
  for (const Part& part : kParts) {
    if (!Wants(arguments, part.name)) continue;
    for (Row& row : part.rows(measurement)) rows.push_back(std::move(row));
  }
  std::cout << ToTable(rows);
  if (arguments.json.empty()) return 0;
  std::ofstream file(arguments.json);
  file << ToJsonLines(rows);
  file.close();
  if (!file) std::cerr << "report: cannot write " << arguments.json << "\n";
  return file ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures Xtreme against its peers.");
  Arguments arguments;
  app.add_option("--json", arguments.json, "write JSON lines to this file");
  app.add_flag("--quick", arguments.quick, "few iterations: shows that the report works");
  app.add_option("--operations", arguments.operations, "operations of each scenario to count");
  app.add_option("--parts", arguments.parts, "only these: resources, operations, two_threads...")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"resources", "operations", "two_threads", "two_processes", "stepped", "tcp", "faces",
           "sockperf"}));
  app.add_option("--count", arguments.count, "run these scenarios for valgrind and end")
      ->delimiter(',');
  app.add_option("--answer", arguments.answer, "answer on this segment until killed");
  if (const auto code = tools::ParseArguments(app, argc, argv)) return *code;
  if (!arguments.answer.empty()) return AnswerOverSharedWire(arguments.answer);
  if (!arguments.count.empty()) {
    RunCounted(arguments.count, arguments.operations);
    return 0;
  }
  return Report(arguments);
}

}  // namespace
}  // namespace xtreme::benchmarks

int main(int argc, char** argv) { return xtreme::benchmarks::Main(argc, argv); }
