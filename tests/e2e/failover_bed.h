// SPDX-License-Identifier: Apache-2.0
//
// A ring with a backup, and a peer, each on a device of a software ConnectX; all three devices are
// on one hub, so each sees every frame of the network. Step by step under virtual time; the kernels
// are in memory.
//
// Threads: the test's; the engines' control threads are waited for.

#ifndef XTREME_TESTS_E2E_FAILOVER_BED_H_
#define XTREME_TESTS_E2E_FAILOVER_BED_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/wire/arp.h"
#include "stack/wire/ethernet.h"
#include "tests/e2e/two_rings.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/link.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine::testing {

inline constexpr wire::Ipv4Address kOwn{10, 0, 0, 1};
inline constexpr wire::Ipv4Address kPeer{10, 0, 0, 2};
inline constexpr wire::Ipv4Address kBackup{10, 0, 0, 3};
inline constexpr wire::Ipv4Address kGroup{239, 1, 2, 3};
inline constexpr connectx::MacAddress kOwnMac = {2, 0, 0, 0, 0, 1};
inline constexpr connectx::MacAddress kPeerMac = {2, 0, 0, 0, 0, 2};
inline constexpr connectx::MacAddress kBackupMac = {2, 0, 0, 0, 0, 3};

class FailoverTest : public ::testing::Test {
 protected:
  void Open(bool backup_stays = false, bool carrier = true) {
    auto hub = connectx::MakeHub(4);
    ASSERT_TRUE(hub.ok()) << hub.status();
    ends = *std::move(hub);
    auto made = connectx::SoftwareConnectX::Create(
        {.mode = connectx::SoftwareConnectX::Mode::kStep,
         .ports = {{.device = {.name = "mlx5_0", .mac = kOwnMac}, .wire = ends[0].get()},
                   {.device = {.name = "mlx5_1", .mac = kPeerMac}, .wire = ends[1].get()},
                   {.device = {.name = "mlx5_2", .mac = kBackupMac}, .wire = ends[2].get()}}});
    ASSERT_TRUE(made.ok()) << made.status();
    card = *std::move(made);
    ends[0]->SetPlugged(carrier);
    RingOptions options;
    options.interface_name = MemoryKernel::kInterface;
    options.rx_buffers = 2'048;
    options.hugepages = Hugepages::kNever;
    peer = std::make_unique<RingEnd>(
        "mlx5_1",
        MemoryKernel::Link{kPeer, wire::MacAddress(kPeerMac), kOwn, wire::MacAddress(kOwnMac)},
        &now, options, base::Nanoseconds());
    options.backup_interface = MemoryKernel::kBackupInterface;
    options.backup_stays = backup_stays;
    options.device_memory = device_memory_;
    options.counters_directory = frames_in;
    options.dump_frames = frames_in.empty() ? 0 : 1'024;
    us = std::make_unique<RingEnd>(
        "mlx5_0",
        MemoryKernel::Link{.own = kOwn,
                           .own_mac = wire::MacAddress(kOwnMac),
                           .peer = kPeer,
                           .peer_mac = wire::MacAddress(kPeerMac),
                           .carrier = carrier,
                           .backup = kBackup,
                           .backup_mac = wire::MacAddress(kBackupMac),
                           .backup_mtu = backup_mtu_},
        &now, options, base::Nanoseconds(), "mlx5_2");
    ASSERT_TRUE(us->ring->Start().ok());
    ASSERT_TRUE(peer->ring->Start().ok());
  }
  void TearDown() override {
    us.reset();
    peer.reset();
    EXPECT_EQ(card->live_objects(), connectx::LiveObjects{});
    for (size_t i = 0; i < card->size(); ++i) {
      for (const auto& violation : card->device(i).Violations()) ADD_FAILURE() << violation;
    }
  }

  // Plugs a port in or pulls its cable; what our ring tells until nothing more comes.
  std::vector<Completion> Plug(size_t end, bool plugged) {
    ends[end]->SetPlugged(plugged);
    std::vector<Completion> all;
    for (int round = 0; round < 8; ++round) {
      card->Step();
      us->engine->control().RunAndWait([] {});
      const auto some = us->Poll();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  static std::vector<std::pair<RingEvent, uint32_t>> Events(
      const std::vector<Completion>& completions) {
    std::vector<std::pair<RingEvent, uint32_t>> events;
    for (const Completion& completion : completions) {
      if (completion.kind != Kind::kRing) continue;
      EXPECT_EQ(completion.status, 0) << completion.text;
      events.emplace_back(completion.event, completion.interface_index);
    }
    return events;
  }
  // The payloads that `end` has, in order, and where they came in.
  static std::vector<std::string> Take(RingEnd& end, uint32_t* ifindex = nullptr) {
    std::vector<std::string> payloads;
    for (const Completion& completion : end.Poll()) {
      if (completion.kind != Kind::kPacket) continue;
      payloads.emplace_back(reinterpret_cast<const char*>(completion.data), completion.length);
      if (ifindex != nullptr) *ifindex = completion.interface_index;
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
    return payloads;
  }
  // What our ring's next polls bring until no packet waits: whether each had the device's time.
  std::vector<bool> TakeTimed() {
    std::vector<bool> timed;
    for (int round = 0; round < 8; ++round) NoteTimes(us->Poll(), &timed);
    return timed;
  }
  static void NoteTimes(const std::vector<Completion>& completions, std::vector<bool>* timed) {
    for (const Completion& completion : completions) {
      if (completion.kind != Kind::kPacket) continue;
      timed->push_back(completion.hw_clock != 0);
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
  }
  // Of frames that our ring received and keeps for xtreme_dump.
  std::vector<int64_t> KeptTimes() {
    std::vector<int64_t> times;
    const stats::FrameTap& tap = *us->ring->core().device.tap;
    const auto reader = stats::FrameReader::Open(tap.path());
    const auto frames = (*reader)->Take(100);
    for (const stats::TappedFrame& frame : *frames) {
      if (frame.kind == stats::FrameKind::kReceived) times.push_back(frame.time_ns.value_or(0));
    }
    return times;
  }
  // Frames that were on the network since the last call.
  std::vector<std::vector<uint8_t>> Overhear() {
    struct Listener final : connectx::FrameSink {
      void OnFrame(std::span<const uint8_t> frame, int64_t) override {
        heard.emplace_back(frame.begin(), frame.end());
      }
      std::vector<std::vector<uint8_t>> heard;
    };
    card->Step();
    Listener listener;
    while (ends[3]->Receive(listener, 64, 0) > 0) continue;
    return std::move(listener.heard);
  }
  // Whether they say, once, that our address is the backup's.
  static void ExpectAnnounced(const std::vector<std::vector<uint8_t>>& frames) {
    int announced = 0;
    for (const std::vector<uint8_t>& frame : frames) {
      const auto ethernet = wire::EthernetView::Parse(frame);
      if (!ethernet.ok() || ethernet->ether_type() != wire::kEtherTypeArp) continue;
      const auto arp = wire::ArpView::Parse(std::span(frame).subspan(14));
      ASSERT_TRUE(arp.ok());
      EXPECT_EQ(arp->sender(), kOwn);
      EXPECT_EQ(arp->target(), kOwn);
      EXPECT_EQ(arp->sender_mac(), wire::MacAddress(kBackupMac));
      ++announced;
    }
    EXPECT_EQ(announced, 1);
  }
  Handle Listen(uint16_t port) {
    const Handle socket = us->OpenSocket({.local = {{}, port}});
    EXPECT_TRUE(us->ring->udp().Join(socket, {kGroup, 0}, std::nullopt, 0, 1).ok());
    us->Settle();
    return socket;
  }
  // The peer hears where our address is now.
  void TellPeer(const connectx::MacAddress& mac) {
    peer->kernel->tables().neighbours[0].mac = wire::MacAddress(mac);
    peer->kernel->Publish();
    peer->Poll();
  }
  uint64_t Counter(std::string_view scope, std::string_view name) {
    uint64_t found = ~uint64_t{0};
    us->ring->VisitCounters([&](std::string_view in, std::string_view called, std::string_view,
                                uint64_t value) {
      if (in == scope && called == name) found = value;
    });
    return found;
  }

  static constexpr uint32_t kHome = MemoryKernel::kIfindex;
  static constexpr uint32_t kAway = MemoryKernel::kBackupIfindex;
  using News = std::vector<std::pair<RingEvent, uint32_t>>;

  std::atomic<uint64_t> now{1'000'000'000};
  std::vector<std::unique_ptr<connectx::LinkEnd>> ends;  // The last one: for who listens in.
  std::unique_ptr<connectx::SoftwareConnectX> card;
  std::string frames_in;  // Where ours keeps its frames; empty: it does not.
  uint32_t device_memory_ = 0;  // Bytes of our send queue.
  uint32_t backup_mtu_ = 1'500;
  std::unique_ptr<RingEnd> us;
  std::unique_ptr<RingEnd> peer;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_TESTS_E2E_FAILOVER_BED_H_
