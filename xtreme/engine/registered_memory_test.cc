// SPDX-License-Identifier: Apache-2.0
//
// Memory of the application: how long the NIC and the ring keep a region.

#include "xtreme/engine/registered_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

using packet::BufferPool;

class RegisteredMemoryTest : public RingTest {
 protected:
  MemoryRequest Request() {
    return {.start = bytes_.data(),
            .bytes = bytes_.size(),
            .released = [](void* count, void*) { ++*static_cast<int*>(count); },
            .context = &released_,
            .cookie = 7};
  }
  packet::Buffer* Register() {
    packet::Buffer* buffer = nullptr;
    const Outcome outcome = ring->RegisterMemory(Request(), &buffer);
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    return buffer;
  }

  std::array<uint8_t, 4096> bytes_{};
  int released_ = 0;
};

TEST_F(RegisteredMemoryTest, TheNicLetsGoOfARegionThatIsReleased) {
  Open();
  packet::Buffer* const buffer = Register();
  const auto done = Settle();
  ASSERT_EQ(Kinds(done), std::vector{Kind::kOpDone});
  EXPECT_EQ(done[0].status, 0);
  EXPECT_EQ(done[0].cookie, 7u);
  EXPECT_EQ(nic->registered(), 1);

  BufferPool::Release(buffer);
  EXPECT_EQ(released_, 0);  // The NIC still knows it.
  Settle();
  EXPECT_EQ(nic->registered(), 0);
  EXPECT_EQ(released_, 1);
}

// Nothing else is sent, and nothing is to be told: neither asks the device for a completion.
TEST_F(RegisteredMemoryTest, WhatWasSentOfItIsLetGoAsItHasLeft) {
  options.signal_every = 32;
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  int count = 0;
  // One frame; behind another one without a doorbell; and in fragments.
  for (const size_t length : {600, 601, 3'000}) {
    packet::Buffer* const buffer = Register();
    Settle();
    const uint32_t flags = length == 601 ? uint32_t{kNoDoorbell} : 0;
    const Payload payload{.data = bytes_.data(), .length = length, .buffer = buffer};
    UdpSocket* const sender = ring->udp().Find(socket);
    ASSERT_EQ(ring->udp().Send(sender, payload, {.flags = flags}), SendResult::kSent) << length;
    ring->Flush();
    Settle();
    EXPECT_EQ(released_, count) << "the device may be reading it";
    queue().CompleteSends();
    EXPECT_TRUE(Settle().empty());
    Settle();
    EXPECT_EQ(released_, ++count) << length;
  }
  ASSERT_TRUE(ring->udp().Close(socket, /*detach=*/false).ok());
  EXPECT_EQ(Kinds(Settle()), std::vector{Kind::kTerminated});
}

TEST_F(RegisteredMemoryTest, OneThatIsReleasedBeforeItIsKnownIsLetGoToo) {
  Open();
  BufferPool::Release(Register());
  const auto done = Settle();
  EXPECT_EQ(Kinds(done), std::vector{Kind::kOpDone});
  EXPECT_EQ(nic->registered(), 0);
  EXPECT_EQ(released_, 1);
}

TEST_F(RegisteredMemoryTest, WhatIsReleasedMakesRoomForAnother) {
  Open();
  std::vector<packet::Buffer*> held;
  for (uint32_t i = 0; i < RegisteredMemory::kMaxRegions; ++i) held.push_back(Register());
  packet::Buffer* one_more = nullptr;
  EXPECT_EQ(ring->RegisterMemory(Request(), &one_more).error, ENOBUFS);
  Settle();

  BufferPool::Release(held.back());
  Settle();
  held.back() = Register();
  Settle();
  EXPECT_EQ(nic->registered(), static_cast<int>(RegisteredMemory::kMaxRegions));
  for (packet::Buffer* const buffer : held) BufferPool::Release(buffer);
  Settle();
  EXPECT_EQ(nic->registered(), 0);
  EXPECT_EQ(released_, static_cast<int>(RegisteredMemory::kMaxRegions) + 1);
}

TEST_F(RegisteredMemoryTest, WhatIsHeldOutlivesTheRing) {
  Open();
  packet::Buffer* const buffer = Register();
  Settle();
  ring.reset();
  engine->control().RunAndWait([] {});
  EXPECT_EQ(released_, 0);
  BufferPool::Release(buffer);
  EXPECT_EQ(released_, 1);
}

// The owner has not looked yet at what another thread returned.
TEST_F(RegisteredMemoryTest, AsTheRingClosesTheNicLetsGoBeforeWhatWasJustReleasedIsTold) {
  Open();
  struct End {
    const MemoryNic* nic;
    int times = 0, known = -1;
  } end{nic};
  MemoryRequest request = Request();
  request.context = &end;
  request.released = [](void* context, void*) {
    End& told = *static_cast<End*>(context);
    ++told.times;
    told.known = told.nic->registered();
  };
  packet::Buffer* buffer = nullptr;
  ASSERT_TRUE(ring->RegisterMemory(request, &buffer).ok());
  Settle();
  BufferPool::AddReferenceByForeign(buffer);
  BufferPool::Release(buffer);
  BufferPool::ReleaseByForeign(buffer);
  ring.reset();
  engine->control().RunAndWait([] {});
  EXPECT_EQ(end.times, 1);
  EXPECT_EQ(end.known, 0);
}

}  // namespace
}  // namespace xtreme::engine::testing
