// SPDX-License-Identifier: Apache-2.0
//
// Who may call a ring. Builds that check (XTREME_DEBUG: debug and the sanitizers') end the program
// at the first call of anybody else.

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

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
  };
  for (const auto& entry : entries) {
    EXPECT_DEATH(OnAnotherThread(entry), "from another thread than its owner")
        << "entry " << &entry - entries;
  }
}

#endif  // XTREME_DEBUG

}  // namespace
}  // namespace xtreme::engine::testing
