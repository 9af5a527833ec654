// SPDX-License-Identifier: Apache-2.0
//
// xtreme_check: looks, before a program is started, at all that its rings need. Changes nothing.

#include <array>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/arguments.h"
#include "tools/check/checks.h"

namespace xtreme::check {
namespace {

constexpr char kAbout[] =
    "Looks at an interface and its host before a program opens rings there, and says of each "
    "thing PASS, WARN (it will be slower) or FAIL (it will not work), with what to do. Changes "
    "nothing. Ends with 1 if anything failed.";

constexpr std::array<const char*, 3> kVerdicts = {"PASS", "WARN", "FAIL"};

const char* NameOf(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }

// What cannot be written is seen at the end: fmt::print() would throw.
void Put(const std::string& text) { std::fputs(text.c_str(), stdout); }

void PrintText(const std::vector<NamedResult>& results) {
  for (const auto& [name, result] : results) {
    Put(fmt::format("{} {:<14} {}\n", NameOf(result.verdict), name, result.finding));
    if (!result.fix.empty()) Put(fmt::format("     {:<14} fix: {}\n", "", result.fix));
  }
}

void PrintJson(const Target& target, const std::vector<NamedResult>& results) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const auto& [name, result] : results) {
    checks.push_back({{"name", name},
                      {"verdict", NameOf(result.verdict)},
                      {"finding", result.finding},
                      {"fix", result.fix}});
  }
  const nlohmann::ordered_json all = {{"interface", target.interface},
                                      {"software", target.device.software},
                                      {"firmware", target.device.firmware},
                                      {"checks", checks}};
  // Files and arguments may hold any bytes, JSON only UTF-8.
  Put(all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int Main(int argc, char** argv) {
  Target target;
  bool json = false;
  CLI::App app{kAbout, "xtreme_check"};
  app.add_option("interface", target.interface, "the interface of a ConnectX: eth2")->required();
  app.add_option("--cpu", target.cpu, "the CPU that the owner of the ring will run on")
      ->check(CLI::Range(0, 8191));
  app.add_flag("--json", json, "for programs");
  if (const auto code = tools::ParseArguments(app, argc, argv)) return *code;
  const System system;
  target.device = ProbeDevice(DeviceInterface(system, target.interface));
  const std::vector<NamedResult> results = RunChecks(system, target);
  json ? PrintJson(target, results) : PrintText(results);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "xtreme_check: the report cannot be written\n");
    return 1;
  }
  for (const NamedResult& each : results) {
    if (each.result.verdict == Verdict::kFail) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace xtreme::check

int main(int argc, char** argv) { return xtreme::check::Main(argc, argv); }
