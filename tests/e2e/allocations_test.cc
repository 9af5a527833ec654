// SPDX-License-Identifier: Apache-2.0
//
// Nothing in steady state allocates memory: what the owner's thread takes from the heap is counted
// here, by this program's own operator new, on each path of a ring through the driver.
//
// Only calls of the ring are counted: the device and the test are on the same thread.

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/ring_group.h"
#include "xtreme/engine/ring_lane.h"

namespace {

// Of the calling thread; -1: not counted.
thread_local int64_t allocations = -1;

void* Allocate(size_t bytes, size_t alignment) {
  if (allocations >= 0) ++allocations;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded)) return memory;
  std::abort();
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace xtreme::engine::testing {
namespace {

class AllocationsTest : public TwoRingsTest {
 protected:
  explicit AllocationsTest(const TwoRingsSetup& setup = {}) : TwoRingsTest(setup) {}

  // What `act` allocates on this thread.
  template <typename Act>
  static int64_t CountOf(Act act) {
    allocations = 0;
    act();
    return std::exchange(allocations, -1);
  }

  // Polls b into the fixture's array; what came is counted and released.
  void PollB() {
    const uint32_t count = b->ring->Poll(completions, 64, sizeof(Completion));
    for (uint32_t i = 0; i < count; ++i) {
      ++got[static_cast<size_t>(completions[i].kind)];
      if (completions[i].kind != Kind::kPacket) continue;
      packet::BufferPool::ReleaseChain(completions[i].buffer);
    }
  }
  void PollA() {
    const uint32_t count = a->ring->Poll(completions, 64, sizeof(Completion));
    for (uint32_t i = 0; i < count; ++i) ++got[static_cast<size_t>(completions[i].kind)];
  }
  uint64_t Got(Kind kind) const { return got[static_cast<size_t>(kind)]; }

  // What `act` allocates, `rounds` times, with the device let work uncounted in between. The first
  // round is not counted: in it a socket meets a destination, and a vector its final size.
  template <typename Act>
  int64_t Steady(int rounds, Act act) {
    int64_t sum = 0;
    for (int round = 0; round <= rounds; ++round) {
      now += 1'000'000;
      const int64_t count = CountOf(act);
      if (round > 0) sum += count;
      rig->Step();
    }
    return sum;
  }

  SendResult SendToB(Handle socket, size_t bytes, SendOptions options = {}) {
    return a->ring->udp().SendTo(a->ring->udp().Find(socket), {kB, 7000},
                                 {.data = payload, .length = bytes}, options);
  }

  static constexpr int kRounds = 300;
  uint8_t payload[16'384] = {};
  Completion completions[64];
  uint64_t got[16] = {};
  Handle client = a->OpenSocket({.local = {kA, 6000}});
};

TEST_F(AllocationsTest, WhatIsAllocatedIsSeenByThisTest) {
  EXPECT_GT(CountOf([this] {
              Handle handle = 0;
              a->ring->udp().Open({.local = {kA, 6001}}, &handle);
            }),
            0);
  a->Settle();
}

TEST_F(AllocationsTest, SendingAndReceivingAllocateNothing) {
  b->OpenSocket({.local = {kB, 7000}});
  for (const size_t bytes : {1u, 200u, 400u, 1'472u}) {
    EXPECT_EQ(Steady(kRounds, [&] {
                for (int i = 0; i < 8; ++i) SendToB(client, bytes, {.flags = kNoDoorbell});
                a->ring->Flush();
                PollA();
                PollB();
              }),
              0)
        << bytes;
  }
  EXPECT_GT(Got(Kind::kPacket), 4u * kRounds * 8 - 64);
}

TEST_F(AllocationsTest, WatchedSendsAllocateNothing) {
  b->OpenSocket({.local = {kB, 7000}});
  EXPECT_EQ(Steady(kRounds, [&] {
              SendToB(client, 64, {.flags = kSendWantDone | kSendWantWire, .cookie = 1});
              SendToB(client, 64, {.flags = kWarm});
              PollA();
              PollB();
            }),
            0);
  EXPECT_GE(Got(Kind::kTxDone), uint64_t{kRounds});
  EXPECT_GE(Got(Kind::kTxWire), uint64_t{kRounds});
}

TEST_F(AllocationsTest, BurstsAllocateNothing) {
  b->OpenSocket({.local = {kB, 7000}});
  ASSERT_TRUE(a->ring->udp().Connect(client, {kB, 7000}, 1).ok());
  a->Settle();
  nic::TxPayload many[16];
  for (nic::TxPayload& one : many) one = {.data = payload, .length = 100};
  SendResult last;
  EXPECT_EQ(Steady(kRounds, [&] {
              a->ring->udp().SendBurst(a->ring->udp().Find(client), many, 0, &last);
              PollA();
              PollB();
            }),
            0);
  EXPECT_GE(Got(Kind::kPacket), 16u * kRounds);
}

TEST_F(AllocationsTest, SharedAndLimitedAndUnwantedDatagramsAllocateNothing) {
  for (const uint32_t max_held : {0u, 4u}) {
    const Handle listener =
        b->OpenSocket({.local = {{}, 7000}, .reuse = true, .max_held = max_held});
    ASSERT_TRUE(b->ring->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
    b->Settle();
  }
  EXPECT_EQ(Steady(kRounds, [&] {
              for (const uint16_t port : {7000, 7001}) {
                a->ring->udp().SendTo(a->ring->udp().Find(client), {kGroup, port},
                                      {.data = payload, .length = 64}, {});
              }
              SendToB(client, 64);
              PollA();
              PollB();
            }),
            0);
  EXPECT_GE(Got(Kind::kPacket), 3u * kRounds);
}

TEST_F(AllocationsTest, TimersLanesWakingAndArmingAllocateNothing) {
  const auto lane = b->ring->OpenLane();
  EXPECT_EQ(Steady(kRounds, [&] {
              const Handle cancelled = b->ring->StartTimer(b->ring->Now(), 1);
              b->ring->StartTimer(b->ring->Now(), 2);
              b->ring->CancelTimer(cancelled);
              for (uint64_t i = 0; i < 8; ++i) lane->Post(i);
              PollB();
              b->ring->Wake();
              PollB();
              b->ring->Arm();
              b->ring->Wait(completions, 64, sizeof(Completion), base::Nanoseconds(0));
            }),
            0);
  EXPECT_GE(Got(Kind::kPosted), 8u * kRounds);
  EXPECT_GE(Got(Kind::kTimer), uint64_t{kRounds});
}

TEST_F(AllocationsTest, BuffersGoAndComeBackWithoutAllocations) {
  b->OpenSocket({.local = {kB, 7000}});
  packet::Buffer* held = nullptr;
  EXPECT_EQ(Steady(kRounds, [&] {
              SendToB(client, 64);
              packet::Buffer* own = a->ring->AcquireBuffer();
              if (SendToB(client, 64) == SendResult::kSent) packet::BufferPool::Release(own);
              PollA();
              const uint32_t count = b->ring->Poll(completions, 64, sizeof(Completion));
              for (uint32_t i = 0; i < count; ++i) {
                if (held != nullptr) packet::BufferPool::ReleaseChain(held);
                held = completions[i].buffer;
              }
            }),
            0);
  // Released by another thread, taken back by the owner.
  std::thread([&held] { packet::BufferPool::Release(held); }).join();
  EXPECT_EQ(Steady(1, [&] {
              SendToB(client, 64);
              PollB();
            }),
            0);
}

class AllocationsOfChainsTest : public AllocationsTest {
 protected:
  AllocationsOfChainsTest() : AllocationsTest({.fragments = Fragments::kOwn}) {}
};

TEST_F(AllocationsOfChainsTest, FragmentsAndReassemblyAllocateNothing) {
  b->OpenSocket({.local = {kB, 7000}});
  EXPECT_EQ(Steady(kRounds, [&] {
              SendToB(client, 16'000, {.flags = kSendWantDone});
              PollA();
              PollB();
            }),
            0);
  EXPECT_GE(Got(Kind::kPacket), uint64_t{kRounds} - 1);
}

}  // namespace
}  // namespace xtreme::engine::testing
