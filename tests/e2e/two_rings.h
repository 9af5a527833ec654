// SPDX-License-Identifier: Apache-2.0
//
// Two rings on two ports of a software ConnectX joined by a cable, through the driver and the
// distribution's libmlx5, step by step under virtual time; the kernels are in memory.
//
// Threads: the test's; the engines' control threads are waited for by Settle().

#ifndef XTREME_TESTS_E2E_TWO_RINGS_H_
#define XTREME_TESTS_E2E_TWO_RINGS_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/device/personality.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/engine/udp.h"
#include "xtreme/mlx5/nic.h"

namespace xtreme::engine::testing {

// One end of the cable.
struct RingEnd {
  RingEnd(const std::string& device, const MemoryKernel::Link& link, std::atomic<uint64_t>* now,
          const RingOptions& options, base::Nanoseconds send_patience,
          const std::string& backup_device = "") {
    auto own_kernel = std::make_unique<MemoryKernel>(link);
    kernel = own_kernel.get();
    Engine::Options made;
    made.kernel = std::move(own_kernel);
    made.open_nic = [device, backup_device, link](const std::string& interface)
        -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
      const bool backup = interface == MemoryKernel::kBackupInterface;
      auto nic = mlx5::Nic::Open({.port = {.device = backup ? backup_device : device, .port = 1},
                                  .mac = backup ? link.backup_mac : link.own_mac,
                                  .mtu = backup ? link.backup_mtu : link.mtu});
      if (!nic.ok()) return nic.status();
      return std::unique_ptr<nic::Nic>(*std::move(nic));
    };
    made.ticks = {.read = [](void* time) -> uint64_t {
                    return *static_cast<std::atomic<uint64_t>*>(time);
                  },
                  .context = now};
    made.clock_period = base::Seconds(3600);
    made.counters_period = base::Seconds(3600);
    made.send_patience = send_patience;
    auto created = Engine::Create(std::move(made));
    EXPECT_TRUE(created.ok()) << created.status();
    engine = *std::move(created);
    auto opened = Ring::Open(engine.get(), options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    ring = *std::move(opened);
  }

  ~RingEnd() {
    ring.reset();
    engine.reset();
  }

  std::vector<Completion> Poll(uint32_t max = 64) {
    std::vector<Completion> completions(max);
    completions.resize(ring->Poll(completions.data(), max, sizeof(Completion)));
    return completions;
  }

  // Waits for what was started; what it told, and must have told well, is dropped.
  void Settle() {
    engine->control().RunAndWait([] {});
    for (const Completion& completion : Poll()) {
      EXPECT_EQ(completion.kind, Kind::kOpDone);
      EXPECT_EQ(completion.status, 0) << (completion.text == nullptr ? "" : completion.text);
    }
  }

  Handle OpenSocket(const UdpOptions& options) {
    Handle handle = 0;
    EXPECT_TRUE(ring->udp().Open(options, &handle).ok());
    Settle();
    return handle;
  }

  SendResult SendTo(Handle socket, wire::Endpoint peer, std::string_view payload,
                    SendOptions options = {}) {
    return ring->udp().SendTo(
        ring->udp().Find(socket), peer,
        {.data = reinterpret_cast<const uint8_t*>(payload.data()), .length = payload.size()},
        options);
  }

  MemoryKernel* kernel = nullptr;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Ring> ring;
};

struct TwoRingsSetup {
  // A closed ring's frames get so long to leave; the test then has to run the device.
  base::Nanoseconds send_patience{};
  uint32_t mtu = 1'500;
  Fragments fragments = Fragments::kKernel;
  // Not 0: the ring is on a VLAN interface.
  uint16_t vlan_a = 0;
  uint16_t vlan_b = 0;
  // What both devices cannot do; empty: nothing (connectx::CapabilityNames()).
  std::string without;
  uint32_t tx_queue_frames = 512;
  uint32_t device_memory = 0;  // Bytes of a ring's send queue.
  uint32_t flow_rules = 0;     // That a device has room for; 0: many.
  std::string frames_in;       // Where both keep their frames; empty: they do not.
  uint16_t snap_bytes = 96;    // Of each.
};

class TwoRingsTest : public ::testing::Test {
 protected:
  static constexpr wire::Ipv4Address kA{10, 0, 0, 1};
  static constexpr wire::Ipv4Address kB{10, 0, 0, 2};
  static constexpr wire::Ipv4Address kGroup{239, 1, 2, 3};

  explicit TwoRingsTest(const TwoRingsSetup& setup = {})
      : rig(connectx::SoftwareConnectX::Mode::kStep, {}, DeviceOf(setup)) {
    RingOptions options;
    options.tx_queue_frames = setup.tx_queue_frames;
    options.device_memory = setup.device_memory;
    options.fragments = setup.fragments;
    options.rx_buffers = 2048;
    options.hugepages = Hugepages::kNever;
    options.counters_directory = setup.frames_in;
    options.dump_frames = setup.frames_in.empty() ? 0 : 4'096;
    options.dump_snap_bytes = setup.snap_bytes;
    const wire::MacAddress mac_a(connectx::kMacA);
    const wire::MacAddress mac_b(connectx::kMacB);
    options.interface_name = InterfaceName(setup.vlan_a);
    a = std::make_unique<RingEnd>(
        "mlx5_0", MemoryKernel::Link{kA, mac_a, kB, mac_b, setup.mtu, setup.vlan_a}, &now, options,
        setup.send_patience);
    options.interface_name = InterfaceName(setup.vlan_b);
    options.number = 1;
    b = std::make_unique<RingEnd>(
        "mlx5_1", MemoryKernel::Link{kB, mac_b, kA, mac_a, setup.mtu, setup.vlan_b}, &now, options,
        setup.send_patience);
    EXPECT_TRUE(a->ring->Start().ok());
    EXPECT_TRUE(b->ring->Start().ok());
  }

  // Nothing is left on the device, and nothing was done that a card punishes.
  void TearDown() override {
    a.reset();
    b.reset();
    rig.ExpectClean();
  }

  static connectx::Device::Options DeviceOf(const TwoRingsSetup& setup) {
    connectx::Device::Options device{.mtu = setup.mtu};
    if (setup.flow_rules != 0) device.limits.flow_rules = setup.flow_rules;
    if (!setup.without.empty()) {
      EXPECT_TRUE(connectx::TakeCapability(setup.without, &device)) << setup.without;
    }
    return device;
  }
  static std::string InterfaceName(uint16_t vlan_id) {
    const std::string below = MemoryKernel::kInterface;
    return vlan_id == 0 ? below : below + "." + std::to_string(vlan_id);
  }
  static std::string Text(const Completion& packet) {
    return std::string(reinterpret_cast<const char*>(packet.data), packet.length);
  }
  static void Release(const std::vector<Completion>& completions) {
    for (const Completion& completion : completions) {
      if (completion.kind == Kind::kPacket) packet::BufferPool::ReleaseChain(completion.buffer);
    }
  }

  std::atomic<uint64_t> now{1'000'000'000};
  connectx::ConnectXRig rig;
  std::unique_ptr<RingEnd> a;
  std::unique_ptr<RingEnd> b;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_TESTS_E2E_TWO_RINGS_H_
