// SPDX-License-Identifier: Apache-2.0
//
// Prepared sends: built ahead, patched, fired once, cancelled, armed again; by the owner and by
// another thread's lane.

#include "xtreme/engine/prepared_sends.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "stack/wire/frame.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

class PreparedSendsTest : public RingTest {
 protected:
  static std::span<const uint8_t> Bytes(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }
  Handle Prepare(Handle socket, std::string_view payload) {
    Handle prepared = 0;
    const Outcome outcome = ring->udp().PrepareSend(socket, Bytes(payload), &prepared);
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    return prepared;
  }
  SendResult Fire(Handle prepared, SendOptions with = {}) {
    return engine::Fire(*ring->prepared().Find(prepared), with);
  }
  uint64_t CountOf(Handle socket, std::string_view counter) {
    uint64_t count = 0;
    ring->VisitSocketCounters(socket, [&](std::string_view, std::string_view name,
                                          std::string_view, uint64_t value) {
      if (name == counter) count = value;
    });
    return count;
  }
  // A started ring with a connected socket.
  Handle OpenConnected() {
    Open();
    const Handle socket = OpenSocket(7000);
    Connect(socket, kPeer);
    PollAll();
    return socket;
  }
  // The payloads that left, of frames that are whole and to the peer.
  std::vector<std::string> Sent() {
    std::vector<std::string> payloads;
    for (const SentFrame& frame : queue().sent()) {
      wire::UdpFrame parsed;
      EXPECT_EQ(wire::ParseUdpFrame(frame.bytes.data(), frame.bytes.size(), 3, &parsed),
                wire::FrameVerdict::kUdp);
      payloads.emplace_back(frame.bytes.begin() + parsed.payload_offset,
                            frame.bytes.begin() + parsed.payload_offset + parsed.payload_bytes);
    }
    return payloads;
  }
  using Strings = std::vector<std::string>;
};

TEST_F(PreparedSendsTest, IsTheSameFrameAsASendAndLeavesOnce) {
  const Handle socket = OpenConnected();
  ASSERT_EQ(Send(socket, "buy 100 at 17"), SendResult::kSent);
  const Handle order = Prepare(socket, "buy 100 at 17");
  EXPECT_EQ(queue().sent().size(), 1u);
  EXPECT_EQ(Fire(order), SendResult::kSent);
  ASSERT_EQ(queue().sent().size(), 2u);
  EXPECT_EQ(queue().sent()[1].bytes, queue().sent()[0].bytes);
  EXPECT_EQ(queue().sent()[1].flags, queue().sent()[0].flags);
  EXPECT_EQ(queue().visible(), 2u);
  EXPECT_EQ(Fire(order), SendResult::kRefusedState) << "an order does not leave twice";
  EXPECT_EQ(queue().sent().size(), 2u);
  EXPECT_EQ(CountOf(socket, "sent"), 2u);
  EXPECT_EQ(CountOf(socket, "sent_bytes"), 26u);
  EXPECT_EQ(ring->udp().Find(socket)->sends.refused, 1u);
}

TEST_F(PreparedSendsTest, EachFireIsCountedOnceWhoeverLooksAndWhen) {
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  PreparedSends& sends = ring->prepared();
  EXPECT_EQ(CountOf(socket, "sent"), 0u);
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(CountOf(socket, "sent"), 1u);
  EXPECT_EQ(CountOf(socket, "sent"), 1u);
  ASSERT_TRUE(sends.Rearm(order).ok());
  EXPECT_EQ(CountOf(socket, "sent"), 1u) << "armed, not fired";
  EXPECT_EQ(Fire(order), SendResult::kSent);
  ASSERT_TRUE(sends.Rearm(order).ok());  // Nobody has looked meanwhile.
  ASSERT_TRUE(sends.Cancel(order).ok());
  EXPECT_EQ(CountOf(socket, "sent"), 2u) << "cancelled, it does not leave";
  ASSERT_TRUE(sends.Rearm(order).ok());
  EXPECT_EQ(Fire(order, {.flags = kSendWantDone}), SendResult::kSent);
  ASSERT_TRUE(sends.Cancel(order).ok());
  EXPECT_EQ(CountOf(socket, "sent"), 3u);
  ASSERT_TRUE(sends.Rearm(order).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  ASSERT_TRUE(sends.Discard(order).ok());
  EXPECT_EQ(CountOf(socket, "sent"), 4u);
  EXPECT_EQ(CountOf(socket, "sent_bytes"), 20u);
}

TEST_F(PreparedSendsTest, IsPatchedCancelledAndArmedAgain) {
  const Handle order = Prepare(OpenConnected(), "buy 100 at 17");
  PreparedSends& sends = ring->prepared();
  EXPECT_TRUE(sends.Patch(order, 11, Bytes("18")).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_TRUE(sends.Patch(order, 0, Bytes("bid")).ok());
  EXPECT_TRUE(sends.Rearm(order).ok());
  EXPECT_TRUE(sends.Cancel(order).ok());
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
  EXPECT_TRUE(sends.Rearm(order).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), (Strings{"buy 100 at 18", "bid 100 at 18"}));
  EXPECT_EQ(sends.Patch(order, 12, Bytes("19")).error, EINVAL) << "one byte beyond its end";
  EXPECT_EQ(sends.Patch(order, ~size_t{0}, Bytes("1")).error, EINVAL);
}

TEST_F(PreparedSendsTest, DiscardedOrOfAClosedSocketItIsGone) {
  const Handle socket = OpenConnected();
  const Handle first = Prepare(socket, "1"), second = Prepare(socket, "2");
  EXPECT_TRUE(ring->prepared().Discard(first).ok());
  EXPECT_EQ(ring->prepared().Find(first), nullptr);
  EXPECT_NE(ring->prepared().Find(second), nullptr);
  ring->udp().Close(socket, false);
  EXPECT_EQ(ring->prepared().Find(second), nullptr);
  for (const Outcome& outcome :
       {ring->prepared().Discard(first), ring->prepared().Cancel(second),
        ring->prepared().Rearm(second), ring->prepared().Patch(second, 0, {})}) {
    EXPECT_EQ(outcome.error, EBADF);
  }
}

TEST_F(PreparedSendsTest, WhatCannotBePreparedIsRefusedWithAReason) {
  Open();
  const Handle socket = OpenSocket(7000);
  Handle prepared;
  EXPECT_EQ(ring->udp().PrepareSend(socket, Bytes("x"), &prepared).error, ENOTCONN);
  EXPECT_EQ(ring->udp().PrepareSend(socket + 1, Bytes("x"), &prepared).error, EBADF);
  Connect(socket, kPeer);
  const std::vector<uint8_t> longest(65'507), longer(65'508);
  EXPECT_TRUE(ring->udp().PrepareSend(socket, longest, &prepared).ok());
  EXPECT_EQ(ring->udp().PrepareSend(socket, longer, &prepared).error, EMSGSIZE);
  for (uint32_t i = 1; i < PreparedSends::kMost; ++i) Prepare(socket, "x");
  EXPECT_EQ(ring->udp().PrepareSend(socket, Bytes("x"), &prepared).error, ENOBUFS);
}

TEST_F(PreparedSendsTest, FollowsTheNeighbourAndTheNewPeer) {
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  kernel->tables().neighbours[0].mac = wire::MacAddress({2, 0, 0, 0, 0, 9});
  kernel->Publish();
  Settle();
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(queue().sent()[0].bytes[5], 9) << "the MAC address of now";
  ring->prepared().Rearm(order);
  Connect(socket, {kPeer.address, 6000});
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(queue().sent()[1].bytes[37], 6000 & 0xff) << "the port of now";
}

TEST_F(PreparedSendsTest, WithoutANeighbourItIsRefusedAndStaysArmed) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 0).ok());
  const Handle order = Prepare(socket, "order");
  EXPECT_EQ(Fire(order), SendResult::kRefusedNeighbour) << "never queued";
  kernel->Answer(kStranger.address, wire::MacAddress({2, 0, 0, 0, 0, 77}));
  Settle();
  queue().sent().clear();
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), Strings{"order"});
}

TEST_F(PreparedSendsTest, TellsWhatIsWantedAndAWarmOneDoesNotCount) {
  const Handle order = Prepare(OpenConnected(), "order");
  EXPECT_EQ(Fire(order, {.flags = kWarm}), SendResult::kSent);
  EXPECT_NE(queue().sent()[0].flags & nic::kTxWarm, 0);
  EXPECT_EQ(Fire(order, {.flags = kSendWantDone | kSendWantWire, .cookie = 5}),
            SendResult::kSent);
  queue().CompleteSends(/*hw_clock=*/1'000);
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kTxWire, Kind::kTxDone}));
  EXPECT_EQ(told[0].cookie, 5u);
  EXPECT_EQ(told[0].hw_clock, 1'000u);
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
}

TEST_F(PreparedSendsTest, WithoutADoorbellItWaitsForTheFlush) {
  const Handle socket = OpenConnected();
  const Handle first = Prepare(socket, "1"), second = Prepare(socket, "2");
  EXPECT_EQ(Fire(first, {.flags = kNoDoorbell}), SendResult::kSent);
  EXPECT_EQ(queue().visible(), 0u);
  EXPECT_EQ(Fire(second, {.flags = kNoDoorbell}), SendResult::kSent);
  ring->Flush();
  EXPECT_EQ(queue().visible(), 2u);
  EXPECT_EQ(Sent(), (Strings{"1", "2"}));
}

TEST_F(PreparedSendsTest, LongOneIsCopiedWhenItIsFired) {
  const std::string datagram(1'000, 'l');
  const Handle order = Prepare(OpenConnected(), datagram);
  EXPECT_TRUE(ring->prepared().Patch(order, 999, Bytes("!")).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), Strings{datagram.substr(0, 999) + "!"});
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
}

TEST_F(PreparedSendsTest, FullQueueIsReapedOnceThenRefuses) {
  options.tx_queue_frames = 64;
  const Handle socket = OpenConnected();
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  const Handle order = Prepare(socket, "order");
  EXPECT_EQ(Fire(order), SendResult::kRefusedSqFull);
  queue().CompleteSends();
  EXPECT_EQ(Fire(order), SendResult::kSent) << "still armed";
}

// --- By another thread ---------------------------------------------------------------------------

TEST_F(PreparedSendsTest, AnotherThreadFiresThroughItsLane) {
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  const auto lane = ring->OpenLane();
  std::thread strategy([&] {
    EXPECT_EQ(lane->Post(1), 0);
    EXPECT_EQ(lane->Fire(order, /*cookie=*/31, kSendWantDone), 0);
    EXPECT_EQ(lane->Post(2), 0);
  });
  strategy.join();
  EXPECT_TRUE(queue().sent().empty());
  EXPECT_EQ(Kinds(PollAll()), (std::vector<Kind>{Kind::kPosted, Kind::kPosted}));
  EXPECT_EQ(Sent(), Strings{"order"});
  queue().CompleteSends();
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kTxDone});
  EXPECT_EQ(told[0].cookie, 31u);
  EXPECT_EQ(Counter("ring", "fired"), 1u);
  EXPECT_EQ(Counter("ring", "posted"), 2u);
}

TEST_F(PreparedSendsTest, RefusedFireOfAnotherThreadIsToldWithItsCookie) {
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  const auto lane = ring->OpenLane();
  ring->prepared().Cancel(order);
  ASSERT_EQ(lane->Fire(order, 7, kSendWantDone), 0);
  ASSERT_EQ(lane->Fire(order + 1, 8, 0), 0);
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kError, Kind::kTxDone, Kind::kError}));
  EXPECT_EQ(told[0].cookie, 7u);
  EXPECT_EQ(told[0].status, ECANCELED);
  EXPECT_EQ(told[0].socket, socket);
  EXPECT_EQ(told[1].status, ECANCELED);
  EXPECT_EQ(told[2].cookie, 8u);
  EXPECT_EQ(told[2].status, EBADF);
  EXPECT_TRUE(queue().sent().empty());
}

// What waits is filled in as it is handed out; this is written where it is read.
TEST_F(PreparedSendsTest, RefusedFireOfAnotherThreadHasItsSocketsUserData) {
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .user_data = 42});
  Connect(socket, kPeer);
  PollAll();
  const Handle order = Prepare(socket, "order");
  const auto lane = ring->OpenLane();
  ring->prepared().Cancel(order);
  ASSERT_EQ(lane->Post(1), 0);
  ASSERT_EQ(lane->Fire(order, 7, kSendWantDone), 0);
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kPosted, Kind::kError, Kind::kTxDone}));
  EXPECT_EQ(told[1].user_data, 42u);
  EXPECT_EQ(told[2].user_data, 42u);
}

TEST_F(PreparedSendsTest, FiresThatTellMoreThanThereIsRoomForLoseNothing) {
  options.completions = 64;
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  const auto lane = ring->OpenLane();
  ring->prepared().Cancel(order);
  constexpr uint64_t kFires = 60, kPosts = 60;
  for (uint64_t i = 0; i < kFires; ++i) ASSERT_EQ(lane->Fire(order, i, kSendWantDone), 0);
  for (uint64_t i = 0; i < kPosts; ++i) ASSERT_EQ(lane->Post(i), 0);
  std::map<Kind, uint64_t> told;
  for (const Completion& completion : PollAll(/*max=*/2)) {
    const uint64_t expected = told[completion.kind]++;
    const bool posted = completion.kind == Kind::kPosted;
    EXPECT_EQ(posted ? completion.value : completion.cookie, expected);
  }
  EXPECT_EQ(told, (std::map<Kind, uint64_t>{
                      {Kind::kError, kFires}, {Kind::kTxDone, kFires}, {Kind::kPosted, kPosts}}));
}

// What found no room is told before what its lane left behind it, also where the poll made room.
TEST_F(PreparedSendsTest, WhatAFireTellsLaterComesBeforeWhatFollowsIt) {
  options.completions = 64;
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  const auto lane = ring->OpenLane();
  ring->prepared().Cancel(order);
  // The first stands before the lane, and is told before there is less room.
  ASSERT_EQ(lane->Fire(order, 0, kSendWantDone), 0);
  ASSERT_EQ(lane->Post(1), 0);
  for (uint64_t i = 1; i <= 32; ++i) ASSERT_EQ(lane->Fire(order, i, kSendWantDone), 0);
  // In short elements, which nothing is written to directly.
  constexpr size_t kShort = 64;
  alignas(Completion) std::array<uint8_t, 128 * kShort> out;
  const auto kind_at = [&out](uint32_t i) { return static_cast<Kind>(out[i * kShort]); };
  ASSERT_EQ(ring->Poll(out.data(), 128, kShort), 66u);
  EXPECT_EQ(kind_at(65), Kind::kError);
  ASSERT_EQ(lane->Post(2), 0);
  for (const Kind expected : {Kind::kTxDone, Kind::kPosted}) {
    ASSERT_EQ(ring->Poll(out.data(), 128, kShort), 1u);
    EXPECT_EQ(kind_at(0), expected);
  }
}

TEST_F(PreparedSendsTest, IsPostedWhereItsCallerStandsOnlyInTheWorldItWasBuiltFor) {
  const Handle socket = OpenConnected();
  queue().TakeDirectPosts();
  ring->core().ChangeWorld();
  PreparedSends& sends = ring->prepared();
  const Handle order = Prepare(socket, "order");
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), (Strings{"order"}));
  EXPECT_EQ(queue().direct_posts(), 1u);
  ASSERT_TRUE(sends.Rearm(order).ok());
  ring->core().ChangeWorld();
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), (Strings{"order", "order"}));
  EXPECT_EQ(queue().direct_posts(), 1u) << "built anew";
}

// The versions of the world are more than the epochs of a queue.
TEST_F(PreparedSendsTest, NeitherIsItInAnotherWorldOfTheSameEpoch) {
  constexpr uint64_t kVersions = nic::TxFront::kVersions;
  const Handle socket = OpenConnected();
  queue().TakeDirectPosts();
  RingCore& core = ring->core();
  core.ChangeWorld();
  const Handle order = Prepare(socket, "order");
  const uint64_t then = core.host.routes_version;
  core.host.routes_version = kVersions - 1;
  core.ChangeWorld();
  core.host.routes_version = kVersions + then - 1;
  core.ChangeWorld();
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Sent(), (Strings{"order"}));
  EXPECT_EQ(queue().direct_posts(), 0u) << "built anew";
}

TEST_F(PreparedSendsTest, ALaneFiresNothingOfAnotherRing) {
  const Handle socket = OpenConnected();
  const Handle order = Prepare(socket, "order");
  const Handle of_another = order ^ uint64_t{1} << 48;
  const auto lane = ring->OpenLane();
  EXPECT_EQ(lane->Fire(of_another, 7, 0), EBADF);
  EXPECT_TRUE(PollAll().empty());
  EXPECT_TRUE(Sent().empty()) << "the send in the same place of this ring";
}

}  // namespace
}  // namespace xtreme::engine::testing
