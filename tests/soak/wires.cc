// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/wires.h"

#include <utility>

#include "tests/soak/network.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/impairment.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::soak {

Wires::Wires() = default;
Wires::~Wires() = default;

absl::Status Wires::Make(int member, const std::string& segment, uint64_t seed) {
  connectx::SoftwareConnectX::Options options;
  for (int port = 0; port < PortsOf(member); ++port) {
    auto shared = connectx::SharedWire::Open(
        {.segment = segment, .ports = 8, .ring_bytes = 256 << 10});
    if (!shared.ok()) return shared.status();
    wires_.push_back(std::make_unique<connectx::ImpairedWire>(
        *std::move(shared),
        connectx::ImpairedWire::Options{.seed = seed + static_cast<uint64_t>(port)}));
    options.ports.push_back({.device = {.name = "mlx5_" + std::to_string(port),
                                        .mac = MacOf(member, port),
                                        .mtu = kMtu},
                             .interface = InterfaceAt(port),
                             .wire = wires_.back().get()});
  }
  auto devices = connectx::SoftwareConnectX::Create(std::move(options));
  if (!devices.ok()) return devices.status();
  devices_ = *std::move(devices);
  return absl::OkStatus();
}

void Wires::Impair(const connectx::Impairment& impairment) {
  connectx::Impairment receive = impairment;
  receive.corruption = 0;
  for (const auto& wire : wires_) {
    wire->SetImpairment(connectx::WireDirection::kTransmit, impairment);
    wire->SetImpairment(connectx::WireDirection::kReceive, receive);
  }
}

void Wires::Plug(size_t port, bool plugged) { wires_[port]->SetConnected(plugged); }

uint64_t Wires::Sum(const std::vector<std::string_view>& names, size_t first) const {
  uint64_t sum = 0;
  const auto add = [&](std::string_view name, uint64_t count) {
    for (const std::string_view wanted : names) {
      if (name.find(wanted) != name.npos) sum += count;
    }
  };
  for (size_t port = first; port < wires_.size(); ++port) {
    for (const auto& counter : wires_[port]->counters()) add(counter.name, counter.count);
    for (const auto& counter : devices_->device(port).Counters()) add(counter.name, counter.value);
  }
  return sum;
}

uint64_t Wires::LostOfSent() const {
  return Sum({"tx_dropped", "tx_lost", "tx_corrupted", "tx_unplugged", "xmit_discards"});
}

uint64_t Wires::LostOfReceived() const {
  return Sum({"rx_dropped", "rx_lost", "rx_corrupted", "rx_unplugged", "rcv_errors",
              "out_of_buffer"});
}

std::string Wires::Violations() const {
  std::string all;
  for (size_t port = 0; port < wires_.size(); ++port) {
    for (const std::string& violation : devices_->device(port).Violations()) {
      all += violation + "; ";
    }
  }
  return all;
}

}  // namespace xtreme::soak
