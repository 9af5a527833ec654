// SPDX-License-Identifier: Apache-2.0

#include "tests/model/world.h"

#include <string>
#include <utility>
#include <vector>

#include "api/native/process.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/impairment.h"
#include "tools/connectx/wire/link.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/mlx5/nic.h"

namespace xtreme::model {
namespace {

using engine::testing::MemoryKernel;

constexpr std::array<const char*, 3> kInterfaces = {"xt0", "xt1", "xt2"};
constexpr int kPorts = 3;

constexpr int SideOfPort(int port) { return port % 2; }

wire::MacAddress MacOf(int port) {
  return wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(1 + port)});
}
wire::Ipv4Address IpOf(int side) {
  return wire::Ipv4Address(10, 0, static_cast<uint8_t>(side), 1);
}

std::unique_ptr<connectx::ImpairedWire> Impaired(std::unique_ptr<connectx::LinkEnd> end,
                                                 uint64_t seed) {
  connectx::ImpairedWire::Options options;
  options.seed = seed;
  return std::make_unique<connectx::ImpairedWire>(std::move(end), options);
}

}  // namespace

xtreme_address World::AddressOf(int side, uint16_t port) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, static_cast<uint8_t>(side), 1}, port};
}

World::World(uint64_t seed) {
  auto ends = connectx::MakeHub(kPorts, {.slots = 8192});
  if (!ends.ok()) abort();
  connectx::SoftwareConnectX::Options options;
  options.mode = connectx::SoftwareConnectX::Mode::kStep;
  for (int port = 0; port < kPorts; ++port) {
    const auto at = static_cast<size_t>(port);
    wires_[at] = Impaired(std::move((*ends)[at]), seed * 2 + at);
    options.ports.push_back(
        {.device = {.name = "mlx5_" + std::to_string(port), .mac = MacOf(port).bytes()},
         .wire = wires_[at].get()});
  }
  auto devices = connectx::SoftwareConnectX::Create(std::move(options));
  if (!devices.ok()) abort();
  devices_ = *std::move(devices);

  auto kernel = std::make_unique<MemoryKernel>(MemoryKernel::Link{});
  kernel_ = kernel.get();
  engine::Engine::Options made;
  made.kernel = std::move(kernel);
  made.open_nic = [](const std::string& interface) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    const int port = interface.back() - '0';
    auto nic = mlx5::Nic::Open({.port = {.device = "mlx5_" + std::to_string(port), .port = 1},
                                .mac = MacOf(port),
                                .mtu = 1'500});
    if (!nic.ok()) return nic.status();
    return std::unique_ptr<nic::Nic>(*std::move(nic));
  };
  made.ticks = {.read = [](void* time) -> uint64_t {
                  return *static_cast<std::atomic<uint64_t>*>(time);
                },
                .context = &now_};
  made.clock_period = made.counters_period = base::Seconds(3600);
  made.send_patience = {};
  auto engine = engine::Engine::Create(std::move(made));
  if (!engine.ok()) abort();
  engine_ = *std::move(engine);
  FillTables();
  api::Process::The().UseEngine(engine_);
}

void World::FillTables() {
  host::KernelTables& tables = kernel_->tables();
  const host::Interface first = tables.interfaces[0];
  const host::InterfaceAddress address = tables.addresses[0];
  tables = {};
  for (int port = 0; port < kPorts; ++port) {
    const int side = SideOfPort(port);
    host::Interface interface = first;
    interface.ifindex = IfindexOf(port);
    interface.name = kInterfaces[static_cast<size_t>(port)];
    interface.mac = MacOf(port);
    tables.interfaces.push_back(interface);
    host::InterfaceAddress own = address;
    own.ifindex = IfindexOf(port);
    own.local = own.peer =
        port < 2 ? IpOf(side) : wire::Ipv4Address(10, 0, 0, static_cast<uint8_t>(1 + port));
    own.broadcast = wire::Ipv4Address(10, 0, static_cast<uint8_t>(side), 255);
    tables.addresses.push_back(own);
  }
  FillRoutes();
}

// Each side's network is reached by the other side's interfaces.
void World::FillRoutes() {
  host::KernelTables& tables = kernel_->tables();
  tables.neighbours.clear();
  std::vector<host::Route> routes;
  for (int port = 0; port < kPorts; ++port) {
    const auto at = static_cast<size_t>(port);
    const int side = SideOfPort(port);
    const int there = side == 0 ? 1 : side_0_at_;
    if (neighbour_known_[at]) {
      tables.neighbours.push_back({.ifindex = IfindexOf(port),
                                   .address = IpOf(1 - side),
                                   .mac = MacOf(there),
                                   .state = NUD_PERMANENT});
    }
    if (!route_there_[at]) continue;
    host::Route route;
    route.table = RT_TABLE_MAIN;
    route.type = host::RouteType::kUnicast;
    route.destination = {wire::Ipv4Address(10, 0, static_cast<uint8_t>(1 - side), 0), 24};
    if (port < 2) route.preferred_source = IpOf(side);
    if (port == 2) route.metric = 100;
    route.next_hops = {{.ifindex = IfindexOf(port), .gateway = std::nullopt}};
    routes.push_back(route);
  }
  tables.fib = std::make_shared<host::Fib>(std::move(routes), std::vector<host::RoutingRule>{});
  kernel_->Publish();
}

void World::SetMtu(int side, uint32_t mtu) {
  for (int port = side; port < kPorts; port += 2) {
    kernel_->tables().interfaces[static_cast<size_t>(port)].mtu = mtu;
  }
  kernel_->Publish();
}

void World::SetRoute(int side, bool there) {
  for (size_t port = static_cast<size_t>(side); port < kPorts; port += 2) {
    route_there_[port] = there;
  }
  FillRoutes();
}

void World::SetNeighbour(int side, bool known) {
  for (size_t port = static_cast<size_t>(side); port < kPorts; port += 2) {
    neighbour_known_[port] = known;
  }
  FillRoutes();
}

void World::Announce(int port) {
  side_0_at_ = port;
  FillRoutes();
}

World::~World() {
  for (int i = 0; i < kRings; ++i) CloseRing(i);
  // Its thread still gives queues back to the devices: the last that holds it waits for that.
  api::Process::The().UseEngine(nullptr);
  engine_.reset();
  devices_.reset();
}

void World::Impair(const connectx::Impairment& impairment) {
  for (const auto& wire : wires_) {
    wire->SetImpairment(connectx::WireDirection::kTransmit, impairment);
  }
}

void World::Plug(int port, bool plugged) {
  wires_[static_cast<size_t>(port)]->SetConnected(plugged);
}


xtreme_ring_options World::Options() {
  xtreme_ring_options options;
  if (xtreme_ring_options_init(&options, sizeof options, "dev") != 0) abort();
  options.counters_directory = "";
  options.hugepages = 0;
  options.rx_buffers = 1024;
  options.rx_queue_frames = 128;
  options.tx_queue_frames = 64;
  options.signal_every = 8;
  return options;
}

std::string World::OpenRing(int index, const xtreme_ring_options& options) {
  xtreme_ring_options with = options;
  with.interface_name = kInterfaces[static_cast<size_t>(SideOf(index))];
  xtreme_ring& ring = rings_[static_cast<size_t>(index)];
  if (xtreme_ring_open(&with, &ring) != 0) return xtreme_error();
  if (xtreme_ring_start(ring) != 0) return xtreme_error();
  return "";
}

int World::CloseRing(int index) {
  xtreme_ring& ring = rings_[static_cast<size_t>(index)];
  if (ring.value == 0) return 0;
  const int result = xtreme_ring_close(ring);
  ring.value = 0;
  return result;
}

void World::Advance(int64_t ns) {
  now_ += static_cast<uint64_t>(ns);
  devices_->Step(ns);
}

void World::Settle() {
  engine_->control().RunAndWait([] {});
}

uint64_t World::Lost() const {
  uint64_t lost = 0;
  for (const auto& wire : wires_) {
    for (const auto& counter : wire->counters()) {
      const std::string_view name = counter.name;
      if (name.find("lost") != name.npos || name.find("dropped") != name.npos) {
        lost += counter.count;
      }
    }
  }
  return lost;
}

uint64_t World::Counter(int ring, std::string_view scope, std::string_view name) const {
  std::vector<xtreme_counter> counters(1000);
  const int count = xtreme_ring_counters(this->ring(ring), counters.data(), 1000);
  for (int i = 0; i < count; ++i) {
    const xtreme_counter& counter = counters[static_cast<size_t>(i)];
    if (counter.scope == scope && counter.name == name) return counter.value;
  }
  abort();
}

std::string World::Remains() const {
  std::string remains;
  for (size_t i = 0; i < devices_->size(); ++i) {
    for (const auto& violation : devices_->device(i).Violations()) remains += violation + "; ";
  }
  return remains;
}

}  // namespace xtreme::model
