// SPDX-License-Identifier: Apache-2.0
//
// For tests: the driver on two ports of a software ConnectX that are joined by a cable, and a queue
// pair on each. The device moves only when Step() is called.
//
// Invariant: queue pairs go before ports, ports before the device, and pools after queue pairs.

#ifndef XTREME_TESTS_MLX5_NIC_TESTING_H_
#define XTREME_TESTS_MLX5_NIC_TESTING_H_

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "tests/mlx5/test_devices.h"
#include "tools/connectx/connectx_rig.h"
#include "xtreme/mlx5/nic.h"

namespace xtreme::mlx5 {

inline packet::BufferPool::Handle MakePool(uint32_t buffers = 1024, uint32_t buffer_bytes = 2048) {
  auto pool = packet::BufferPool::Create({.buffers = buffers,
                                          .buffer_bytes = buffer_bytes,
                                          .hugepages = packet::BufferPool::Hugepages::kNever});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

inline Nic::Options PortOptions(std::string device, uint32_t mtu = 1500) {
  const auto& mac = device == "mlx5_0" ? connectx::kMacA : connectx::kMacB;
  return {.port = {.device = std::move(device), .port = 1},
          .mac = wire::MacAddress(mac),
          .mtu = mtu};
}

inline std::unique_ptr<Nic> OpenPort(const Nic::Options& options) {
  auto nic = Nic::Open(options);
  EXPECT_TRUE(nic.ok()) << nic.status();
  return nic.ok() ? *std::move(nic) : nullptr;
}

// Everything UDP to B's address and `port`.
inline nic::FlowRule UdpRule(uint16_t port) {
  return {.match = {.destination_mac = wire::MacAddress(connectx::kMacB),
                    .destination_ip = wire::Ipv4Address(connectx::kIpB),
                    .protocol = 17,
                    .destination_port = port}};
}

// One port and a queue pair on it.
struct TestPort {
  explicit TestPort(std::string device, const nic::QueuePairOptions& options = {})
      : pool(MakePool()), nic(OpenPort(PortOptions(std::move(device)))) {
    auto made = nic->CreateQueuePair(options, pool.get());
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) queues = *std::move(made);
  }

  // Posts `frame` cut behind the UDP header.
  nic::TxStatus Send(std::span<const uint8_t> frame, uint16_t flags = 0, uint32_t key = 0) {
    std::array<uint8_t, 64> header{};
    std::copy_n(frame.begin(), connectx::kUdpHeadersBytes, header.begin());
    return queues->Post({.header = header.data(),
                         .payload = frame.data() + connectx::kUdpHeadersBytes,
                         .header_length = connectx::kUdpHeadersBytes,
                         .payload_length =
                             static_cast<uint32_t>(frame.size() - connectx::kUdpHeadersBytes),
                         .key = key,
                         .flags = flags});
  }

  // Everything received and not taken yet; the buffers are released.
  std::vector<std::vector<uint8_t>> Receive() {
    std::vector<std::vector<uint8_t>> frames;
    std::array<nic::RxFrame, 16> batch;
    while (uint32_t count = queues->PollReceive(batch)) {
      for (const nic::RxFrame& frame : std::span(batch).first(count)) {
        frames.emplace_back(frame.buffer->bytes().begin(), frame.buffer->bytes().end());
        packet::BufferPool::Release(frame.buffer);
      }
    }
    return frames;
  }

  packet::BufferPool::Handle pool;
  std::unique_ptr<Nic> nic;
  std::unique_ptr<nic::QueuePair> queues;
};

// A test of the driver on each of TestDevices(), which must have found nothing to object to.
class DeviceTest : public testing::TestWithParam<TestDevice> {
 protected:
  void StepAll() {
    while (connectx_->Step()) {
    }
  }
  // From here on `port`, which is B, receives UDP to `udp_port`.
  std::unique_ptr<nic::Rule> Listen(TestPort& port, uint16_t udp_port, uint32_t tag = 0) {
    nic::FlowRule rule = UdpRule(udp_port);
    rule.tag = tag;
    auto added = port.nic->AddRule(rule, port.queues.get());
    EXPECT_TRUE(added.ok()) << added.status();
    port.queues->Refill();
    return added.ok() ? *std::move(added) : nullptr;
  }
  void TearDown() override { connectx_.ExpectClean(); }
  static const connectx::Device::Features& offered() { return GetParam().options.features; }
  // Whether CQEs carry a time that the driver can use.
  static bool timed() { return offered().timestamps && offered().free_running_clock; }

  connectx::ConnectXRig connectx_{connectx::SoftwareConnectX::Mode::kStep, {}, GetParam().options};
};

}  // namespace xtreme::mlx5

#endif  // XTREME_TESTS_MLX5_NIC_TESTING_H_
