// SPDX-License-Identifier: Apache-2.0
//
// Who may call a ring. Builds that check (XTREME_DEBUG: debug and the sanitizers') end the program
// at the first call of anybody else.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_group.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

using OwnerTest = RingTest;

void OnAnotherThread(const std::function<void()>& act) { std::thread(act).join(); }

TEST_F(OwnerTest, TheOwnerIsWhoOpenedTheRingUntilAnotherAdoptsIt) {
  Open();
  Ring* rings[] = {ring.get()};
  auto group = RingGroup::Create(rings);
  ASSERT_TRUE(group.ok());
  EXPECT_TRUE(ring->OwnedByThisThread());
  OnAnotherThread([&] {
    EXPECT_FALSE(ring->OwnedByThisThread());
    EXPECT_FALSE((*group)->OwnedByThisThread());
    ring->Adopt();
    EXPECT_TRUE(ring->OwnedByThisThread());
    EXPECT_TRUE((*group)->OwnedByThisThread());
  });
  EXPECT_FALSE(ring->OwnedByThisThread());
  ring->Adopt();
}

TEST_F(OwnerTest, ReleasingPostingAndWakingAreForAnyThread) {
  Open();
  OpenSocket(7000);
  Inject({.payload = "x"});
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  const auto lane = ring->OpenLane();
  OnAnotherThread([&] {
    Release(got);
    lane->Post(1);
    ring->Wake();
  });
  EXPECT_EQ(Kinds(PollAll()), std::vector<Kind>{Kind::kPosted});
}

TEST_F(OwnerTest, OtherThreadsReleaseWhileTheOwnerPollsAndNothingIsLost) {
  Open();
  OpenSocket(7000);
  const packet::BufferPool& pool = *ring->core().device.pool;
  const uint32_t before = pool.free_count() + queue().posted();
  constexpr int kPackets = 4'000;
  std::mutex mutex;
  std::vector<packet::Buffer*> handed_over;
  std::atomic<int> released{0};
  const auto release = [&] {
    while (released < kPackets) {
      std::vector<packet::Buffer*> taken;
      {
        const std::lock_guard lock(mutex);
        taken.swap(handed_over);
      }
      for (packet::Buffer* buffer : taken) packet::BufferPool::Release(buffer);
      released += static_cast<int>(taken.size());
      if (taken.empty()) std::this_thread::yield();
    }
  };
  std::thread first(release);
  std::thread second(release);
  for (int injected = 0, received = 0; received < kPackets;) {
    while (injected < kPackets && queue().posted() > 0) injected += Inject({});
    const auto got = PollOnce();
    for (const Completion& packet : got) {
      if (packet.kind != Kind::kPacket) continue;
      ++received;
      const std::lock_guard lock(mutex);
      handed_over.push_back(packet.buffer);
    }
    if (got.empty()) ring->Wake();  // The next poll looks at what came back.
  }
  first.join();
  second.join();
  ring->Wake();
  PollAll();
  EXPECT_EQ(pool.free_count() + queue().posted(), before);
  EXPECT_GT(Counter("pool", "foreign_returns"), 0u);
}

#if XTREME_DEBUG

TEST_F(OwnerTest, EveryOtherCallOfAnotherThreadEndsACheckedBuild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Udp& udp = ring->udp();
  UdpSocket* found = udp.Find(socket);
  const uint8_t byte = 'x';
  const Payload payload{.data = &byte, .length = 1};
  Completion completion;
  SendResult last;
  Handle handle;
  const std::function<void()> entries[] = {
      [&] { ring->Poll(&completion, 1, sizeof(completion)); },
      [&] { ring->More(); },
      [&] { ring->Arm(); },
      [&] { ring->Wait(&completion, 1, sizeof(completion), base::Nanoseconds(0)); },
      [&] { ring->Flush(); },
      [&] { ring->StartTimer(base::Nanoseconds(1), 1); },
      [&] { ring->CancelTimer(1); },
      [&] { ring->OpenLane(); },
      [&] { ring->Watch(0, 1); },
      [&] { ring->AcquireBuffer(); },
      [&] { ring->VisitCounters([](auto...) {}); },
      [&] { ring->VisitSocketCounters(socket, [](auto...) {}); },
      [&] { ring->Start().IgnoreError(); },
      [&] { ring.reset(); },
      [&] { udp.Open({.local = {{}, 7001}}, &handle); },
      [&] { udp.SetUserData(socket, 1); },
      [&] { udp.Close(socket, false); },
      [&] { udp.Join(socket, {kGroup, 0}, std::nullopt, 0, 1); },
      [&] { udp.Leave(socket, {kGroup, 0}, std::nullopt, 1); },
      [&] { udp.Connect(socket, kPeer, 1); },
      [&] { udp.Send(found, payload, {}); },
      [&] { udp.SendTo(found, kPeer, payload, {}); },
      [&] { udp.SendBurst(found, {}, 0, &last); },
      [&] { udp.WouldSend(found, 1); },
      [&] { udp.PrepareSend(socket, {}, &handle); },
      [&] { ring->prepared().Patch(1, 0, {}); },
      [&] { ring->prepared().Rearm(1); },
      [&] { ring->prepared().Cancel(1); },
      [&] { ring->prepared().Discard(1); },
      [&] { ring->Reset(1); },
  };
  for (const auto& entry : entries) {
    EXPECT_DEATH(OnAnotherThread(entry), "from another thread than its owner")
        << "entry " << &entry - entries;
  }
}

#endif  // XTREME_DEBUG

}  // namespace
}  // namespace xtreme::engine::testing
