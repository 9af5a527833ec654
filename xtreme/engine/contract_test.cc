// SPDX-License-Identifier: Apache-2.0
//
// Clauses of the completion contract about UDP that stand in no other test here, by name.

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <set>
#include <vector>

#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

using ContractTest = RingTest;

TEST_F(ContractTest, SendCloseOpenTimersAndReleaseAreAllowedWhileWalkingABatch) {
  Open();
  const Handle socket = OpenSocket(7000);
  const Handle other = OpenSocket(8000);
  Connect(socket, kPeer);
  for (int i = 0; i < 4; ++i) Inject({.source = kPeer, .payload = std::to_string(i)});
  const auto batch = PollAll();
  ASSERT_EQ(batch.size(), 4u);
  Release({batch[0]});
  EXPECT_EQ(Send(socket, "reply", {.flags = kSendWantDone, .cookie = 1}), SendResult::kSent);
  ASSERT_TRUE(ring->udp().Close(other, false).ok());
  Handle young = 0;
  ASSERT_TRUE(ring->udp().Open({.local = {{}, 8001}}, &young).ok());
  const Handle timer = ring->StartTimer(ring->Now() + base::Nanoseconds(10), 7);
  ASSERT_NE(timer, 0u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(Text(batch[i]), std::to_string(i));
  Release({batch[1], batch[2], batch[3]});
  queue().CompleteSends();
  now += 1'000;
  const auto kinds = Kinds(Settle());
  EXPECT_EQ(std::multiset<Kind>(kinds.begin(), kinds.end()),
            (std::multiset<Kind>{Kind::kTxDone, Kind::kTerminated, Kind::kOpDone, Kind::kTimer}));
}

TEST_F(ContractTest, ExactlyOneTxDonePerCookieBeforeTerminatedAlsoWhenTheQueueBreaks) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (uint64_t cookie = 1; cookie <= 5; ++cookie) {
    ASSERT_EQ(Send(socket, "x", {.flags = kSendWantDone, .cookie = cookie}), SendResult::kSent);
    if (cookie == 2) queue().CompleteSends();
  }
  queue().Break();
  ASSERT_TRUE(ring->udp().Close(socket, false).ok());
  std::vector<uint64_t> cookies;
  std::vector<int> statuses;
  Kind last = Kind::kNone;
  for (const Completion& completion : Settle()) {
    if (completion.kind == Kind::kTxDone) {
      cookies.push_back(completion.cookie);
      statuses.push_back(completion.status);
    }
    if (completion.socket == socket) last = completion.kind;
  }
  EXPECT_EQ(cookies, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, ECANCELED, ECANCELED, ECANCELED}));
  EXPECT_EQ(last, Kind::kTerminated);
}

TEST_F(ContractTest, ClockLostAndClockSyncedAreToldOnceEach) {
  Open();
  nic::DeviceClock clock{.host = ring->core().clock.device(), .ptp = {}};
  const host::TscConversion tsc = {};
  std::vector<RingEvent> events;
  for (const bool in_sync : {false, false, true, true}) {
    clock.host.in_sync = in_sync;
    ring->OnClock(clock, tsc);
    for (const Completion& completion : PollAll()) events.push_back(completion.event);
  }
  EXPECT_EQ(events, (std::vector<RingEvent>{RingEvent::kClockLost, RingEvent::kClockSynced}));
}

TEST_F(ContractTest, TheRingsFdIsReadableAtTheNextDeadline) {
  Open();
  ASSERT_NE(ring->StartTimer(ring->Now() + base::Milliseconds(1), 3), 0u);
  ASSERT_TRUE(ring->Arm());
  now += 2'000'000;
  pollfd ready{.fd = ring->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, 10'000), 1);
  const auto fired = PollAll();
  ASSERT_EQ(Kinds(fired), std::vector<Kind>{Kind::kTimer});
  EXPECT_EQ(fired[0].cookie, 3u);
  EXPECT_EQ(fired[0].late_ns, 1'000'000u);
}

TEST_F(ContractTest, EveryRefusalHasAReasonThatWouldSendTellsToo) {
  options.neighbour_queue = 0;
  Open(/*start=*/false);
  const Handle socket = OpenSocket(7000);
  const auto would = [&](size_t length) {
    return ring->udp().WouldSend(ring->udp().Find(socket), length);
  };
  EXPECT_EQ(Send(socket, "x"), SendResult::kRefusedState);  // Not connected.
  EXPECT_EQ(would(1), SendResult::kRefusedState);
  Connect(socket, kPeer);
  EXPECT_EQ(Send(socket, "x"), SendResult::kRefusedState);  // Not started.
  EXPECT_EQ(would(1), SendResult::kRefusedState);
  ASSERT_TRUE(ring->Start().ok());
  EXPECT_EQ(Send(socket, "x"), SendResult::kSent);
  EXPECT_EQ(would(1), SendResult::kSent);
  EXPECT_EQ(Send(socket, std::string(70'000, 'x')), SendResult::kRefusedSize);
  EXPECT_EQ(would(70'000), SendResult::kRefusedSize);
  EXPECT_EQ(ring->udp().SendTo(ring->udp().Find(socket), kStranger, {}, {}),
            SendResult::kRefusedNeighbour);
  EXPECT_EQ(Counter("ring", "refused_state"), 2u);
  EXPECT_EQ(Counter("ring", "refused_size"), 1u);
  EXPECT_EQ(Counter("ring", "refused_neighbour"), 1u);
}

TEST_F(ContractTest, ReceivedPayloadIsWritableOnlyWhereTheFlagsSayItsHolderIsAlone) {
  Open();
  OpenSocket({.local = {{}, 7000}, .reuse = true});
  const Handle a = OpenSocket({.local = {{}, 9000}, .reuse = true});
  const Handle b = OpenSocket({.local = {{}, 9000}, .reuse = true});
  Join(a, kGroup);
  Join(b, kGroup);
  Inject({.payload = "alone"});
  Inject({.destination = {kGroup, 9000}, .payload = "shared"});
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].flags & kShared, 0);
  EXPECT_NE(got[1].flags & kShared, 0);
  EXPECT_NE(got[2].flags & kShared, 0);
  EXPECT_EQ(got[1].buffer, got[2].buffer);
  Release(got);
}

}  // namespace
}  // namespace xtreme::engine::testing
