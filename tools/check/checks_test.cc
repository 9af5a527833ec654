// SPDX-License-Identifier: Apache-2.0
//
// Each check on a machine made of files, for each of its verdicts.

#include "tools/check/checks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xtreme::check {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;  // One that ends with '/' is a directory.

DeviceFacts GoodDevice() {
  return {.has_interface = true,
          .name = "mlx5_0",
          .uverbs = "uverbs0",
          .firmware = "22.35.1012",
          .port_active = true,
          .link_bits_per_second = 100'000'000'000,
          .device_memory_bytes = 131'072,
          .checksums = true,
          .timestamp_mask = ~uint64_t{0},
          .clock_khz = 1'000'000,
          .free_running_times = true,
          .clock_published = true,
          .host_clock_synchronised = true,
          .doorbell_registers = 33,
          .blueflame = true,
          .flow_table_rules = 65'536};
}

struct Row {
  std::string_view check;
  Verdict verdict;
  std::string finding;  // A part of it.
  Files files = {};
  std::optional<int> cpu = {};
  DeviceFacts device = GoodDevice();
  std::string interface = "eth2";
};

template <typename Change>
DeviceFacts Device(Change change) {
  DeviceFacts device = GoodDevice();
  change(device);
  return device;
}

constexpr Verdict kPass = Verdict::kPass;
constexpr Verdict kWarn = Verdict::kWarn;
constexpr Verdict kFail = Verdict::kFail;

const std::string kCpu3 = "/sys/devices/system/cpu/cpu3/";
const std::string kNet = "/sys/class/net/eth2/";
const std::string kNode0 = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/";

std::vector<Row> MemoryRows() {
  const std::string limits = "/proc/self/limits";
  return {
      {"memlock", kPass, "not limited",
       {{limits, "Max locked memory         unlimited            unlimited            bytes\n"}}},
      {"memlock", kWarn, "32768 KiB",
       {{limits, "Max locked memory         33554432             33554432             bytes\n"}}},
      {"memlock", kFail, "8192 KiB",
       {{limits, "Max locked memory         8388608              8388608              bytes\n"}}},
      {"memlock", kWarn, "65536 KiB may be locked; on this link a ring of profile latency takes "
                         "some 25 MiB, one of feed 365",
       {{limits, "Max locked memory         67108864             67108864             bytes\n"}}},
      {"memlock", kPass, "CAP_IPC_LOCK is there",
       {{limits, "Max locked memory         8388608              8388608              bytes\n"},
        {"/proc/self/status", "CapEff:\t0000000000004000\n"},
        {"/proc/self/uid_map", "         0          0 4294967295\n"}}},
      {"memlock", kFail, "8192 KiB",
       {{limits, "Max locked memory         8388608              8388608              bytes\n"},
        {"/proc/self/status", "CapEff:\t0000000000004000\n"},
        {"/proc/self/uid_map", "         0       1000          1\n"}}},
      {"memlock", kWarn, "8192 KiB may be locked; what a ring takes, the link says",
       {{limits, "Max locked memory         8388608              8388608              bytes\n"}},
       {}, Device([](DeviceFacts& d) { d.link_bits_per_second = 0; })},
      {"hugepages", kWarn, "0 of 0 hugepages are free; what a ring takes, the link says", {}, {},
       Device([](DeviceFacts& d) { d.link_bits_per_second = 0; })},
      {"hugepages", kPass, "60 of 64 hugepages are free on node 0; a ring of profile feed takes",
       {{kNet + "device/numa_node", "0"},
        {kNode0 + "nr_hugepages", "64"},
        {kNode0 + "free_hugepages", "60"}}},
      {"hugepages", kWarn, "0 of 0 hugepages are free; pools use ordinary pages"},
  };
}

std::vector<Row> HostRows() {
  const std::string release = "/proc/sys/kernel/osrelease";
  const std::string status = "/proc/self/status";
  const std::string cpus = "/sys/devices/system/cpu/";
  return {
      {"kernel", kPass, "Linux 6.1.0-18", {{release, "6.1.0-18-amd64\n"}}},
      {"kernel", kWarn, "Linux 5.4.0", {{release, "5.4.0\n"}}},
      {"kernel", kWarn, "not told"},
      {"kernel", kFail, "Linux 4.19.0", {{release, "4.19.0\n"}}},
      {"cap_net_raw", kPass, "is there", {{status, "Name:\tx\nCapEff:\t0000000000002000\n"}}},
      {"cap_net_raw", kFail, "missing", {{status, "CapEff:\t0000000000001000\n"}}},
      {"cap_net_raw", kFail, "a user namespace's", {{status, "CapEff:\t0000000000002000\n"}}, {},
       Device([](DeviceFacts& d) { d.raw_queues = false; })},
      {"cap_net_raw", kWarn, "not told"},
      {"numa", kPass, "no node of its own", {{kNet + "device/numa_node", "-1"}}},
      {"numa", kPass, "NIC and CPU 3 are on node 0",
       {{kNet + "device/numa_node", "0"}, {kCpu3 + "node0/", ""}}, 3},
      {"numa", kWarn, "the NIC is on node 1, CPU 3 on node 0",
       {{kNet + "device/numa_node", "1"}, {kCpu3 + "node0/", ""}}, 3},
      {"isolation", kPass, "CPU 3 is isolated and without a tick",
       {{kCpu3, ""}, {cpus + "isolated", "2-5,8\n"}, {cpus + "nohz_full", "3\n"}}, 3},
      {"isolation", kWarn, "has a timer tick", {{kCpu3, ""}, {cpus + "isolated", "3"}}, 3},
      {"isolation", kWarn, "CPU 3 is not isolated", {{kCpu3, ""}, {cpus + "isolated", "4"}}, 3},
      {"isolation", kWarn, "no CPU is isolated", {{cpus + "isolated", "\n"}}},
      {"isolation", kFail, "there is no CPU 3", {}, 3},
      {"governor", kPass, "performance", {{kCpu3 + "cpufreq/scaling_governor", "performance"}}, 3},
      {"governor", kPass, "does not scale"},
      {"governor", kWarn, "powersave", {{kCpu3 + "cpufreq/scaling_governor", "powersave\n"}}, 3},
      {"c_states", kPass, "takes 2 us",
       {{kCpu3 + "cpuidle/state1/latency", "2"},
        {kCpu3 + "cpuidle/state2/latency", "133"},
        {kCpu3 + "cpuidle/state2/disable", "1"}}, 3},
      {"c_states", kWarn, "takes 133 us", {{kCpu3 + "cpuidle/state2/latency", "133"}}, 3},
      {"tsc", kPass, "invariant", {{"/proc/cpuinfo", "flags\t\t: constant_tsc nonstop_tsc\n"}}},
      {"tsc", kWarn, "not invariant", {{"/proc/cpuinfo", "flags\t\t: tsc constant_tsc\n"}}},
      {"tsc", kWarn, "the kernel's clock is hpet",
       {{"/proc/cpuinfo", "flags\t\t: constant_tsc nonstop_tsc\n"},
        {"/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"}}},
      {"host_clock", kPass, "is disciplined"},
      {"host_clock", kWarn, "not disciplined", {}, {},
       Device([](DeviceFacts& d) { d.host_clock_synchronised = false; })},
  };
}

std::vector<Row> NicRows() {
  const auto none = Device([](DeviceFacts& d) { d = {.problem = "there are none"}; });
  const auto software = Device([](DeviceFacts& d) { d.software = true; });
  const Files up = {{kNet + "operstate", "up\n"}, {kNet + "mtu", "9000\n"}};
  const std::string libraries = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.";
  return {
      {"device", kPass, "mlx5_0 port 1"},
      {"device", kPass, "a software ConnectX", {}, {}, software},
      {"device", kFail, "there are none", {}, {}, none},
      {"rdma_core", kPass, "rdma-core 44", {{libraries + "44.0", ""}}},
      {"rdma_core", kWarn, "rdma-core 22", {{libraries + "22.0", ""}}},
      {"rdma_core", kFail, "not installed"},
      {"firmware", kPass, "firmware 22.35.1012"},
      {"firmware", kWarn, "is old", {}, {},
       Device([](DeviceFacts& d) { d.firmware = "14.20.1010"; })},
      {"firmware", kWarn, "not told", {}, {},
       Device([](DeviceFacts& d) { d.firmware.clear(); })},
      {"uverbs", kPass, "/dev/infiniband/uverbs0 may be opened",
       {{"/dev/infiniband/uverbs0", ""}}},
      {"uverbs", kPass, "needs no device file", {}, {}, software},
      {"uverbs", kFail, "there is no /dev/infiniband/uverbs0"},
      {"port", kPass, "up, 100 Gbit/s, MTU 9000", up},
      {"port", kFail, "eth2 is down", {{kNet + "operstate", "down\n"}}},
      {"port", kFail, "eth2 is absent", {}, {}, none},
      {"port", kWarn, "another network namespace's and has no eth2", {}, {},
       Device([](DeviceFacts& d) { d = {.problem = "no device", .has_interface = true}; })},
      {"port", kWarn, "another network namespace's and has no eth2"},
      {"port", kFail, "not active", up, {}, Device([](DeviceFacts& d) { d.port_active = false; })},
  };
}

std::vector<Row> FunctionRows() {
  return {
      {"bond", kPass, "no bond"},
      {"bond", kWarn, "a port of a bond", {{kNet + "master/bonding/", ""}}},
      {"bond", kFail, "is a bond", {{kNet + "bonding/", ""}}},
      {"function", kPass, "of its own"},
      {"function", kWarn, "a virtual function", {{kNet + "device/physfn/", ""}}},
      {"pcie", kPass, "PCIe x16, 16.0 GT/s PCIe",
       {{kNet + "device/current_link_speed", "16.0 GT/s PCIe"},
        {kNet + "device/max_link_speed", "16.0 GT/s PCIe"},
        {kNet + "device/current_link_width", "16"},
        {kNet + "device/max_link_width", "16"}}},
      {"pcie", kWarn, "PCIe x8, 16.0 GT/s PCIe; the card has x16",
       {{kNet + "device/current_link_speed", "16.0 GT/s PCIe"},
        {kNet + "device/max_link_speed", "16.0 GT/s PCIe"},
        {kNet + "device/current_link_width", "8"},
        {kNet + "device/max_link_width", "16"}}},
      {"pcie", kPass, "does not tell"},
      {"irq_affinity", kPass, "--cpu=N"},
      {"irq_affinity", kPass, "none of the NIC's come to CPU 3",
       {{kNet + "device/msi_irqs/40", ""}, {"/proc/irq/40/effective_affinity_list", "4"}}, 3},
      {"irq_affinity", kWarn, "1 of the NIC's interrupts come to CPU 3",
       {{kNet + "device/msi_irqs/40", ""}, {"/proc/irq/40/effective_affinity_list", "2-3"}}, 3},
  };
}

std::vector<Row> OfferRows() {
  return {
      {"inline_mode", kPass, "18 bytes"},
      {"blueflame", kPass, "written to the NIC"},
      {"blueflame", kWarn, "no BlueFlame", {}, {},
       Device([](DeviceFacts& d) { d.blueflame = false; })},
      {"uars", kPass, "32 rings and more"},
      {"uars", kWarn, "7 doorbell registers", {}, {},
       Device([](DeviceFacts& d) { d.doorbell_registers = 7; })},
      {"uars", kFail, "no doorbell register", {}, {},
       Device([](DeviceFacts& d) { d.doorbell_registers = 0; })},
      {"device_memory", kPass, "128 KiB"},
      {"device_memory", kWarn, "has none", {}, {},
       Device([](DeviceFacts& d) { d.device_memory_bytes = 0; })},
      {"rules", kPass, "65536 rules"},
      {"rules", kPass, "does not tell", {}, {},
       Device([](DeviceFacts& d) { d.flow_table_rules.reset(); })},
      {"rules", kWarn, "64 rules", {}, {}, Device([](DeviceFacts& d) { d.flow_table_rules = 64; })},
      {"checksums", kPass, "by the NIC"},
      {"checksums", kWarn, "in software", {}, {},
       Device([](DeviceFacts& d) { d.checksums = false; })},
      {"timestamps", kPass, "free running at 1000000 kHz"},
      {"timestamps", kPass, "free running at 156250 kHz", {}, {},
       Device([](DeviceFacts& d) { d.clock_khz = 156'250; })},
      {"timestamps", kWarn, "the PHC's time alone", {}, {},
       Device([](DeviceFacts& d) { d.free_running_times = false; })},
      {"timestamps", kWarn, "a clock of 1000000 kHz; no queue", {}, {},
       Device([](DeviceFacts& d) { d.free_running_times.reset(); })},
      {"timestamps", kWarn, "gives none", {}, {},
       Device([](DeviceFacts& d) { d.timestamp_mask = 0; })},
      {"device_clock", kPass, "ptp; /dev/ptp1", {{kNet + "device/ptp/ptp1/", ""}}},
      {"device_clock", kWarn, "does not tell", {}, {},
       Device([](DeviceFacts& d) { d.clock_published = false; })},
  };
}

// What nobody could ask is not said to be missing, or to be there.
std::vector<Row> NoDeviceRows() {
  std::vector<Row> rows;
  for (const std::string_view of_device : {"firmware", "inline_mode", "blueflame", "uars",
                                           "device_memory", "rules", "checksums", "timestamps",
                                           "device_clock"}) {
    rows.push_back({.check = of_device,
                    .verdict = kWarn,
                    .finding = "no device to ask",
                    .device = {.problem = "there are none"}});
  }
  return rows;
}

// A VLAN has no device of its own: what is looked at is that of the interface below.
std::vector<Row> VlanRows() {
  const std::string net = "/sys/class/net/eth2.100/";
  const auto row = [&net](std::string_view check, Verdict verdict, std::string finding,
                          Files files) {
    files[net + "uevent"] = "DEVTYPE=vlan\nINTERFACE=eth2.100\nIFINDEX=7\n";
    files[net + "lower_eth2/"];
    return Row{check, verdict, std::move(finding), std::move(files), 3, GoodDevice(), "eth2.100"};
  };
  return {
      row("numa", kWarn, "the NIC is on node 1, CPU 3 on node 0",
          {{kNet + "device/numa_node", "1"}, {kCpu3 + "node0/", ""}}),
      row("hugepages", kPass, "60 of 64 hugepages are free on node 0",
          {{kNet + "device/numa_node", "0"},
           {kNode0 + "nr_hugepages", "64"},
           {kNode0 + "free_hugepages", "60"}}),
      row("port", kPass, "up, 100 Gbit/s, MTU 1500",
          {{net + "operstate", "up\n"}, {net + "mtu", "1500\n"}, {kNet + "mtu", "9000\n"}}),
      row("bond", kFail, "eth2 is a bond", {{kNet + "bonding/", ""}}),
      row("bond", kWarn, "eth2 is a port of a bond", {{kNet + "master/bonding/", ""}}),
      row("bond", kWarn, "eth2.100 is a port of a bond", {{net + "master/bonding/", ""}}),
      row("function", kWarn, "a virtual function", {{kNet + "device/physfn/", ""}}),
      row("pcie", kWarn, "PCIe x8",
          {{kNet + "device/current_link_speed", "16.0 GT/s PCIe"},
           {kNet + "device/max_link_speed", "16.0 GT/s PCIe"},
           {kNet + "device/current_link_width", "8"},
           {kNet + "device/max_link_width", "16"}}),
      row("irq_affinity", kWarn, "1 of the NIC's interrupts come to CPU 3",
          {{kNet + "device/msi_irqs/40", ""}, {"/proc/irq/40/effective_affinity_list", "2-3"}}),
      row("device_clock", kPass, "ptp; /dev/ptp1", {{kNet + "device/ptp/ptp1/", ""}}),
  };
}

class ChecksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_checks_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const Files& files) {
    fs::remove_all(root_);
    fs::create_directory(root_);
    for (const auto& [path, content] : files) {
      const fs::path at = root_ + path;
      fs::create_directories(path.back() == '/' ? at : at.parent_path());
      if (path.back() != '/') std::ofstream(at) << content;
    }
  }
  void Expect(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      Write(row.files);
      const Target target = {.interface = row.interface, .cpu = row.cpu, .device = row.device};
      for (const auto& [name, result] : RunChecks(System(root_), target)) {
        if (name != row.check) continue;
        EXPECT_EQ(result.verdict, row.verdict) << name << ": " << result.finding;
        EXPECT_THAT(result.finding, ::testing::HasSubstr(row.finding)) << name;
        EXPECT_EQ(result.fix.empty(), row.verdict == Verdict::kPass) << name;
      }
    }
  }

  std::string root_;
};

TEST_F(ChecksTest, EachOfTheHostGivesEachVerdictWithAFix) { Expect(HostRows()); }

TEST_F(ChecksTest, EachOfMemoryGivesEachVerdictWithAFix) { Expect(MemoryRows()); }

TEST_F(ChecksTest, EachOfTheNicGivesEachVerdictWithAFix) {
  Expect(NicRows());
  Expect(FunctionRows());
  Expect(OfferRows());
  Expect(NoDeviceRows());
}

TEST_F(ChecksTest, OfAVlanTheDeviceBelowIsLookedAt) { Expect(VlanRows()); }

TEST_F(ChecksTest, TheInterfaceOfTheDeviceIsTheOneBelowAVlanOnly) {
  const std::string net = "/sys/class/net/";
  Write({{net + "eth2.100/uevent", "DEVTYPE=vlan\n"},
         {net + "eth2.100/lower_eth2/", ""},
         {net + "bond0/uevent", "DEVTYPE=bond\n"},
         {net + "bond0/lower_eth2/", ""},
         {net + "eth2/uevent", "INTERFACE=eth2\n"}});
  const System system(root_);
  EXPECT_EQ(DeviceInterface(system, "eth2.100"), "eth2");
  for (const char* own : {"bond0", "eth2", "absent"}) EXPECT_EQ(DeviceInterface(system, own), own);
}

TEST_F(ChecksTest, EveryCheckHasRows) {
  std::set<std::string_view> tried;
  for (const auto& rows : {MemoryRows(), HostRows(), NicRows(), FunctionRows(), OfferRows()}) {
    for (const Row& row : rows) tried.insert(row.check);
  }
  for (const auto& [name, result] : RunChecks(System(root_), {})) {
    EXPECT_EQ(tried.count(name), 1u) << name;
  }
}

TEST_F(ChecksTest, AnEmptyMachineIsLookedAtToo) {
  for (const auto& [name, result] : RunChecks(System(root_), {.interface = "eth2", .cpu = 0})) {
    EXPECT_FALSE(result.finding.empty()) << name;
  }
}

TEST(Cpus, ListsAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(ParseCpus("0-2,8"), (std::set<int>{0, 1, 2, 8}));
  EXPECT_EQ(ParseCpus(""), std::set<int>{});
  for (const char* text : {"x", "3-1", "1-", "-1", "1,x", "99999", "1-99999"}) {
    EXPECT_EQ(ParseCpus(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace xtreme::check
