// SPDX-License-Identifier: Apache-2.0
//
// hardware: the fixed list of what only a real card can show, run by one command, with a report
// that a stranger can attach to an issue. See docs/tools.md.

#include <sys/utsname.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "benchmarks/hardware/bench_ring.h"
#include "benchmarks/hardware/items.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/arguments.h"
#include "tools/check/device_facts.h"

namespace xtreme::hardware {
namespace {

using nlohmann::ordered_json;

constexpr char kAbout[] =
    "Runs the list of what only a card can show. On the other host, or for another port of this "
    "one in a network namespace: hardware --serve --interface=eth3. Then here: hardware "
    "--interface=eth2 --peer=ADDRESS --json=report.json";

const std::map<std::string, Pull> kPulls = {
    {"prompt", Pull::kPrompt}, {"link", Pull::kLink}, {"skip", Pull::kSkip}};

const char* NameOf(Outcome::Verdict verdict) {
  switch (verdict) {
    case Outcome::Verdict::kOk: return "ok";
    case Outcome::Verdict::kFailed: return "failed";
    case Outcome::Verdict::kNotTried: break;
  }
  return "not tried";
}

std::string Today() {
  const time_t now = time(nullptr);
  tm utc;
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "";
}

ordered_json Surroundings(const std::string& interface) {
  const check::DeviceFacts device = check::ProbeDevice(interface);
  utsname system{};
  uname(&system);
  return {{"format", 1},
          {"date", Today()},
          {"kernel", system.release},
          {"cpu", CpuModel()},
          {"device", device.name},
          {"firmware", device.firmware},
          {"software", device.software},
          {"link_bits_per_second", device.link_bits_per_second},
          {"device_memory_bytes", device.device_memory_bytes},
          {"blueflame", device.blueflame},
          {"clock_khz", device.clock_khz}};
}

// Files and arguments may hold any bytes, JSON only UTF-8.
std::string ToText(const ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

// Whether the report is there, which took a quarter of an hour.
bool WriteReport(const std::string& path, const ordered_json& report) {
  std::ofstream file(path);
  file << ToText(report, 2) << "\n";
  file.close();
  if (file) return true;
  std::fprintf(stderr, "hardware: %s cannot be written; the report:\n", path.c_str());
  std::puts(ToText(report, 2).c_str());
  return false;
}

int RunList(const Bench& bench, const std::string& only, const std::string& json) {
  ordered_json report = Surroundings(bench.interface);
  report["items"] = ordered_json::array();
  bool failed = false;
  for (const Item& item : Items()) {
    if (!only.empty() && only != item.name) continue;
    const Outcome outcome = item.run(bench);
    failed |= outcome.verdict == Outcome::Verdict::kFailed;
    std::puts(fmt::format("{:<14} {:<10} {} {}", item.name, NameOf(outcome.verdict),
                          outcome.finding, ToText(outcome.figures)).c_str());
    std::fflush(stdout);
    report["items"].push_back({{"name", item.name},
                               {"what", item.what},
                               {"verdict", NameOf(outcome.verdict)},
                               {"finding", outcome.finding},
                               {"figures", outcome.figures}});
  }
  const bool lost = !json.empty() && !WriteReport(json, report);
  return failed || lost ? 1 : 0;
}

int Main(int argc, char** argv) {
  Bench bench;
  std::string only;
  std::string json;
  bool serve = false;
  bool count_group = false;
  uint64_t seconds = 0;
  CLI::App app{kAbout, "hardware"};
  app.add_option("--interface", bench.interface, "the interface of a ConnectX")->required();
  app.add_option("--peer", bench.peer, "the address that the other side serves on");
  app.add_flag("--serve", serve, "be the other side");
  app.add_option("--seconds", seconds, "serve for so long; 0: for ever");
  app.add_option("--asks", bench.asks, "round trips of one measurement")->capture_default_str();
  app.add_option("--rings", bench.rings, "rings of the item of that name")->capture_default_str();
  app.add_option("--pull", bench.pull, "the cable: prompt a person, set the link down, or skip")
      ->transform(CLI::CheckedTransformer(kPulls));
  std::vector<std::string> names;
  for (const Item& item : Items()) names.emplace_back(item.name);
  app.add_option("--only", only, "one item")->check(CLI::IsMember(names));
  app.add_option("--json", json, "write the report there");
  app.add_flag("--count-group", count_group)->group("");
  if (const auto code = tools::ParseArguments(app, argc, argv)) return *code;
  if (serve) return Serve(bench.interface, seconds);
  if (count_group) return CountGroup(bench.interface, bench.peer);
  if (bench.peer.empty()) {
    std::fprintf(stderr, "hardware: --peer=ADDRESS is missing\n");
    return 2;
  }
  // Said now rather than at the end of the list.
  if (!json.empty() && !std::ofstream(json, std::ios::app)) {
    std::fprintf(stderr, "hardware: %s cannot be written: %s\n", json.c_str(),
                 std::strerror(errno));
    return 2;
  }
  bench.program = std::filesystem::read_symlink("/proc/self/exe").string();
  return RunList(bench, only, json);
}

}  // namespace
}  // namespace xtreme::hardware

int main(int argc, char** argv) { return xtreme::hardware::Main(argc, argv); }
