// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "fmt/format.h"
#include "tools/check/checks.h"

namespace xtreme::check {
namespace {

constexpr uint32_t kRings = 32;
constexpr char kNoDevice[] = "there is no device to ask";

// Of what the device is to tell, when there is none.
Result Unknown() { return Warn(kNoDevice, "see device"); }
bool IsAbsent(const Target& target) { return !target.device.problem.empty(); }

std::string NetPath(const Target& target, std::string_view rest) {
  return fmt::format("/sys/class/net/{}/{}", target.interface, rest);
}

std::string DevicePath(const System& system, const Target& target, std::string_view rest) {
  return fmt::format("/sys/class/net/{}/device/{}", DeviceInterface(system, target.interface),
                     rest);
}

Result CheckDevice(const System&, const Target& target) {
  const DeviceFacts& device = target.device;
  if (IsAbsent(target)) {
    return Fail(device.problem,
                "load mlx5_ib, and name an interface of a ConnectX-4 Lx or newer (rdma link)");
  }
  const std::string finding = fmt::format("{} port {}", device.name, device.port);
  if (device.software) {
    return Pass(finding + ", a software ConnectX: what follows of bus and speed is not a card's");
  }
  return Pass(finding);
}

// libibverbs.so.1.14.44.0 is of rdma-core 44.
Result CheckRdmaCore(const System& system, const Target&) {
  constexpr int kLeast = 28;
  constexpr std::string_view kLibrary = "libibverbs.so.1.";
  for (std::string_view directory : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    for (const std::string& name : system.List(directory)) {
      if (!name.starts_with(kLibrary)) continue;
      const size_t dot = name.find('.', kLibrary.size());
      int version = 0;
      if (dot == name.npos ||
          std::from_chars(name.data() + dot + 1, name.data() + name.size(), version).ec !=
              std::errc()) {
        continue;
      }
      const std::string finding = fmt::format("rdma-core {}", version);
      if (version >= kLeast) return Pass(finding);
      return Warn(finding, fmt::format("{} or newer is what Xtreme is tested with", kLeast));
    }
  }
  return Fail("rdma-core is not installed", "apt install ibverbs-providers libibverbs1");
}

// "16.35.4030": the card's family, then a number that all families share.
Result CheckFirmware(const System&, const Target& target) {
  constexpr int kLeast = 28;
  const std::string& firmware = target.device.firmware;
  if (IsAbsent(target)) return Unknown();
  if (firmware.empty()) return Warn("the firmware's version is not told", "see device");
  const size_t dot = firmware.find('.');
  int release = 0;
  if (dot != firmware.npos) {
    std::from_chars(firmware.data() + dot + 1, firmware.data() + firmware.size(), release);
  }
  if (release >= kLeast) return Pass("firmware " + firmware);
  return Warn("firmware " + firmware + " is old", "mlxfwmanager --online -u");
}

Result CheckUverbs(const System& system, const Target& target) {
  if (target.device.software) return Pass("a software ConnectX needs no device file");
  const std::string name = target.device.uverbs.empty() ? "uverbs0" : target.device.uverbs;
  const std::string path = "/dev/infiniband/" + name;
  if (!system.Exists(path)) return Fail("there is no " + path, "modprobe ib_uverbs mlx5_ib");
  if (system.MayUse(path)) return Pass(path + " may be opened");
  return Fail(path + " may not be opened by this user",
              "udev: KERNEL==\"uverbs*\", GROUP=\"rdma\", MODE=\"0660\"; add the user to rdma");
}

Result CheckPort(const System& system, const Target& target) {
  const auto read = system.Read(NetPath(target, "operstate"));
  if (!read && target.device.has_interface) {
    return Warn(fmt::format("/sys is another network namespace's and has no {}", target.interface),
                "mount -t sysfs sysfs /sys, in a mount namespace of your own");
  }
  const std::string state = read.value_or("absent");
  const bool up = state == "up" || state == "unknown";
  if (!up) {
    return Fail(fmt::format("{} is {}", target.interface, state),
                fmt::format("ip link set {} up, and look at the cable", target.interface));
  }
  if (!IsAbsent(target) && !target.device.port_active) {
    return Fail("the device's port is not active", "look at the cable and the switch");
  }
  const int64_t mtu = system.ReadNumber(NetPath(target, "mtu")).value_or(0);
  return Pass(fmt::format("up, {} Gbit/s, MTU {}",
                          target.device.link_bits_per_second / 1'000'000'000, mtu));
}

Result CheckBond(const System& system, const Target& target) {
  // A VLAN may lie above one, or be a port of one.
  for (const std::string& name : {DeviceInterface(system, target.interface), target.interface}) {
    const std::string at = "/sys/class/net/" + name;
    if (system.Exists(at + "/bonding")) {
      return Fail(name + " is a bond: it has no queues of its own",
                  "open a ring on each of its ports and put them in a group");
    }
    if (system.Exists(at + "/master/bonding")) {
      return Warn(name + " is a port of a bond: frames may come by another",
                  "open a ring on each port and put them in a group");
    }
  }
  return Pass("no bond");
}

Result CheckFunction(const System& system, const Target& target) {
  if (!system.Exists(DevicePath(system, target, "physfn"))) return Pass("a function of its own");
  return Warn("a virtual function: the host decides on multicast and spoofing",
              "on the host: ip link set PF vf N trust on spoofchk off");
}

Result CheckBus(const System& system, const Target& target) {
  if (target.device.software) return Pass("a software ConnectX is on no bus");
  const auto read = [&](std::string_view name) {
    return system.Read(DevicePath(system, target, name)).value_or("");
  };
  const std::string speed = read("current_link_speed");
  const std::string width = read("current_link_width");
  if (speed.empty()) return Pass("the bus does not tell (a VM's)");
  const std::string finding = fmt::format("PCIe x{}, {}", width, speed);
  if (speed == read("max_link_speed") && width == read("max_link_width")) return Pass(finding);
  return Warn(fmt::format("{}; the card has x{}, {}", finding, read("max_link_width"),
                          read("max_link_speed")),
              "put the card into a slot that has them");
}

Result CheckInterrupts(const System& system, const Target& target) {
  if (!target.cpu) return Pass("--cpu=N looks whether interrupts come there");
  std::set<std::string> there;
  for (const std::string& irq : system.List(DevicePath(system, target, "msi_irqs"))) {
    const auto cpus = system.ReadCpus(fmt::format("/proc/irq/{}/effective_affinity_list", irq));
    if (cpus && cpus->count(*target.cpu) != 0) there.insert(irq);
  }
  if (there.empty()) return Pass(fmt::format("none of the NIC's come to CPU {}", *target.cpu));
  return Warn(fmt::format("{} of the NIC's interrupts come to CPU {}", there.size(), *target.cpu),
              fmt::format("echo OTHER_CPUS > /proc/irq/{}/smp_affinity_list", *there.begin()));
}

// Cards from ConnectX-5 on need no header inline; the driver always gives the 18 bytes that are
// enough for older ones.
Result CheckInline(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  return Pass("18 bytes of header go inline, as much as any mode asks for; the mode is not read");
}

Result CheckBlueFlame(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  if (target.device.blueflame) return Pass("frames of up to 226 bytes are written to the NIC");
  return Warn("no BlueFlame: every send is rung for and fetched, some 300 ns more",
              "in a VM: write combining has to be passed through");
}

Result CheckRegisters(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  const uint32_t registers = target.device.doorbell_registers;
  if (registers > kRings) return Pass(fmt::format("{} rings and more have their own", kRings));
  if (registers == 0) {
    return Fail("no doorbell register is left: no ring can be opened",
                "close other programs that use the device");
  }
  return Warn(fmt::format("{} doorbell registers are left, one a ring", registers),
              "mlxconfig set LOG_BAR_SIZE to a higher value, or fewer rings");
}

Result CheckDeviceMemory(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  const uint64_t bytes = target.device.device_memory_bytes;
  if (bytes != 0) return Pass(fmt::format("{} KiB in the NIC", bytes >> 10));
  return Warn("the NIC has none: long frames are gathered", "ConnectX-5 and newer have it");
}

Result CheckRules(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  if (!target.device.flow_table_rules) {
    return Pass("the device does not tell; a ring that finds the table full says so");
  }
  const uint32_t rules = *target.device.flow_table_rules;
  if (rules >= 1'024) return Pass(fmt::format("{} rules", rules));
  return Warn(fmt::format("{} rules: sockets above them share one", rules),
              "fewer groups, or firmware that offers more");
}

Result CheckChecksums(const System&, const Target& target) {
  if (IsAbsent(target)) return Unknown();
  if (target.device.checksums) return Pass("computed and verified by the NIC");
  return Warn("in software, of every byte", "not a ConnectX-4 Lx or newer, or a broken VM");
}

Result CheckTimestamps(const System&, const Target& target) {
  const DeviceFacts& device = target.device;
  if (IsAbsent(target)) return Unknown();
  if (device.timestamp_mask == 0) {
    return Warn("the device gives none", "update the firmware; in a VM, pass them through");
  }
  if (!device.free_running_times) {
    return Warn(fmt::format("a clock of {} kHz; no queue was to be had that says more",
                            device.clock_khz),
                "see cap_net_raw and memlock");
  }
  if (*device.free_running_times) {
    return Pass(fmt::format("free running at {} kHz", device.clock_khz));
  }
  return Warn("completions carry the PHC's time alone, which a ring does not use: it has none",
              "mlxconfig -d DEVICE set REAL_TIME_CLOCK_ENABLE=0, and reset the card");
}

Result CheckDeviceClock(const System& system, const Target& target) {
  const DeviceFacts& device = target.device;
  if (IsAbsent(target)) return Unknown();
  const std::vector<std::string> clocks = system.List(DevicePath(system, target, "ptp"));
  const std::string name = clocks.empty() ? "" : "; /dev/" + clocks.front();
  if (device.clock_published) {
    return Pass("the kernel tells how the device's PTP clock runs, for hw_time = ptp" + name);
  }
  if (device.timestamp_mask == 0) return Pass("there is no clock to follow");
  return Warn("the kernel does not tell how the device's PTP clock runs: no ring can give its time",
              "CONFIG_PTP_1588_CLOCK, and mlx5_core of a kernel that has it");
}

constexpr Check kChecks[] = {
    {"device", &CheckDevice},           {"rdma_core", &CheckRdmaCore},
    {"firmware", &CheckFirmware},       {"uverbs", &CheckUverbs},
    {"port", &CheckPort},               {"bond", &CheckBond},
    {"function", &CheckFunction},       {"pcie", &CheckBus},
    {"irq_affinity", &CheckInterrupts}, {"inline_mode", &CheckInline},
    {"blueflame", &CheckBlueFlame},     {"uars", &CheckRegisters},
    {"device_memory", &CheckDeviceMemory}, {"rules", &CheckRules},
    {"checksums", &CheckChecksums},     {"timestamps", &CheckTimestamps},
    {"device_clock", &CheckDeviceClock},
};

}  // namespace

std::span<const Check> NicChecks() { return kChecks; }

std::vector<NamedResult> RunChecks(const System& system, const Target& target) {
  std::vector<NamedResult> results;
  for (const auto checks : {NicChecks(), HostChecks()}) {
    for (const Check& check : checks) {
      results.push_back({check.name, check.run(system, target)});
    }
  }
  return results;
}

}  // namespace xtreme::check
