// SPDX-License-Identifier: Apache-2.0
//
// Start(): what it makes present, what it says, and what is counted afterwards.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

using RingStartTest = RingTest;

constexpr size_t kPages = 512;
constexpr size_t kPageBytes = 4'096;

// Faults once a page.
void TouchFreshPages() {
  void* fresh = mmap(nullptr, kPages * 4'096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(fresh, kPages * 4'096, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < kPages; ++i) static_cast<volatile char*>(fresh)[i * 4'096] = 1;
  munmap(fresh, kPages * 4'096);
}

TEST_F(RingStartTest, TheLineOfTheRingSaysWhatWasLockedAndWhyNotMore) {
  Open(/*start=*/false);
  EXPECT_EQ(ring->description().find("memory: "), std::string::npos);
  ASSERT_TRUE(ring->Start().ok());
  const std::string& line = ring->description();
  EXPECT_NE(line.find("; memory: "), std::string::npos) << line;
  EXPECT_NE(line.find(" MB locked"), std::string::npos) << line;
  EXPECT_NE(line.find("NUMA node of the device not known"), std::string::npos) << line;
}

// A system that refuses to says of what.
TEST_F(RingStartTest, TheTablesOfTcpAreLockedToo) {
  options.max_connections = 4'096;
  Open();
  const std::string& line = ring->description();
  const size_t at = line.find("; memory: ");
  ASSERT_NE(at, std::string::npos) << line;
  const bool refused = line.find("TCP of ") != std::string::npos;
  size_t bytes = 0;
  for (const std::span<std::byte> piece : ring->tcp().memory()) {
    bytes += piece.size();
    const auto begin = reinterpret_cast<uintptr_t>(piece.data()) / kPageBytes * kPageBytes;
    const auto end = reinterpret_cast<uintptr_t>(piece.data()) + piece.size();
    std::vector<unsigned char> present((end - begin + kPageBytes - 1) / kPageBytes);
    ASSERT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, present.data()), 0);
    for (const unsigned char page : present) EXPECT_TRUE(refused || (page & 1) != 0);
  }
  // All but the indices by flow of SYNs and TIME-WAIT.
  EXPECT_GT(bytes, ring->tcp().memory_bytes() * 3 / 4);
  const double locked = std::stod(line.substr(at + 10)) * 1e6;
  EXPECT_TRUE(refused || locked >= static_cast<double>(bytes)) << line;
}

TEST_F(RingStartTest, APageFaultOfTheOwnerAfterStartIsCounted) {
  clock_period = base::Milliseconds(1);
  Open(/*start=*/false);
  TouchFreshPages();
  ASSERT_TRUE(ring->Start().ok());
  PollAll();
  EXPECT_LT(Counter("ring", "page_faults"), kPages);
  TouchFreshPages();
  while (Counter("ring", "page_faults") < kPages) PollAll();
}

TEST_F(RingStartTest, TheFaultsAreThoseOfWhoeverOwnsTheRing) {
  clock_period = base::Milliseconds(1);
  Open();
  std::thread owner([this] {
    ring->Adopt();
    TouchFreshPages();
    while (Counter("ring", "page_faults") < kPages) PollAll();
  });
  owner.join();
  ring->Adopt();
}

TEST_F(RingStartTest, MoreSocketsThanTheSendQueueIsLongAreWarmedAsFarAsItGoes) {
  options.max_sockets = 128;
  Open(/*start=*/false);
  std::vector<Handle> sockets;
  for (uint16_t port = 0; port < 80; ++port) {
    sockets.push_back(OpenSocket(static_cast<uint16_t>(7000 + port)));
    Connect(sockets.back(), kPeer);
  }
  ASSERT_TRUE(ring->Start().ok());
  EXPECT_EQ(queue().sent().size(), options.tx_queue_frames);
  for (const Handle socket : sockets) {
    ring->VisitSocketCounters(socket, [](std::string_view, std::string_view name, std::string_view,
                                         uint64_t value) { EXPECT_EQ(value, 0u) << name; });
  }
  EXPECT_EQ(Counter("ring", "refused_sq_full"), 0u);
}

// By whoever resets the port's statistics.
TEST_F(RingStartTest, PortCountersThatBeginAnewAreNoLoss) {
  counters_period = base::Milliseconds(1);
  Open();
  uint64_t lost = 0;
  while (Counter("port", "out_of_buffer") == 0) {
    nic->SetCounters({.out_of_buffer = lost += 1'000, .discards = 0});
    PollAll();
  }
  nic->SetCounters({.out_of_buffer = 1, .discards = 1});
  uint32_t told = 0;
  while (Counter("port", "discards") == 0) {
    for (const Completion& completion : PollAll()) told = completion.count;
  }
  EXPECT_EQ(told, 2u);
}

TEST_F(RingStartTest, APortIsOpenedAnewWithAnotherMtuWhenNoRingIsLeftOnIt) {
  Open();
  MemoryNic* const before = nic;
  EXPECT_EQ(ring->core().device.mtu, 1'500u);
  kernel->tables().interfaces[0].mtu = 9'000;
  kernel->Publish();
  nic_options.mtu = 9'000;
  options.rx_buffers = 0;
  auto beside = Ring::Open(engine.get(), options);
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ((*beside)->core().device.nic, before) << "another ring is on it";
  beside->reset();
  ring.reset();
  auto again = Ring::Open(engine.get(), options);
  ASSERT_TRUE(again.ok()) << again.status();
  ring = *std::move(again);
  EXPECT_EQ(ring->core().device.mtu, 9'000u);
}

TEST_F(RingStartTest, ARemovedDeviceIsOpenedAnewWhenNoRingIsLeftOnIt) {
  Open();
  const auto opened = nic_opened;
  nic->PushEvent(nic::PortEvent::kDeviceRemoved);
  std::vector<Completion> told;
  while (told.empty()) told = Settle();
  EXPECT_EQ(told[0].event, RingEvent::kRemoved);
  ring.reset();
  auto again = Ring::Open(engine.get(), options);
  ASSERT_TRUE(again.ok()) << again.status();
  ring = *std::move(again);
  EXPECT_EQ(nic_opened, opened + 1);
}

// It would never be told that, and go over to it as to one that works.
TEST_F(RingStartTest, ARemovedDeviceIsNoneForANewRingWhileAnotherIsOnIt) {
  Open();
  nic->PushEvent(nic::PortEvent::kDeviceRemoved);
  while (Settle().empty()) continue;
  const auto refused = Ring::Open(engine.get(), options);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
}

TEST_F(RingStartTest, NobodyLooksForEventsOfADeviceThatIsGone) {
  Open();
  nic->PushEvent(nic::PortEvent::kDeviceRemoved);
  while (Settle().empty()) continue;
  engine->control().RunAndWait([] {});
  const uint64_t polls = nic->event_polls();
  // Each is a turn of the control thread's loop.
  for (int i = 0; i < 10; ++i) engine->control().RunAndWait([] {});
  EXPECT_EQ(nic->event_polls(), polls);
}

TEST_F(RingStartTest, ALaneOfAClosedRingKeepsNoDevice) {
  Open();
  const auto lane = ring->OpenLane();
  const auto opened = nic_opened;
  nic->PushEvent(nic::PortEvent::kDeviceRemoved);
  while (Settle().empty()) continue;
  ring.reset();
  EXPECT_EQ(lane->Post(1), EPIPE);
  auto again = Ring::Open(engine.get(), options);
  ASSERT_TRUE(again.ok()) << again.status();
  ring = *std::move(again);
  EXPECT_EQ(nic_opened, opened + 1);
}

TEST_F(RingStartTest, ASecondStartIsRefused) {
  Open();
  EXPECT_EQ(ring->Start().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace xtreme::engine::testing
