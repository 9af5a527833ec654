// SPDX-License-Identifier: Apache-2.0
//
// Rows that look at every instruction: steady_state, cold_lines, tail_instructions.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/measurement.h"
#include "benchmarks/scenario.h"
#include "benchmarks/stepper.h"

namespace xtreme::benchmarks {
namespace {

// Operations before the first that counts.
constexpr uint32_t kWarmOperations = 2'048;

void Warm(Scenario& scenario) {
  for (uint32_t done = 0; done < kWarmOperations; done += scenario.operations()) {
    scenario.Prepare();
    scenario.Run();
  }
  scenario.Prepare();
}

// What packets cost that must cost nothing, scaled to a million of a scenario in which an operation
// is a request and its answer.
std::vector<Row> SteadyState(const Measurement& measurement, std::string_view scenario_name,
                             const std::string& packets_are) {
  constexpr char kName[] = "steady_state";
  constexpr double kPacketsOfEcho = 2;
  const uint32_t echoes = measurement.quick ? 32 : 256;
  auto echo = MakeScenario(scenario_name, echoes);
  if (!echo.ok()) return {Unmeasured(kName, "per 1e6 packets", {.most = 0}, echo.status())};
  Warm(**echo);
  const Steps steps = Stepper().Step(**echo);
  const double packets = echoes * kPacketsOfEcho;
  const std::string note =
      absl::StrCat("single-stepped over ", packets, " packets of ", std::string(scenario_name),
                   ", scaled");
  const auto row = [&](const char* what, uint64_t count) {
    return Row{.name = kName,
               .unit = absl::StrCat(what, " /1e6 ", packets_are),
               .value = static_cast<double>(count) * 1e6 / packets,
               .goal = {.most = 0},
               .note = note};
  };
  return {row("allocations", steps.allocations),
          row("system calls", steps.system_calls),
          row("locked instr.", steps.locked)};
}

std::vector<Row> ColdLines(std::string_view scenario_name, const std::string& what) {
  constexpr char kName[] = "cold_lines";
  auto scenario = MakeScenario(scenario_name, 1);
  if (!scenario.ok()) return {Unmeasured(kName, what, {}, scenario.status())};
  Warm(**scenario);
  const Steps steps = Stepper().Step(**scenario);
  const std::string note = absl::StrCat(
      "distinct 64-byte lines of one operation, single-stepped",
      steps.unknown == 0 ? "" : absl::StrCat("; ", steps.unknown, " instructions not decoded"));
  const auto row = [&](const char* kind, uint64_t lines) {
    return Row{.name = kName,
               .unit = absl::StrCat(kind, " lines, ", what),
               .value = static_cast<double>(lines),
               .note = note};
  };
  return {row("code", steps.code_lines), row("data", steps.data_lines)};
}

Row Tail(const Measurement& measurement, std::string_view scenario_name, const std::string& what,
         double goal) {
  constexpr char kName[] = "tail_instructions";
  const uint32_t operations = measurement.quick ? 100 : 10'000;
  const std::string unit = absl::StrCat("most / median, ", what);
  auto scenario = MakeScenario(scenario_name, 1);
  if (!scenario.ok()) return Unmeasured(kName, unit, {.most = goal}, scenario.status());
  Warm(**scenario);
  Stepper stepper;
  std::vector<double> counts;
  for (uint32_t i = 0; i < operations; ++i) {
    counts.push_back(static_cast<double>(stepper.Step(**scenario).instructions));
    (*scenario)->Prepare();
  }
  const double most = *std::max_element(counts.begin(), counts.end());
  const double median = Median(counts);
  return {.name = kName,
          .unit = unit,
          .value = most / median,
          .goal = {.most = goal},
          .note = absl::StrCat("most ", most, ", median ", median, " of ", operations,
                               " operations, single-stepped")};
}

// What a frame waits for: from the call to the store that tells the device. What comes behind it,
// the next frame may wait for.
Row ToDoorbell(const Measurement& measurement, std::string_view scenario_name,
               const std::string& name, const Goal& goal) {
  const std::string unit = "instructions to doorbell";
  const uint32_t operations = measurement.quick ? 16 : 256;
  auto scenario = MakeScenario(scenario_name, 1);
  if (!scenario.ok()) return Unmeasured(name, unit, goal, scenario.status());
  Warm(**scenario);
  Stepper stepper;
  std::vector<double> counts;
  for (uint32_t i = 0; i < operations; ++i) {
    counts.push_back(static_cast<double>(stepper.Step(**scenario).to_doorbell));
    (*scenario)->Prepare();
  }
  return {.name = name,
          .unit = unit,
          .value = Median(counts),
          .goal = goal,
          .note = absl::StrCat("from the call to the store that tells the device, most ",
                               *std::max_element(counts.begin(), counts.end()), ", median of ",
                               operations, " operations, single-stepped")};
}

}  // namespace

std::vector<Row> SteppedRows(const Measurement& measurement) {
  constexpr double kUdpTail = 2, kTcpTail = 3;
  std::vector<Row> rows = SteadyState(measurement, "udp_echo", "packets");
  for (Row& row : SteadyState(measurement, "tcp_pingpong", "TCP packets")) {
    rows.push_back(std::move(row));
  }
  for (const auto& [scenario, what] : {std::pair("udp_tx_post", "one send"),
                                       std::pair("udp_rx_one", "one receive"),
                                       std::pair("tcp_send_small", "one TCP send"),
                                       std::pair("tcp_fire", "one TCP fire"),
                                       std::pair("tcp_rx_one", "one TCP receive")}) {
    for (Row& row : ColdLines(scenario, what)) rows.push_back(std::move(row));
  }
  for (const std::string name : {"udp_tx_post", "udp_fire", "tcp_send_small", "tcp_fire"}) {
    rows.push_back(ToDoorbell(measurement, name, name, {}));
  }
  rows.push_back(ToDoorbell(measurement, "tick_to_order", "tick_to_order", {.most = 220}));
  rows.push_back(Tail(measurement, "udp_tx_post", "UDP send", kUdpTail));
  rows.push_back(Tail(measurement, "udp_rx_one", "UDP receive", kUdpTail));
  rows.push_back(Tail(measurement, "tcp_send_small", "TCP send", kTcpTail));
  rows.push_back(Tail(measurement, "tcp_rx_one", "TCP receive", kTcpTail));
  return rows;
}

}  // namespace xtreme::benchmarks
