// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/tcp_bed.h"

#include <utility>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/impairment.h"
#include "tools/connectx/wire/netif.h"

namespace xtreme::e2e {
namespace {

constexpr char kInterface[] = "ring0";

}  // namespace

TcpBed::TcpBed() = default;

TcpBed::~TcpBed() {
  device_.reset();
  wire_.reset();
}

absl::Status TcpBed::Make(uint64_t seed, uint32_t flow_rules, uint64_t device_memory_bytes) {
  for (std::unique_ptr<net::Namespace>* space : {&kernel_, &ring_}) {
    auto made = net::Namespace::Create();
    if (!made.ok()) return made.status();
    *space = *std::move(made);
  }
  absl::Status status = net::ConnectByVeth(*kernel_, "kernel0", *ring_, kInterface);
  status.Update(kernel_->AddAddress("kernel0", std::string(kKernelAddress) + "/24"));
  status.Update(ring_->AddAddress(kInterface, std::string(kRingAddress) + "/24"));
  if (!status.ok()) return status;
  inside_ = std::make_unique<net::Namespace::Inside>(*ring_);
  auto cable = connectx::NetworkInterface::Open({.interface = kInterface});
  if (!cable.ok()) return cable.status();
  wire_ = std::make_unique<connectx::ImpairedWire>(
      *std::move(cable), connectx::ImpairedWire::Options{.seed = seed});
  const auto mac = ring_->MacOf(kInterface);
  if (!mac.ok()) return mac.status();
  auto device = connectx::SoftwareConnectX::Create(
      {.ports = {{.device = {.name = "mlx5_0",
                             .mac = *mac,
                             .limits = {.flow_rules = flow_rules,
                                        .device_memory_bytes = device_memory_bytes}},
                  .interface = kInterface,
                  .wire = wire_.get()}}});
  if (!device.ok()) return device.status();
  device_ = *std::move(device);
  return absl::OkStatus();
}

void TcpBed::Impair(const connectx::Impairment& impairment) {
  wire_->SetImpairment(connectx::WireDirection::kTransmit, impairment);
  wire_->SetImpairment(connectx::WireDirection::kReceive, impairment);
}

uint64_t TcpBed::Hit(const std::string& fault) const {
  uint64_t hit = 0;
  for (const connectx::NamedCount& count : wire_->counters()) {
    const bool of_it = count.name == "impaired_tx_" + fault || count.name == "impaired_rx_" + fault;
    if (of_it) hit += count.count;
  }
  return hit;
}

RingOptions TcpBed::Options() {
  RingOptions options = RingOptions::Dev(kInterface);
  options.Set("rx_buffers", "4096").Set("wait", "sleep").Set("tcp_time_wait_ms", "100");
  options.fields().counters_directory = "";
  return options;
}

std::unique_ptr<Ring> TcpBed::OpenRing(RingOptions options) {
  auto ring = Ring::Open(options);
  if (!ring) {
    ADD_FAILURE() << ring.error().message;
    return nullptr;
  }
  const Status started = ring->Start();
  EXPECT_TRUE(started.ok()) << started.error().message;
  return std::make_unique<Ring>(*std::move(ring));
}

xtreme_completion Await(xtreme_ring ring, int kind) {
  constexpr int64_t kLongNs = 60'000'000'000;
  const int64_t end_ns = xtreme_ring_now(ring) + kLongNs;
  while (xtreme_ring_now(ring) < end_ns) {
    xtreme_completion completion = {};
    if (xtreme_ring_wait(ring, &completion, 1, sizeof completion, 10'000'000) < 1) continue;
    if (completion.kind == kind) return completion;
    xtreme_release(&completion, 1, sizeof completion);
  }
  ADD_FAILURE() << "no completion of kind " << kind;
  return {};
}

}  // namespace xtreme::e2e
