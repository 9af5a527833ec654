// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/measurement.h"
#include "benchmarks/scenario.h"

namespace xtreme::benchmarks {
namespace {

// One operation, what it is held against, and what is to be reached.
struct Operation {
  std::string_view name;
  std::string_view ours;  // Scenario.
  std::string_view peer;  // Scenario; empty: none.
  std::string_view peer_is;
  Goal instructions;
  Goal time;
  std::string_view devices = "";  // Scenario of what our time contains and is not ours.
  bool counted = true;
  std::string_view loop = "";     // Scenario of what our count contains and is not ours.
  std::string_view plain = "";    // Scenario of the same without what is counted; never timed.
};

Goal Most(double value) { return {.most = value}; }
Goal AboveByFactor(double factor) { return {.peer_at_least = factor}; }
Goal OfPeer(double factor) { return {.most_of_peer = factor}; }

std::vector<Operation> Operations() {
  constexpr std::string_view kPost = "ibv_post_send of libmlx5, same frame, inline";
  constexpr std::string_view kGather =
      "ibv_post_send of libmlx5, 1,024-byte frame gathered; ours copied to on-device memory";
  constexpr std::string_view kPoll = "ibv_poll_cq of libmlx5, batch 16, looks at no packet";
  constexpr std::string_view kKernel = "kernel sockets over veth, one thread";
  constexpr std::string_view kLwip = "lwIP, two instances back to back, checksums off";
  return {
      {"udp_tx_post", "udp_tx_post", "udp_tx_post/libmlx5", kPost, Most(110), OfPeer(0.35)},
      {"udp_tx_burst", "udp_tx_burst", "udp_tx_burst/libmlx5", kPost, Most(60), {}},
      {"udp_tx_dm", "udp_tx_dm", "udp_tx_dm/libmlx5", kGather, OfPeer(1), OfPeer(1)},
      {"udp_fire", "udp_fire", "", "", Most(35), {}},
      {"udp_rx", "udp_rx", "udp_rx/libmlx5", kPoll, Most(110), OfPeer(0.6)},
      {"udp_rx_one", "udp_rx_one", "", "", {}, {}},
      {"idle_poll", "idle_poll", "rdtsc", "rdtsc", Most(15), Most(2.5), "", true,
       "idle_poll/loop"},
      {"idle_poll_many", "idle_poll_many", "", "", Most(15), Most(2.5), "", true,
       "idle_poll/loop"},
      {"idle_poll_timers", "idle_poll_timers", "", "", {}, Most(4), "", true, "idle_poll/loop"},
      {"rx_burst to first", "rx_burst_first", "", "", {}, {}},
      {"rx_burst to last", "rx_burst_last", "", "", {}, {}},
      {"udp_echo", "udp_echo", "udp_echo/lwip", kLwip, Most(560), OfPeer(0.5), "udp_echo/devices"},
      {"udp_echo", "udp_echo", "udp_echo/kernel", kKernel, {}, AboveByFactor(100),
       "udp_echo/devices", false},
      {"control_stall", "control_join", "", "", Most(2'000), {}},
      {"tcp_pingpong", "tcp_pingpong", "tcp_pingpong/lwip", kLwip, Most(1'100), OfPeer(0.45),
       "tcp_pingpong/devices"},
      {"tcp_pingpong", "tcp_pingpong", "tcp_pingpong/kernel", kKernel, {}, AboveByFactor(80),
       "tcp_pingpong/devices", false},
      {"tcp_bulk", "tcp_bulk", "tcp_bulk/lwip", kLwip, Most(900), OfPeer(0.45)},
      {"tcp_bulk", "tcp_bulk", "tcp_bulk/kernel", kKernel, {}, {}, "", false},
      {"tcp_bulk_runs", "tcp_bulk_runs", "", "", {}, {}},
      {"tcp_send_runs", "tcp_send_runs", "", "", Most(40), {}},
      {"tcp_send_small", "tcp_send_small", "", "", Most(250), {}},
      {"tcp_fire", "tcp_fire", "", "", Most(60), {}},
      {"tick_to_order", "tick_to_order", "", "", {}, {}},
      {"tcp_rx_one", "tcp_rx_one", "", "", {}, {}},
      {"tcp_open_close", "tcp_open_close", "tcp_open_close/lwip", kLwip, OfPeer(0.6), {}},
      {"frame_tap udp_rx", "udp_rx/kept", "", "", Most(30), {}, "", true, "", "udp_rx"},
      {"frame_tap udp_rx_one", "udp_rx_one/kept", "", "", Most(30), {}, "", true, "",
       "udp_rx_one"},
      {"frame_tap udp_tx_post", "udp_tx_post/kept", "", "", Most(30), {}, "", true, "",
       "udp_tx_post"},
      {"frame_tap udp_tx_burst", "udp_tx_burst/kept", "", "", Most(30), {}, "", true, "",
       "udp_tx_burst"},
      {"frame_tap udp_tx_dm", "udp_tx_dm/kept", "", "", Most(30), {}, "", true, "", "udp_tx_dm"},
      {"frame_tap udp_fire", "udp_fire/kept", "", "", Most(30), {}, "", true, "", "udp_fire"},
      // Of four frames.
      {"frame_tap tcp_pingpong", "tcp_pingpong/kept", "", "", Most(4 * 30), {}, "", true, "",
       "tcp_pingpong"},
      {"driver_tx_post", "driver_tx_post", "udp_tx_post/libmlx5", kPost, {}, {}},
      {"driver_tx_burst", "driver_tx_burst", "udp_tx_burst/libmlx5", kPost, {}, {}},
      {"driver_rx", "driver_rx", "udp_rx/libmlx5", kPoll, {}, {}},
  };
}

Row CountRow(const Measurement& measurement, const Operation& operation) {
  const std::string unit = operation.plain.empty() ? "instructions" : "instructions more";
  const auto count = measurement.Instructions(operation.ours);
  if (!count.ok()) {
    return Unmeasured(std::string(operation.name), unit, operation.instructions, count.status());
  }
  Row row{.name = std::string(operation.name),
          .unit = unit,
          .value = *count,
          .goal = operation.instructions};
  if (!operation.loop.empty()) {
    const auto loop = measurement.Instructions(operation.loop);
    if (!loop.ok()) return Unmeasured(row.name, row.unit, row.goal, loop.status());
    row.value = *count - *loop;
    row.note = absl::StrFormat("%.1f, less %.1f of the loop that calls", *count, *loop);
  }
  if (!operation.plain.empty()) {
    const auto plain = measurement.Instructions(operation.plain);
    if (!plain.ok()) return Unmeasured(row.name, row.unit, row.goal, plain.status());
    row.value = *count - *plain;
    row.note = absl::StrFormat("%.1f of a ring that keeps its frames, less %.1f", *count, *plain);
  }
  if (operation.peer.empty()) return row;
  const auto peer = measurement.Instructions(operation.peer);
  row.peer = operation.peer_is;
  if (peer.ok()) row.peer_value = *peer;
  if (!peer.ok()) row.note = absl::StrCat("no peer: ", peer.status().message());
  return row;
}

Row TimeRow(const Measurement& measurement, const Operation& operation) {
  Row row{.name = std::string(operation.name), .unit = "ns", .goal = operation.time};
  auto ours = MakeScenario(operation.ours);
  if (!ours.ok()) return Unmeasured(row.name, row.unit, row.goal, ours.status());
  std::vector<Scenario*> scenarios = {ours->get()};
  absl::StatusOr<std::unique_ptr<Scenario>> peer = nullptr, devices = nullptr;
  if (!operation.devices.empty()) {
    devices = MakeScenario(operation.devices);
    if (!devices.ok()) return Unmeasured(row.name, row.unit, row.goal, devices.status());
    scenarios.push_back(devices->get());
  }
  if (!operation.peer.empty()) {
    row.peer = operation.peer_is;
    peer = MakeScenario(operation.peer);
    if (peer.ok()) scenarios.push_back(peer->get());
    if (!peer.ok()) row.note = absl::StrCat("no peer: ", peer.status().message());
  }
  const std::vector<double> times = TimeInterleaved(scenarios, measurement.timing);
  row.value = times[0];
  if (*devices != nullptr) {
    row.value = times[0] - times[1];
    row.note = absl::StrFormat("%s%s%.1f ns, less %.1f ns of the null devices", row.note,
                               row.note.empty() ? "" : "; ", times[0], times[1]);
  }
  if (peer.ok() && *peer != nullptr) row.peer_value = times.back();
  return row;
}

}  // namespace

absl::StatusOr<double> Measurement::Instructions(std::string_view scenario) const {
  if (!counts.ok()) return counts.status();
  const auto it = counts->find(scenario);
  if (it == counts->end()) return absl::InternalError("valgrind left no count");
  return it->second;
}

std::vector<std::string> CountedScenarios() {
  std::vector<std::string> names;
  for (const Operation& operation : Operations()) {
    if (!operation.counted) continue;
    names.emplace_back(operation.ours);
    for (const std::string_view beside : {operation.loop, operation.plain}) {
      if (!beside.empty()) names.emplace_back(beside);
    }
    if (!operation.peer.empty()) names.emplace_back(operation.peer);
  }
  return names;
}

std::vector<Row> OperationRows(const Measurement& measurement) {
  std::vector<Row> rows;
  for (const Operation& operation : Operations()) {
    if (operation.counted) rows.push_back(CountRow(measurement, operation));
    if (operation.plain.empty()) rows.push_back(TimeRow(measurement, operation));
  }
  return rows;
}

}  // namespace xtreme::benchmarks
