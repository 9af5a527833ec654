// SPDX-License-Identifier: Apache-2.0
//
// Rows of TCP that are no single operation: growth, memory_tcp, and rtt_two_cores of TCP.

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/kernel_tcp_scenario.h"
#include "benchmarks/measurement.h"
#include "benchmarks/null_device.h"
#include "benchmarks/scenario.h"
#include "benchmarks/stepper.h"
#include "benchmarks/tcp_rig.h"
#include "benchmarks/tcp_scenarios.h"
#include "benchmarks/timing.h"
#include "benchmarks/two_core_rows.h"
#include "benchmarks/two_cores.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint32_t kMany = 100'000;
constexpr uint32_t kSome = 1'000;
constexpr bool kStillClock = true;

// --- growth ---

struct Counted {
  double median = 0;
  double most = 0;
};

// Instructions an operation, by single steps, of batches that stand apart by a part of a turn over
// `connections`: where the timers of many fall due together a batch counts those, and is no median.
Counted Instructions(Scenario& scenario, uint32_t connections) {
  constexpr size_t kBatches = 9;
  const uint32_t apart = connections / kBatches / scenario.operations();
  std::array<double, kBatches> batches;
  for (double& batch : batches) {
    scenario.Prepare();
    const Steps steps = Stepper().Step(scenario);
    batch = static_cast<double>(steps.instructions) / scenario.operations();
    for (uint32_t i = 0; i < apart; ++i) {
      scenario.Prepare();
      scenario.Run();
    }
  }
  std::sort(batches.begin(), batches.end());
  return {.median = batches[kBatches / 2], .most = batches.back()};
}

std::vector<Row> Growth(const Measurement& measurement, uint32_t connections, double time_goal) {
  constexpr char kName[] = "growth";
  constexpr Goal kInstructions = {.most_of_peer = 1.05};
  const Goal time = {.most_of_peer = time_goal};
  const std::string count_unit = absl::StrCat("instructions, ", connections);
  const std::string time_unit = absl::StrCat("ns, ", connections, " connections");
  const uint32_t operations = measurement.quick ? 32 : 256;
  const auto unmeasured = [&](const absl::Status& why) {
    return std::vector<Row>{Unmeasured(kName, count_unit, kInstructions, why),
                            Unmeasured(kName, time_unit, time, why)};
  };
  if (measurement.quick && connections > kSome) {
    return unmeasured(absl::UnavailableError("opening so many takes too long for a quick run"));
  }
  auto one = TcpPingPong(operations, 1, kStillClock);
  if (!one.ok()) return unmeasured(one.status());
  std::string memory;
  auto many = TcpPingPong(operations, connections, kStillClock, &memory);
  if (!many.ok()) return unmeasured(many.status());
  Scenario* const both[] = {one->get(), many->get()};
  const std::vector<double> times = TimeInterleaved(both, measurement.timing);
  const Counted of_many = Instructions(**many, connections);
  Row counted{.name = kName,
              .unit = count_unit,
              .value = of_many.median,
              .peer = "one connection",
              .peer_value = Instructions(**one, 1).median,
              .goal = kInstructions,
              .note = absl::StrCat("tcp_pingpong over the connections in turn, single-stepped, by "
                                   "a clock that nearly stands; median of 9 batches, the most ",
                                   std::round(of_many.most), "; ", memory)};
  Row timed = counted;
  timed.unit = time_unit;
  timed.value = times[1];
  timed.peer_value = times[0];
  timed.goal = time;
  timed.note = "with the null devices; on the same clock";
  return {counted, timed};
}

// --- memory_tcp ---

double AllocatedBytes() {
  const struct mallinfo2 now = mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

Row MemoryTcp(const Measurement& measurement) {
  constexpr char kName[] = "memory_tcp";
  constexpr char kUnit[] = "B a connection";
  constexpr Goal kGoal = {.most = 512};
  const uint32_t count = measurement.quick ? 2 * kSome : kMany;
  const double at_first = AllocatedBytes();
  auto few = TcpPair::Make({});
  if (!few.ok()) return Unmeasured(kName, kUnit, kGoal, few.status());
  const double before = AllocatedBytes();
  auto many = TcpPair::Make({.connections = count});
  if (!many.ok()) return Unmeasured(kName, kUnit, kGoal, many.status());
  const double handles = count * sizeof(engine::Handle);  // Ours.
  const double more = (AllocatedBytes() - before) - (before - at_first) - handles;
  const double connections = (*many)->max_connections() - (*few)->max_connections();
  constexpr double kRings = 2;
  return {.name = kName,
          .unit = kUnit,
          .value = more / kRings / connections,
          .goal = kGoal,
          .note = absl::StrCat("heap of two rings, at each ", count,
                               " open and idle connections, over the heap of two with room for ",
                               (*few)->max_connections(), "; all tables and shared pools")};
}

// --- rtt_two_cores ---

// Nanoseconds from a request to the answer at hand, both rings here, both devices on another core.
double RoundTripNs(TcpPair& pair, uint32_t rounds, double ticks_per_ns) {
  NullDevice& at_client = pair.client().device();
  NullDevice& at_server = pair.server().device();
  const Spinner devices([&] {
    at_client.CarryTo(&at_server);
    at_server.CarryTo(&at_client);
  });
  const Pinned pinned(0);
  const uint64_t start = ReadTicks();
  for (uint32_t i = 0; i < rounds; ++i) {
    bool there = false, back = false;
    pair.client().Send(pair.connection(0), kMessageBytes);
    while (!there) {
      pair.server().Poll(TcpRig::kBatch, [&](const engine::Completion& completion) {
        if (completion.kind != engine::Kind::kPacket) return;
        there = true;
        pair.server().Send(completion.socket, kMessageBytes);
      });
    }
    while (!back) {
      pair.client().Poll(TcpRig::kBatch, [&](const engine::Completion& completion) {
        back |= completion.kind == engine::Kind::kPacket;
      });
    }
  }
  return static_cast<double>(ReadTicks() - start) / ticks_per_ns / rounds;
}

std::vector<Row> RoundTrip(const Measurement& measurement) {
  TwoCoreRoundTrip trip{.unit = "ns, TCP, best of 5",
                        .most_cache_lines = 4.5,
                        .kernel_peer = "kernel TCP over veth, one thread",
                        .ours = {},
                        .kernel = KernelTcpPingPong};
  auto pair = TcpPair::Make({});
  if (!pair.ok()) return {UnmeasuredRoundTrip(trip, pair.status())};
  trip.ours = [&](uint32_t rounds, double ticks_per_ns) {
    return RoundTripNs(**pair, rounds, ticks_per_ns);
  };
  return RoundTripRows(trip, measurement.quick);
}

}  // namespace

std::vector<Row> TcpRows(const Measurement& measurement) {
  constexpr double kSomeTime = 1.3, kManyTime = 3;
  std::vector<Row> rows = Growth(measurement, kSome, kSomeTime);
  for (Row& row : Growth(measurement, kMany, kManyTime)) rows.push_back(std::move(row));
  rows.push_back(MemoryTcp(measurement));
  for (Row& row : RoundTrip(measurement)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace xtreme::benchmarks
