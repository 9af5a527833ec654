// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/check/checks.h"

namespace xtreme::check {
namespace {

constexpr int kCapNetRaw = 13;   // linux/capability.h
constexpr int kCapIpcLock = 14;
constexpr uint64_t kHugepageBytes = uint64_t{2} << 20;

// About what a ring locks that absorbs so long a burst at the rate of the link, as profiles say it:
// a buffer of 1,536 bytes for every 512 bytes, and queues.
constexpr uint64_t kLatencyBurstUs = 500;
constexpr uint64_t kFeedBurstUs = 10'000;
constexpr char kNoLink[] = "see device and port";
uint64_t RingBytes(const Target& target, uint64_t burst_us) {
  const uint64_t bytes_per_us = target.device.link_bits_per_second / 8 / 1'000'000;
  return (uint64_t{8} << 20) + bytes_per_us * burst_us * 3;
}

bool Has(const System& system, int capability) {
  uint64_t mask = 0;
  const std::string effective = system.ReadField("/proc/self/status", "CapEff").value_or("");
  std::from_chars(effective.data(), effective.data() + effective.size(), mask, 16);
  return (mask >> capability & 1) != 0;
}

// Whether its capabilities are those of the machine, not of a user namespace.
bool IsOfTheMachine(const System& system) {
  return system.Read("/proc/self/uid_map").value_or("").ends_with(" 4294967295");
}

std::string CpuPath(int cpu, std::string_view rest) {
  return fmt::format("/sys/devices/system/cpu/cpu{}/{}", cpu, rest);
}

// "6.1" or later.
Result CheckKernel(const System& system, const Target&) {
  const std::string release = system.Read("/proc/sys/kernel/osrelease").value_or("");
  int major = 0;
  int minor = 0;
  const char* const end = release.data() + release.size();
  const auto parsed = std::from_chars(release.data(), end, major);
  if (parsed.ptr != end && *parsed.ptr == '.') std::from_chars(parsed.ptr + 1, end, minor);
  if (major == 0) return Warn("the kernel's version is not told", "mount /proc");
  const std::string finding = "Linux " + release;
  if (std::pair(major, minor) < std::pair(5, 4)) {
    return Fail(finding, "5.4 or newer has the uverbs calls that rings are made with");
  }
  if (std::pair(major, minor) < std::pair(5, 15)) {
    return Warn(finding, "5.15 or newer is what others run");
  }
  return Pass(finding);
}

Result CheckCapability(const System& system, const Target& target) {
  const auto effective = system.ReadField("/proc/self/status", "CapEff");
  uint64_t mask = 0;
  if (!effective ||
      std::from_chars(effective->data(), effective->data() + effective->size(), mask, 16).ec !=
          std::errc()) {
    return Warn("capabilities are not told", "mount /proc");
  }
  if ((mask >> kCapNetRaw & 1) != 0) {
    if (target.device.raw_queues.value_or(true)) return Pass("CAP_NET_RAW is there");
    return Fail("CAP_NET_RAW is a user namespace's, not the machine's: raw queues are refused",
                "a container without a user namespace, or the capability on the host");
  }
  return Fail("CAP_NET_RAW is missing: raw queues and rules are refused",
              "setcap cap_net_raw+ep PROGRAM, or AmbientCapabilities=CAP_NET_RAW in its unit");
}

Result CheckMemlock(const System& system, const Target& target) {
  if (Has(system, kCapIpcLock) && IsOfTheMachine(system)) {
    return Pass("CAP_IPC_LOCK is there: locked memory is not limited");
  }
  const auto limit = system.ReadField("/proc/self/limits", "Max locked memory");
  if (!limit) return Warn("the limit of locked memory is not told", "mount /proc");
  const std::string soft = limit->substr(0, limit->find(' '));
  if (soft == "unlimited") return Pass("locked memory is not limited");
  uint64_t bytes = 0;
  std::from_chars(soft.data(), soft.data() + soft.size(), bytes);
  if (target.device.link_bits_per_second == 0) {
    return Warn(fmt::format("{} KiB may be locked; what a ring takes, the link says", bytes >> 10),
                kNoLink);
  }
  const uint64_t latency = RingBytes(target, kLatencyBurstUs);
  const uint64_t feed = RingBytes(target, kFeedBurstUs);
  const std::string finding = fmt::format(
      "{} KiB may be locked; on this link a ring of profile latency takes some {} MiB, one of feed "
      "{}",
      bytes >> 10, latency >> 20, feed >> 20);
  const char* const fix = "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit";
  if (bytes < latency) return Fail(finding, fix);
  return bytes < feed ? Warn(finding, fix) : Pass(finding);
}

// The node of the NIC, or of the CPU, or nothing on a machine that has one only.
std::optional<int64_t> NicNode(const System& system, const Target& target) {
  const auto node = system.ReadNumber(fmt::format("/sys/class/net/{}/device/numa_node",
                                                  DeviceInterface(system, target.interface)));
  return node && *node >= 0 ? node : std::nullopt;
}

std::optional<int64_t> CpuNode(const System& system, int cpu) {
  for (const std::string& name : system.List(fmt::format("/sys/devices/system/cpu/cpu{}", cpu))) {
    int64_t node = 0;
    if (name.starts_with("node") &&
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ec == std::errc()) {
      return node;
    }
  }
  return std::nullopt;
}

Result CheckHugepages(const System& system, const Target& target) {
  const auto node = NicNode(system, target);
  const std::string pool = "hugepages/hugepages-2048kB/";
  const std::string at =
      node ? fmt::format("/sys/devices/system/node/node{}/{}", *node, pool)
           : "/sys/kernel/mm/" + pool;
  const int64_t all = system.ReadNumber(at + "nr_hugepages").value_or(0);
  const int64_t free = system.ReadNumber(at + "free_hugepages").value_or(0);
  const std::string where = node ? fmt::format(" on node {}", *node) : "";
  const auto pages = [&target](uint64_t burst_us) {
    return static_cast<int64_t>(RingBytes(target, burst_us) / kHugepageBytes + 1);
  };
  const std::string finding = fmt::format("{} of {} hugepages are free{}", free, all, where);
  if (target.device.link_bits_per_second == 0) {
    return Warn(finding + "; what a ring takes, the link says", kNoLink);
  }
  if (free >= pages(kFeedBurstUs)) return Pass(finding);
  const std::string fix = fmt::format("echo {} > {}nr_hugepages", pages(kFeedBurstUs), at);
  if (free < pages(kLatencyBurstUs)) return Warn(finding + "; pools use ordinary pages", fix);
  return Pass(fmt::format("{}; a ring of profile feed takes {}", finding, pages(kFeedBurstUs)));
}

Result CheckNuma(const System& system, const Target& target) {
  const auto nic = NicNode(system, target);
  if (!nic) return Pass("the NIC is on no node of its own");
  if (!target.cpu) return Pass(fmt::format("the NIC is on node {}; --cpu=N compares", *nic));
  const auto cpu = CpuNode(system, *target.cpu);
  if (cpu == nic) return Pass(fmt::format("NIC and CPU {} are on node {}", *target.cpu, *nic));
  const std::string near =
      system.Read(fmt::format("/sys/devices/system/node/node{}/cpulist", *nic)).value_or("");
  return Warn(fmt::format("the NIC is on node {}, CPU {} on node {}", *nic, *target.cpu,
                          cpu.value_or(-1)),
              fmt::format("run the owner on a CPU of {}", near));
}

Result CheckIsolation(const System& system, const Target& target) {
  using Cpus = std::set<int>;
  const Cpus isolated = system.ReadCpus("/sys/devices/system/cpu/isolated").value_or(Cpus());
  const Cpus tickless = system.ReadCpus("/sys/devices/system/cpu/nohz_full").value_or(Cpus());
  if (!target.cpu) {
    if (isolated.empty()) {
      return Warn("no CPU is isolated", "isolcpus=N nohz_full=N rcu_nocbs=N on the kernel's line");
    }
    return Pass(fmt::format("isolated CPUs: {}", fmt::join(isolated, ", ")));
  }
  const int cpu = *target.cpu;
  if (!system.Exists(CpuPath(cpu, ""))) {
    return Fail(fmt::format("there is no CPU {}", cpu), "name one that there is");
  }
  const std::string fix =
      fmt::format("isolcpus={0} nohz_full={0} rcu_nocbs={0} on the kernel's line", cpu);
  if (isolated.count(cpu) == 0) return Warn(fmt::format("CPU {} is not isolated", cpu), fix);
  if (tickless.count(cpu) == 0) {
    return Warn(fmt::format("CPU {} is isolated, but has a timer tick", cpu), fix);
  }
  return Pass(fmt::format("CPU {} is isolated and without a tick", cpu));
}

Result CheckGovernor(const System& system, const Target& target) {
  const auto governor = system.Read(CpuPath(target.cpu.value_or(0), "cpufreq/scaling_governor"));
  if (!governor) return Pass("the kernel does not scale frequencies");
  if (*governor == "performance") return Pass("the governor is performance");
  return Warn("the governor is " + *governor, "cpupower frequency-set --governor performance");
}

// Deeper than 10 us is felt by the first packet after a pause.
Result CheckSleepStates(const System& system, const Target& target) {
  constexpr int64_t kMostExitUs = 10;
  const std::string base = CpuPath(target.cpu.value_or(0), "cpuidle");
  int64_t worst_us = 0;
  for (const std::string& state : system.List(base)) {
    const std::string path = base + "/" + state;
    if (system.ReadNumber(path + "/disable").value_or(0) != 0) continue;
    worst_us = std::max(worst_us, system.ReadNumber(path + "/latency").value_or(0));
  }
  const std::string finding = fmt::format("the deepest C-state takes {} us to leave", worst_us);
  if (worst_us <= kMostExitUs) return Pass(finding);
  return Warn(finding, "cpupower idle-set --disable-by-latency 10, or hold /dev/cpu_dma_latency");
}

Result CheckTsc(const System& system, const Target&) {
  const std::string flags = system.ReadField("/proc/cpuinfo", "flags").value_or("");
  const auto has = [padded = " " + flags + " "](std::string_view flag) {
    return padded.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  if (!has("constant_tsc") || !has("nonstop_tsc")) {
    return Warn("the TSC is not invariant: times come by system calls",
                "a VM needs it passed through (host-passthrough, +invtsc)");
  }
  const std::string source =
      system.Read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
          .value_or("tsc");
  if (source == "tsc") return Pass("the TSC is invariant and the kernel's clock");
  return Warn("the TSC is invariant, but the kernel's clock is " + source,
              "clocksource=tsc on the kernel's line");
}

Result CheckClock(const System&, const Target& target) {
  if (!target.device.host_clock_synchronised) return Pass("the host's clock does not tell");
  if (*target.device.host_clock_synchronised) return Pass("the host's clock is disciplined");
  return Warn("the host's clock is not disciplined: times of hosts cannot be compared",
              "run chronyd, or ptp4l on the NIC's clock and phc2sys");
}

constexpr Check kChecks[] = {
    {"kernel", &CheckKernel},         {"cap_net_raw", &CheckCapability},
    {"memlock", &CheckMemlock},       {"hugepages", &CheckHugepages},
    {"numa", &CheckNuma},             {"isolation", &CheckIsolation},
    {"governor", &CheckGovernor},     {"c_states", &CheckSleepStates},
    {"tsc", &CheckTsc},               {"host_clock", &CheckClock},
};

}  // namespace

std::span<const Check> HostChecks() { return kChecks; }

}  // namespace xtreme::check
