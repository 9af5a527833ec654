// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/testing/test_bed.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "tests/net/namespace.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/device/clock.h"
#include "tools/connectx/preload/settings.h"
#include "tools/connectx/testing/port_text.h"
#include "tools/connectx/testing/wrong_use.h"
#include "tools/connectx/wire/captured_wire.h"
#include "tools/connectx/wire/link.h"
#include "tools/connectx/wire/netif.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {
namespace {

constexpr int kMaxOverrunFrames = 100'000;
constexpr int kLookMs = 1;

constexpr char kHostInterface[] = "host";
constexpr char kGroups[] = "224.0.0.0/4";

void Must(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

template <typename T>
T Must(absl::StatusOr<T> made) {
  Must(made.status());
  return *std::move(made);
}

// The environment's settings, with those of the test laid over them.
Settings SettingsOf(const std::map<std::string, std::string>& over) {
  for (const char* const launchers : {"INTERFACE", "SHARED", "DEVICES", "COUNTERS", "REPORT"}) {
    if (!over.contains(launchers)) continue;
    Die("the setting " + std::string(launchers) + " is the launcher's: a bed has its ports, " +
        "Counter() and Violations()");
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : over) entries.push_back(kSettingPrefix + name + "=" + value);
  std::vector<const char*> all;
  for (char** at = environ; *at != nullptr; ++at) all.push_back(*at);
  for (const std::string& entry : entries) all.push_back(entry.c_str());
  all.push_back(nullptr);
  return Must(ReadSettings(all.data()));
}

TestBed::Mac DeviceMac(size_t port) {
  return {0x02, 0xc0, 0x7e, 0, 2, static_cast<uint8_t>(port + 1)};
}

class LastFrame final : public FrameSink {
 public:
  void OnFrame(std::span<const uint8_t> frame, int64_t) override {
    bytes.assign(frame.begin(), frame.end());
  }
  TestBed::Frame bytes;
};

}  // namespace

struct TestBed::State {
  // One port's two ends: the device's with its faults, and the test's.
  struct Cable {
    DecoratedWire near;
    std::unique_ptr<LinkEnd> far;          // Null: a host is there.
    std::unique_ptr<net::Namespace> host;  // The host's network.
    std::string interface;
  };

  Cable& cable(size_t port) {
    if (port >= cables.size()) Die("there is no port " + std::to_string(port));
    return cables[port];
  }
  LinkEnd& far(size_t port) {
    if (cable(port).far == nullptr) Die("the wire of a port with a host is not the test's");
    return *cable(port).far;
  }
  int64_t Now() const { return virtual_clock ? connectx->clock().Now() : clock.Now(); }
  uint64_t OutOfBuffer(size_t port) const {
    for (const auto& counter : connectx->device(port).Counters()) {
      if (std::string_view(counter.name) == "out_of_buffer") return counter.value;
    }
    return 0;
  }

  // The device's end of a wire whose other end is the test's.
  std::unique_ptr<Wire> MakeOwn(const Port& port, size_t number, Cable* cable) {
    auto link = Must(MakeLink());
    cable->far = std::move(link[1]);
    // The far end is nobody's: the kernel's own frames end there, the devices' never get there.
    if (!port.interface.empty()) MakeInterface(port, number, *space, "bed");
    return std::move(link[0]);
  }

  // The same of one whose other end is a host's: the interface, which is shared with the kernel.
  std::unique_ptr<Wire> MakeHost(const Port& port, size_t number, Cable* cable) {
    if (port.interface.empty() || virtual_clock) {
      Die("a host wants an interface, and the real clock");
    }
    cable->host = Must(net::Namespace::Create());
    MakeInterface(port, number, *cable->host, kHostInterface);
    const std::string name = kHostInterface + std::to_string(number);
    Must(cable->host->AddAddress(name, port.host));
    Must(cable->host->AddRoute(kGroups, name));
    return Must(NetworkInterface::Open({.interface = port.interface}));
  }

  void MakeInterface(const Port& port, size_t number, net::Namespace& other,
                     const std::string& prefix) {
    const std::string other_end = prefix + std::to_string(number);
    Must(net::ConnectByVeth(*space, port.interface, other, other_end));
    Must(space->SetMac(port.interface, DeviceMac(number)));
    Must(space->SetMtu(port.interface, mtu));
    Must(other.SetMtu(other_end, mtu));
    if (!port.address.empty()) Must(space->AddAddress(port.interface, port.address));
    // One way for what names no interface; who joins and sends by another one names it.
    if (!groups_routed) Must(space->AddRoute(kGroups, port.interface));
    groups_routed = true;
  }

  bool virtual_clock = false;
  uint32_t mtu = 0;
  bool groups_routed = false;
  RealClock clock;
  std::shared_ptr<CaptureFile> capture;
  std::unique_ptr<net::Namespace> space;
  std::unique_ptr<net::Namespace::Inside> inside;
  std::vector<Cable> cables;
  std::unique_ptr<SoftwareConnectX> connectx;
};

TestBed::Options TestBed::Options::FromRule() {
  Options options;
  const char* const clock = std::getenv("XTREME_TEST_BED_CLOCK");
  options.virtual_clock = clock != nullptr && std::string_view(clock) == "virtual";
  const char* const devices = std::getenv("XTREME_TEST_BED_DEVICES");
  if (devices == nullptr) {
    Die("the rule's devices are not in XTREME_TEST_BED_DEVICES (\"eth2=10.0.0.1/24\"), where "
        "Bazel puts them as it runs a test");
  }
  std::istringstream list(devices);
  for (std::string device; std::getline(list, device, ',');) {
    const PortText port = ParsePort(device);
    options.ports.push_back({port.interface, port.address, port.host});
  }
  return options;
}

TestBed::TestBed() : TestBed(Options::FromRule()) {}

TestBed::TestBed(const Options& options) : state_(std::make_unique<State>()) {
  const Settings settings = SettingsOf(options.settings);
  state_->virtual_clock = options.virtual_clock;
  state_->mtu = settings.mtu;
  if (!settings.capture.empty()) {
    state_->capture = CaptureFile::Later();
    Must(state_->capture->BeginOrBeside(settings.capture));
  }
  state_->space = Must(net::Namespace::Create());
  state_->inside = std::make_unique<net::Namespace::Inside>(*state_->space);
  using Mode = SoftwareConnectX::Mode;
  SoftwareConnectX::Options made{.mode = options.virtual_clock ? Mode::kStep : settings.mode};
  for (const Port& port : options.ports) {
    const size_t number = made.ports.size();
    const std::string name = "mlx5_" + std::to_string(number);
    State::Cable cable{.interface = port.interface};
    auto wire = port.host.empty() ? state_->MakeOwn(port, number, &cable)
                                  : state_->MakeHost(port, number, &cable);
    cable.near = Decorate(std::move(wire), {.faults = {.seed = settings.seed + number,
                                                       .transmit = settings.faults,
                                                       .receive = settings.faults},
                                            .capture = state_->capture,
                                            .name = name});
    Device::Options device = settings.device;
    device.name = name;
    device.mac = device_mac(number);
    device.mtu = settings.mtu;
    made.ports.push_back(
        {.device = device, .interface = port.interface, .wire = cable.near.wire.get()});
    state_->cables.push_back(std::move(cable));
  }
  state_->connectx = Must(SoftwareConnectX::Create(std::move(made)));
}

TestBed::~TestBed() {
  // The devices before their wires.
  state_->connectx.reset();
  state_->inside.reset();
}

void TestBed::AddPeer(size_t port, const std::string& address) {
  const std::string& interface = state_->cable(port).interface;
  Must(state_->space->AddNeighbour(interface, address, peer_mac()));
}

int TestBed::HostSocket(size_t port, int type) {
  const State::Cable& cable = state_->cable(port);
  if (cable.host == nullptr) Die("there is no host at port " + std::to_string(port));
  const net::Namespace::Inside inside(*cable.host);
  const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("open a socket of the host");
  return fd;
}

bool TestBed::Send(size_t port, std::span<const uint8_t> frame) {
  if (frame.size() < kEthernetHeaderBytes || frame.size() > kMaxFrameBytes) {
    Die("a frame of " + std::to_string(frame.size()) + " bytes: " +
        std::to_string(kEthernetHeaderBytes) + " to " + std::to_string(kMaxFrameBytes) +
        " fit on the wire");
  }
  return state_->far(port).Transmit(frame, state_->Now());
}

bool TestBed::Send(size_t port, const Datagram& datagram) {
  return Send(port, Encode(datagram, peer_mac(), device_mac(port)));
}

std::optional<TestBed::Frame> TestBed::Expect(size_t port, int patience_ms) {
  LinkEnd& far = state_->far(port);
  LastFrame got;
  const int64_t give_up_ns = state_->clock.Now() + patience_ms * int64_t{1'000'000};
  while (far.Receive(got, 1, state_->Now()) == 0) {
    if (state_->virtual_clock || state_->clock.Now() >= give_up_ns) return std::nullopt;
    pollfd source{.fd = far.fd(), .events = POLLIN, .revents = 0};
    if (far.Arm()) ::poll(&source, 1, patience_ms);
  }
  return got.bytes;
}

std::optional<TestBed::Datagram> TestBed::ExpectDatagram(size_t port, int patience_ms) {
  while (const auto frame = Expect(port, patience_ms)) {
    if (auto datagram = Decode(*frame)) return datagram;
  }
  return std::nullopt;
}

void TestBed::Drop(size_t port, Way way, uint64_t count) {
  const bool received = way == Way::kToDevice;
  state_->cable(port).near.faults->DropNext(
      received ? WireDirection::kReceive : WireDirection::kTransmit, count);
}

void TestBed::SetConnected(size_t port, bool connected) {
  state_->cable(port).near.faults->SetConnected(connected);
}

int TestBed::Overrun(size_t port, std::span<const uint8_t> frame) {
  const uint64_t before = state_->OutOfBuffer(port);
  for (int sent = 1; sent <= kMaxOverrunFrames; ++sent) {
    // A full wire is no full queue: the device gets its turn.
    while (!Send(port, frame)) {
      if (state_->virtual_clock) Pump();
      ::poll(nullptr, 0, state_->virtual_clock ? 0 : kLookMs);
    }
    if (state_->virtual_clock) Pump();
    if (state_->OutOfBuffer(port) > before) return sent;
  }
  return 0;
}

bool TestBed::Pump(int64_t advance_ns) {
  if (!state_->virtual_clock) Die("Pump: the clock is real, and moves by itself");
  return state_->connectx->Step(advance_ns);
}

uint64_t TestBed::Counter(size_t port, std::string_view name) const {
  for (const auto& counter : state_->connectx->device(port).Counters()) {
    if (counter.name == name) return counter.value;
  }
  for (const NamedCount& counter : state_->cable(port).near.wire->counters()) {
    if (counter.name == name) return counter.count;
  }
  Die("there is no counter " + std::string(name));
}

std::vector<std::string> TestBed::Violations() const {
  std::vector<std::string> all;
  for (size_t port = 0; port < state_->cables.size(); ++port) {
    for (std::string& each : state_->connectx->device(port).Violations()) all.push_back(each);
  }
  return all;
}

TestBed::Mac TestBed::device_mac(size_t port) const { return DeviceMac(port); }

TestBed::Mac TestBed::peer_mac() const { return {0x02, 0xc0, 0x7e, 0, 3, 1}; }

}  // namespace xtreme::connectx
