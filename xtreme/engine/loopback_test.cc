// SPDX-License-Identifier: Apache-2.0
//
// Software loopback: own multicast to the listeners of the process, on this ring and on others.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class LoopbackTest : public RingTest {
 protected:
  ~LoopbackTest() override { other.reset(); }

  // Two rings of one engine on one port; `other` has a member of kGroup.
  void OpenBoth() {
    Open();
    auto opened = Ring::Open(engine.get(), options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    other = *std::move(opened);
    ASSERT_TRUE(other->Start().ok());
    ASSERT_TRUE(other->udp().Open({.local = {{}, 7000}, .reuse = true}, &listener).ok());
    JoinOther(listener);
  }
  void JoinOther(Handle socket) {
    ASSERT_TRUE(other->udp().Join(socket, {kGroup, 0}, std::nullopt, 0, 1).ok());
    SettleOther();
    Settle();
  }
  std::vector<Completion> SettleOther() {
    engine->control().RunAndWait([] {});
    return PollOther();
  }
  std::vector<Completion> PollOther() {
    std::vector<Completion> all;
    Completion completion;
    while (other->Poll(&completion, 1, sizeof(completion)) == 1) all.push_back(completion);
    return all;
  }
  Handle OpenSender(bool loop) {
    const Handle sender = OpenSocket({.local = {{}, 9000}, .multicast_loop = loop});
    Connect(sender, {kGroup, 7000});
    return sender;
  }
  uint64_t OtherCounter(std::string_view name) {
    uint64_t found = ~uint64_t{0};
    other->VisitCounters([&](std::string_view, std::string_view called, std::string_view,
                             uint64_t value) {
      if (called == name) found = value;
    });
    return found;
  }

  std::unique_ptr<Ring> other;
  Handle listener = 0;
};

TEST_F(LoopbackTest, AnotherRingThatJoinedGetsACopyInItsOwnPool) {
  OpenBoth();
  const Handle sender = OpenSender(true);
  EXPECT_EQ(Send(sender, "hello"), SendResult::kSent);
  const uint32_t lent = ring->core().device.pool->free_count();
  const auto got = PollOther();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket});
  EXPECT_EQ(Text(got[0]), "hello");
  EXPECT_EQ(got[0].socket, listener);
  EXPECT_EQ(got[0].flags, kLoopback | kMulticast);
  EXPECT_EQ(got[0].source_port, 9000);
  EXPECT_EQ(got[0].buffer->pool, other->core().device.pool.get());
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(ring->core().device.pool->free_count(), lent + 1);
  Release(got);
}

TEST_F(LoopbackTest, OnlyWhereItIsAskedFor) {
  OpenBoth();
  const Handle sender = OpenSender(false);
  EXPECT_EQ(Send(sender, "x"), SendResult::kSent);
  EXPECT_TRUE(PollOther().empty());
}

TEST_F(LoopbackTest, ARingOpenedOrJoinedLaterIsToldOfByAllAndNoMoreOnceItLeft) {
  OpenBoth();
  const Handle sender = OpenSender(true);
  const Handle second = [&] {
    Handle handle = 0;
    EXPECT_TRUE(other->udp().Open({.local = {{}, 7000}, .reuse = true}, &handle).ok());
    JoinOther(handle);
    return handle;
  }();
  Send(sender, "both");
  auto got = PollOther();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].buffer, got[1].buffer);
  EXPECT_NE(got[0].flags & kShared, 0);
  Release(got);
  other->udp().Close(second, false);
  SettleOther();
  Settle();
  Send(sender, "one");
  got = PollOther();
  EXPECT_EQ(got.size(), 1u);
  Release(got);
  other->udp().Close(listener, false);
  SettleOther();
  Settle();
  Send(sender, "none");
  EXPECT_TRUE(PollOther().empty());
  EXPECT_EQ(OtherCounter("loopback"), 3u);
}

TEST_F(LoopbackTest, ARingThatIsToldOnOpeningReachesThoseThatWereThere) {
  Open();
  const Handle here = OpenSocket(7000);
  Join(here, kGroup);
  auto opened = Ring::Open(engine.get(), options);
  ASSERT_TRUE(opened.ok());
  other = *std::move(opened);
  ASSERT_TRUE(other->Start().ok());
  Handle sender = 0;
  ASSERT_TRUE(other->udp().Open({.local = {{}, 9000}, .multicast_loop = true}, &sender).ok());
  SettleOther();
  const uint8_t byte = 'l';
  EXPECT_EQ(other->udp().SendTo(other->udp().Find(sender), {kGroup, 7000},
                                {.data = &byte, .length = 1}, {}),
            SendResult::kSent);
  const auto got = PollAll();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket});
  EXPECT_EQ(got[0].socket, here);
  Release(got);
}

TEST_F(LoopbackTest, WhatASlowRingDoesNotTakeIsCountedAndTheSenderGoesOn) {
  options.rx_buffers = 1'024;
  OpenBoth();
  const Handle sender = OpenSender(true);
  for (uint32_t i = 0; i < LoopbackQueue::kCapacity + 3; ++i) {
    ASSERT_EQ(Send(sender, "x", {.flags = kNoDoorbell}), SendResult::kSent);
    queue().CompleteSends();
    Release(PollAll());
  }
  EXPECT_EQ(Counter("drop", "loopback_full"), 3u);
  size_t taken = 0;
  for (auto got = PollOther(); !got.empty(); got = PollOther()) {
    taken += got.size();
    Release(got);
  }
  EXPECT_EQ(taken, LoopbackQueue::kCapacity);
}

TEST_F(LoopbackTest, WhatNobodyTookGoesBackToTheSendersPoolWhenTheRingCloses) {
  OpenBoth();
  const Handle sender = OpenSender(true);
  const uint32_t before = ring->core().device.pool->free_count();
  Send(sender, "x");
  other.reset();
  Settle();
  Settle();
  // What another thread released comes back with a poll that has something to do.
  ring->Wake();
  PollAll();
  EXPECT_EQ(ring->core().device.pool->free_count(), before);
}

TEST_F(LoopbackTest, ADatagramInFragmentsIsLoopedWhole) {
  OpenBoth();
  const Handle sender = OpenSender(true);
  const std::string large(5'000, 'L');
  EXPECT_EQ(Send(sender, large), SendResult::kSent);
  const auto got = PollOther();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].length, 5'000u);
  EXPECT_EQ(got[0].flags, kLoopback | kMulticast | kChained);
  Release(got);
}

TEST_F(LoopbackTest, ARingOnAnotherThreadGetsEveryDatagramInOrder) {
  options.rx_buffers = 1'024;
  OpenBoth();
  const Handle sender = OpenSender(true);
  constexpr uint32_t kCount = 2'000;
  std::atomic<uint32_t> taken{0};
  bool ordered = true;
  std::thread receiver([&] {
    other->Adopt();
    while (taken < kCount) {
      for (const Completion& completion : PollOther()) {
        ordered &= Text(completion) == std::to_string(taken.load());
        packet::BufferPool::ReleaseChain(completion.buffer);
        ++taken;
      }
    }
  });
  for (uint32_t i = 0; i < kCount; ++i) {
    while (i - taken >= 128) std::this_thread::yield();
    EXPECT_EQ(Send(sender, std::to_string(i)), SendResult::kSent);
    queue().CompleteSends();
    PollOnce();
  }
  receiver.join();
  other->Adopt();
  EXPECT_TRUE(ordered);
}

}  // namespace
}  // namespace xtreme::engine::testing
