// SPDX-License-Identifier: Apache-2.0
//
// Rows of what a ring takes before the first packet: memory_ring, memory_udp, startup.

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/measurement.h"
#include "benchmarks/null_nic.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/ring_rig.h"
#include "xtreme/engine/rule_table.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/host/tsc_clock.h"

namespace xtreme::benchmarks {
namespace {

constexpr double kMegabyte = 1 << 20;
constexpr uint16_t kFirstPort = 8'000;

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double AllocatedBytes() {
  const struct mallinfo2 now = mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

// Options as an application gets them by default, on the interface of the kernel in memory.
engine::RingOptions UntouchedOptions() {
  engine::RingOptions options;
  options.interface_name = RingRig::DefaultOptions().interface_name;
  return options;
}

Row MemoryRing() {
  constexpr char kName[] = "memory_ring";
  constexpr char kUnit[] = "MB";
  const double before = ResidentBytes();
  auto rig = RingRig::Make(UntouchedOptions());
  if (!rig.ok()) return Unmeasured(kName, kUnit, {.most = 16}, rig.status());
  return {.name = kName,
          .unit = kUnit,
          .value = (ResidentBytes() - before) / kMegabyte,
          .goal = {.most = 16},
          .note = absl::StrCat("RSS of engine, control thread, one ring with default options on a "
                               "port of 25 Gb/s, one socket; ", (*rig)->ring().description())};
}

// Bytes of what stands in for the kernel and the device behind `count` sockets: a port and what the
// device has of a rule.
double StandInBytes(uint32_t count) {
  engine::testing::MemoryKernel kernel({});
  NullNic nic({});
  const double before = AllocatedBytes();
  std::vector<std::unique_ptr<engine::KernelPort>> ports;
  std::vector<std::unique_ptr<nic::Rule>> rules;
  ports.reserve(count);
  rules.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    auto port = kernel.LeasePort(
        {HostA().endpoint.address, static_cast<uint16_t>(kFirstPort + i)}, false, false);
    if (port.ok()) ports.push_back(*std::move(port));
    if (auto rule = nic.AddRule({}, nullptr); rule.ok()) rules.push_back(*std::move(rule));
  }
  return AllocatedBytes() - before - count * (sizeof(ports[0]) + sizeof(rules[0]));
}

// Bytes of one rule in the engine's table, the device's own left out.
absl::StatusOr<double> RuleBytes(uint32_t count) {
  NullNic nic({});
  engine::RuleTable table(&nic, nullptr);
  const double before = AllocatedBytes();
  for (uint32_t i = 0; i < count; ++i) {
    nic::FlowRule rule;
    rule.match.destination_ip = HostA().endpoint.address;
    rule.match.destination_port = static_cast<uint16_t>(kFirstPort + i);
    rule.tag = i + 1;
    if (auto held = table.Hold(rule); !held.ok()) return held.status();
  }
  return (AllocatedBytes() - before) / count;
}

std::vector<Row> MemoryUdp(const Measurement& measurement) {
  constexpr char kName[] = "memory_udp";
  constexpr Goal kGoal = {.most = 192};
  const uint32_t count = measurement.quick ? 256 : 8'192;
  engine::RingOptions options = RingRig::DefaultOptions();
  options.max_sockets = count + 64;
  const double before_ring = AllocatedBytes();
  auto rig = RingRig::Make(options);
  if (!rig.ok()) return {Unmeasured(kName, "B a socket", kGoal, rig.status())};
  options.max_sockets = 64;
  const double with_tables = AllocatedBytes();
  auto small = RingRig::Make(options);
  const double tables = (with_tables - before_ring) - (AllocatedBytes() - with_tables);
  const double before = AllocatedBytes();
  for (uint32_t i = 0; i < count; ++i) {
    auto opened = (*rig)->OpenSocket(static_cast<uint16_t>(kFirstPort + i));
    if (!opened.ok()) return {Unmeasured(kName, "B a socket", kGoal, opened.status())};
    if (i % 64 != 63) continue;
    if (absl::Status settled = (*rig)->Settle(); !settled.ok()) {
      return {Unmeasured(kName, "B a socket", kGoal, settled)};
    }
  }
  const double sockets = AllocatedBytes() - before + tables - StandInBytes(count);
  const auto rule = RuleBytes(measurement.quick ? 64 : 1'024);
  const std::string note = absl::StrCat(
      "heap of ", count, " sockets bound to ports of one address, tables included; of kernel and "
      "device, which are in memory here, nothing");
  if (!rule.ok()) return {Unmeasured(kName, "B a socket", kGoal, rule.status())};
  return {{.name = kName,
           .unit = "B a socket, rule apart",
           .value = sockets / count - *rule,
           .goal = kGoal,
           .note = note},
          {.name = kName, .unit = "B a rule", .value = *rule}};
}

std::vector<Row> Startup() {
  constexpr char kName[] = "startup";
  const uint64_t begin = host::MonotonicNs();
  auto rig = RingRig::Make(UntouchedOptions());
  const double ms = static_cast<double>(host::MonotonicNs() - begin) / 1e6;
  if (!rig.ok()) return {Unmeasured(kName, "ms", {.most = 20}, rig.status())};
  return {{.name = kName,
           .unit = "ms, library and ring",
           .value = ms - (*rig)->start_ms(),
           .goal = {.most = 20},
           .note = "engine, default ring and one connected socket over the null device"},
          {.name = kName, .unit = "ms, Start()", .value = (*rig)->start_ms()}};
}

}  // namespace

std::vector<Row> ResourceRows(const Measurement& measurement) {
  std::vector<Row> rows = {MemoryRing()};
  for (Row& row : MemoryUdp(measurement)) rows.push_back(std::move(row));
  for (Row& row : Startup()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace xtreme::benchmarks
