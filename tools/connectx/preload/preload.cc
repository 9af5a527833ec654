// SPDX-License-Identifier: Apache-2.0
//
// libconnectx.so: preloaded into a program, it gives the program a software ConnectX before main.
//
// Invariant: what the program may still be using at exit is never destroyed; only the device's
// thread and its files go.
// Thread: constructor and destructor of the library.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/preload/settings.h"
#include "tools/connectx/preload/sys_paths.h"
#include "tools/connectx/uverbs/hook.h"
#include "tools/connectx/wire/captured_wire.h"
#include "tools/connectx/wire/link.h"
#include "tools/connectx/wire/netif.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::connectx {
namespace {

// What lives as long as the process, whatever happens at exit.
struct Preloaded {
  pid_t owner = 0;
  Settings settings;
  std::shared_ptr<CaptureFile> capture;
  std::once_flag capture_begun;
  std::vector<std::unique_ptr<Wire>> wires;
  std::unique_ptr<SoftwareConnectX> connectx;
};

// The preload's one table: set once before main, never destroyed.
Preloaded* g_preloaded = nullptr;

// Descriptors of the devices, which a program that closes all that it did not open, as ssh does,
// does not mean. Set before main; a child's are none.
constexpr unsigned kMostKept = 1'024;
std::bitset<kMostKept> g_kept;

std::bitset<kMostKept> OpenDescriptors() {
  std::bitset<kMostKept> open;
  for (unsigned fd = 0; fd < kMostKept; ++fd) {
    if (::fcntl(static_cast<int>(fd), F_GETFD) >= 0) open.set(fd);
  }
  return open;
}

int CloseRange(unsigned first, unsigned last, int flags) {
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
}

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

// Locally administered; `network` and `number` tell devices apart.
MacAddress MadeUpMac(uint8_t network, uint8_t number) {
  return {0x02, 0xc0, 0x7e, 0, network, number};
}

enum class Faults { kBothWays, kOnTheWayOut };

// Puts a device on `wire`: with its faults and its capture, under the next name.
void AddDevice(Preloaded& preloaded, SoftwareConnectX::Options& options,
               std::unique_ptr<Wire> wire, Faults faults, SoftwareConnectX::Port port) {
  const Settings& settings = preloaded.settings;
  const std::string name = "mlx5_" + std::to_string(options.ports.size());
  ImpairedWire::Options impaired{.seed = settings.seed + options.ports.size(),
                                 .transmit = settings.faults};
  if (faults == Faults::kBothWays) impaired.receive = settings.faults;
  if (settings.faults != Impairment{} || preloaded.capture != nullptr) {
    const Decoration asked{.faults = impaired, .capture = preloaded.capture, .name = name};
    wire = Decorate(std::move(wire), asked).wire;
  }
  port.device = DeviceOptions(settings, name, port.device.mac, port.device.mtu);
  port.wire = wire.get();
  options.ports.push_back(std::move(port));
  preloaded.wires.push_back(std::move(wire));
}

absl::Status AddInterface(Preloaded& preloaded, SoftwareConnectX::Options& options,
                          const std::string& name) {
  SoftwareConnectX::Port port{.interface = name};
  if (absl::Status status = QueryInterface(name, &port.device.mac, &port.device.mtu);
      !status.ok()) {
    return status;
  }
  auto wire = NetworkInterface::Open({.interface = name});
  if (!wire.ok()) return wire.status();
  AddDevice(preloaded, options, *std::move(wire), Faults::kBothWays, std::move(port));
  return absl::OkStatus();
}

absl::Status AddInterfaces(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  for (const std::string& name : preloaded.settings.interfaces) {
    if (absl::Status status = AddInterface(preloaded, options, name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AddCable(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  const uint32_t devices = std::max(2u, preloaded.settings.devices);
  auto ends = MakeHub(static_cast<int>(devices));
  if (!ends.ok()) return ends.status();
  for (uint8_t i = 0; i < devices; ++i) {
    // A frame passes two ends, and is to be hit once.
    AddDevice(preloaded, options, std::move((*ends)[i]), Faults::kOnTheWayOut,
              {.device = {.mac = MadeUpMac(0, i + 1), .mtu = preloaded.settings.mtu}});
  }
  return absl::OkStatus();
}

absl::Status AddShared(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  const uint32_t devices = std::max(1u, preloaded.settings.devices);
  for (uint32_t i = 0; i < devices; ++i) {
    auto wire = SharedWire::Open({.segment = preloaded.settings.shared});
    if (!wire.ok()) return wire.status();
    const MacAddress mac = MadeUpMac(1, static_cast<uint8_t>((*wire)->port() + 1));
    AddDevice(preloaded, options, *std::move(wire), Faults::kBothWays,
              {.device = {.mac = mac, .mtu = preloaded.settings.mtu}});
  }
  return absl::OkStatus();
}

absl::Status AddDevices(Preloaded& preloaded, SoftwareConnectX::Options& options) {
  if (!preloaded.settings.interfaces.empty()) return AddInterfaces(preloaded, options);
  if (!preloaded.settings.shared.empty()) return AddShared(preloaded, options);
  return AddCable(preloaded, options);
}

// A program that was to run on a software device must not go on without it.
void ExitUnless(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "connectx: %s\n", status.ToString().c_str());
  std::_Exit(EXIT_FAILURE);
}

// The file is for who opens a device: the shell of a script, which was preloaded too, has nothing
// to say in it.
void BeginCapture(Preloaded& preloaded) {
  ExitUnless(preloaded.capture->BeginOrBeside(preloaded.settings.capture));
}

absl::Status Start(Preloaded& preloaded) {
  preloaded.owner = ::getpid();
  SoftwareConnectX::Options options{.mode = preloaded.settings.mode};
  if (!preloaded.settings.capture.empty()) {
    preloaded.capture = CaptureFile::Later();
    options.on_open = [&preloaded] {
      std::call_once(preloaded.capture_begun, [&] { BeginCapture(preloaded); });
    };
  }
  if (absl::Status wired = AddDevices(preloaded, options); !wired.ok()) return wired;
  auto connectx = SoftwareConnectX::Create(std::move(options));
  if (!connectx.ok()) return connectx.status();
  preloaded.connectx = *std::move(connectx);
  ShowSysfs(preloaded.connectx->sysfs_path());
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

void StartDevices(const Settings& settings) {
  g_preloaded = new Preloaded{.settings = settings};
  const absl::Status started = Start(*g_preloaded);
  // Those of the interfaces before the one that failed are in the kernel.
  if (!started.ok()) g_preloaded->wires.clear();
  ExitUnless(started);
}

// In a child after fork(), which has no thread of the parent's devices: its own are made when it
// first asks for one, which most children, about to execute something else, never do. Settings are
// the parent's: servers clear their environment. Commands on a file that the parent had open go to
// the child's copy of the parent's device, as the kernel's driver would take them.
class ChildsBoundary final : public Boundary {
 public:
  void Inherit(Boundary* parents) {
    parents_ = parents;
    closed_.reset();
  }

  std::optional<int> Open(const char* path, int flags) override {
    if (!IsDevice(path)) return std::nullopt;
    StartDevices(g_preloaded->settings);
    return CurrentBoundary()->Open(path, flags);
  }
  std::optional<int> Stat(const char* path, struct stat* out) override {
    if (!IsDevice(path)) return std::nullopt;
    StartDevices(g_preloaded->settings);
    return CurrentBoundary()->Stat(path, out);
  }
  std::optional<int> Socket(int domain, int type, int protocol) override {
    if (domain != AF_NETLINK || protocol != NETLINK_RDMA) return std::nullopt;
    StartDevices(g_preloaded->settings);
    return CurrentBoundary()->Socket(domain, type, protocol);
  }
  std::optional<int> Ioctl(int fd, unsigned long request, void* argument) override {
    return MayBeInherited(fd) ? parents_->Ioctl(fd, request, argument) : std::nullopt;
  }
  std::optional<intptr_t> Mmap(void* address, size_t length, int protection, int flags, int fd,
                               off_t offset) override {
    if (!MayBeInherited(fd)) return std::nullopt;
    return parents_->Mmap(address, length, protection, flags, fd, offset);
  }
  // The parent's is not told: a lock of it may be held for ever by a thread that is not here.
  void Close(int fd) override {
    if (MayBeInherited(fd)) closed_.set(static_cast<size_t>(fd));
  }

 private:
  static constexpr int kMostInherited = 4'096;

  static bool IsDevice(std::string_view path) { return path.starts_with("/dev/infiniband/"); }
  // What was closed since the fork and stands for something else by now is not.
  bool MayBeInherited(int fd) const {
    return parents_ != nullptr && fd >= 0 && fd < kMostInherited &&
           !closed_.test(static_cast<size_t>(fd));
  }

  Boundary* parents_ = nullptr;
  std::bitset<kMostInherited> closed_;
};

void BeginChild() {
  static ChildsBoundary boundary;
  // One that asked for none, forked by such a one, is the same again.
  if (CurrentBoundary() == &boundary) return;
  boundary.Inherit(CurrentBoundary());
  SoftwareConnectX::ForgetAfterFork();
  g_kept.reset();
  SetBoundary(&boundary);
}

__attribute__((constructor)) void StartWithProcess() {
  pthread_atfork(nullptr, nullptr, BeginChild);
  const absl::StatusOr<Settings> settings = ReadSettings(environ);
  ExitUnless(settings.status());
  const std::bitset<kMostKept> others = OpenDescriptors();
  StartDevices(*settings);
  g_kept = OpenDescriptors() & ~others;
}

__attribute__((destructor)) void StopWithProcess() {
  // A forked child has neither the thread nor a right to the files.
  if (g_preloaded->owner != ::getpid()) return;
  g_kept.reset();
  if (g_preloaded->settings.report) ReportViolations(*g_preloaded->connectx);
  g_preloaded->connectx->Retire();
  if (!g_preloaded->settings.counters.empty()) WriteCounters(*g_preloaded);
  // Rules and private interfaces of the wires are in the kernel and must go; nothing uses them now.
  g_preloaded->wires.clear();
  g_preloaded->capture.reset();
}

}  // namespace
}  // namespace xtreme::connectx

// A program that closes every number, as daemons do, finds those of the devices closed.
extern "C" int close(int fd) {
  using xtreme::connectx::g_kept;
  // Not by syscall(): libxtreme.so has one of its own, which closes by this.
  static const auto next = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "close"));
  if (fd >= 0 && static_cast<unsigned>(fd) < g_kept.size() && g_kept.test(fd)) {
    errno = EBADF;
    return -1;
  }
  return next(fd);
}

// The ranges between what is kept.
extern "C" int close_range(unsigned first, unsigned last, int flags) noexcept {
  using xtreme::connectx::CloseRange;
  using xtreme::connectx::g_kept;
  if (first > last) return CloseRange(first, last, flags);
  for (unsigned kept = first; kept <= last && kept < g_kept.size(); ++kept) {
    if (!g_kept.test(kept)) continue;
    if (kept > first && CloseRange(first, kept - 1, flags) != 0) return -1;
    first = kept + 1;
  }
  return first > last ? 0 : CloseRange(first, last, flags);
}

extern "C" void closefrom(int first) noexcept {
  close_range(static_cast<unsigned>(std::max(first, 0)), ~0u, 0);
}
