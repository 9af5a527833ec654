// SPDX-License-Identifier: Apache-2.0
//
// libconnectx.so: preloaded into a program, it gives the program a software ConnectX before main.
//
// Invariant: what the program may still be using at exit is never destroyed; only the device's
// thread and its files go.
// Thread: constructor and destructor of the library.

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/preload/settings.h"
#include "tools/connectx/wire/link.h"
#include "tools/connectx/wire/netif.h"

namespace xtreme::connectx {
namespace {

// What lives as long as the process, whatever happens at exit.
struct Preloaded {
  pid_t owner = 0;
  Settings settings;
  std::vector<std::unique_ptr<Wire>> wires;
  std::unique_ptr<SoftwareConnectX> connectx;
};

// The preload's one table: set once before main, never destroyed.
Preloaded* g_preloaded = nullptr;

Device::Options DeviceOptions(const Settings& settings, std::string name, MacAddress mac,
                              uint32_t mtu) {
  Device::Options options = settings.device;
  options.name = std::move(name);
  options.mac = mac;
  options.mtu = mtu;
  return options;
}

// Asks the kernel for the MAC address and the MTU of an interface.
absl::Status QueryInterface(const std::string& name, MacAddress* mac, uint32_t* mtu) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::copy_n(name.c_str(), std::min(name.size(), sizeof(request.ifr_name) - 1),
              request.ifr_name);
  const bool has_mac = ::ioctl(fd, SIOCGIFHWADDR, &request) == 0;
  std::copy_n(request.ifr_hwaddr.sa_data, mac->size(), mac->begin());
  const bool has_mtu = ::ioctl(fd, SIOCGIFMTU, &request) == 0;
  *mtu = static_cast<uint32_t>(request.ifr_mtu);
  ::close(fd);
  if (has_mac && has_mtu) return absl::OkStatus();
  return absl::NotFoundError("ask for MAC address and MTU: no interface " + name);
}

absl::Status AddInterface(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  const std::string& name = preloaded.settings.interface;
  MacAddress mac{};
  uint32_t mtu = 0;
  if (absl::Status status = QueryInterface(name, &mac, &mtu); !status.ok()) return status;
  auto wire = NetworkInterface::Open({.interface = name});
  if (!wire.ok()) return wire.status();
  options.ports.push_back({.device = DeviceOptions(preloaded.settings, "mlx5_0", mac, mtu),
                           .interface = name,
                           .wire = wire->get()});
  preloaded.wires.push_back(*std::move(wire));
  return absl::OkStatus();
}

absl::Status AddCable(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  auto link = MakeLink();
  if (!link.ok()) return link.status();
  for (uint8_t i = 0; i < 2; ++i) {
    // Locally administered, and told apart by the last byte.
    const MacAddress mac = {0x02, 0xc0, 0x7e, 0, 0, static_cast<uint8_t>(i + 1)};
    options.ports.push_back(
        {.device = DeviceOptions(preloaded.settings, "mlx5_" + std::to_string(i), mac,
                                 preloaded.settings.mtu),
         .wire = (*link)[i].get()});
    preloaded.wires.push_back(std::move((*link)[i]));
  }
  return absl::OkStatus();
}

absl::Status Start(Preloaded& preloaded) {
  absl::StatusOr<Settings> settings = ReadSettings(environ);
  if (!settings.ok()) return settings.status();
  preloaded.settings = *std::move(settings);
  preloaded.owner = ::getpid();
  SoftwareConnectX::Options options{.mode = preloaded.settings.mode};
  const bool on_cable = preloaded.settings.interface.empty();
  const absl::Status wired =
      on_cable ? AddCable(preloaded, options) : AddInterface(preloaded, options);
  if (!wired.ok()) return wired;
  auto connectx = SoftwareConnectX::Create(std::move(options));
  if (!connectx.ok()) return connectx.status();
  preloaded.connectx = *std::move(connectx);
  return absl::OkStatus();
}

void ReportViolations(SoftwareConnectX& connectx) {
  for (size_t i = 0; i < connectx.size(); ++i) {
    for (const std::string& violation : connectx.device(i).Violations()) {
      std::fprintf(stderr, "connectx: %s: %s\n", connectx.device(i).options().name.c_str(),
                   violation.c_str());
    }
  }
}

// "mlx5_0 rx_dropped_ring 0": device, counter of its wire, value.
void WriteCounters(const Preloaded& preloaded) {
  FILE* const file = std::fopen(preloaded.settings.counters.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "connectx: write %s: %s\n", preloaded.settings.counters.c_str(),
                 std::strerror(errno));
    return;
  }
  for (size_t i = 0; i < preloaded.wires.size(); ++i) {
    for (const NamedCount& each : preloaded.wires[i]->counters()) {
      std::fprintf(file, "mlx5_%zu %s %" PRIu64 "\n", i, each.name.c_str(), each.count);
    }
  }
  std::fclose(file);
}

__attribute__((constructor)) void StartWithProcess() {
  g_preloaded = new Preloaded;
  const absl::Status status = Start(*g_preloaded);
  if (status.ok()) return;
  // A program that was to run on a software device must not go on without it.
  std::fprintf(stderr, "connectx: %s\n", status.ToString().c_str());
  std::_Exit(EXIT_FAILURE);
}

__attribute__((destructor)) void StopWithProcess() {
  // A forked child has neither the thread nor a right to the files.
  if (g_preloaded->owner != ::getpid()) return;
  if (g_preloaded->settings.report) ReportViolations(*g_preloaded->connectx);
  g_preloaded->connectx->Retire();
  if (!g_preloaded->settings.counters.empty()) WriteCounters(*g_preloaded);
  // Rules and private interfaces of the wires are in the kernel and must go; nothing uses them now.
  g_preloaded->wires.clear();
}

}  // namespace
}  // namespace xtreme::connectx
