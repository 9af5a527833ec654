// SPDX-License-Identifier: Apache-2.0
//
// Trouble, each told at its place with its cause; and a ring that comes back from it with its
// sockets, rules and memberships.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

class RingResetTest : public RingTest {
 protected:
  // Resets and waits; the OP_DONE.
  Completion Reset(uint64_t cookie = 77) {
    const Outcome started = ring->Reset(cookie);
    EXPECT_TRUE(started.ok()) << started.text;
    for (const Completion& completion : Settle()) {
      if (completion.kind == Kind::kOpDone && completion.cookie == cookie) return completion;
    }
    ADD_FAILURE() << "no OP_DONE";
    return {};
  }
  static std::vector<RingEvent> Events(const std::vector<Completion>& completions) {
    std::vector<RingEvent> events;
    for (const Completion& completion : completions) {
      if (completion.kind == Kind::kRing) events.push_back(completion.event);
    }
    return events;
  }
  static std::string PayloadOf(const SentFrame& frame) {
    return std::string(frame.bytes.begin() + 42, frame.bytes.end());
  }
  MemoryQueuePair& fresh() { return *nic->queue(1); }
};

TEST_F(RingResetTest, PacketsBeforeTheBreakAreHandedOutBeforeIt) {
  Open();
  OpenSocket(7000);
  ASSERT_TRUE(Inject({.payload = "1"}));
  ASSERT_TRUE(Inject({.payload = "2"}));
  queue().Break();
  auto told = PollOnce();
  for (const Completion& next : PollOnce()) told.push_back(next);
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kPacket, Kind::kPacket, Kind::kRing}));
  EXPECT_EQ(told[2].event, RingEvent::kBroken);
  EXPECT_STREQ(told[2].text, "local protection error");
  EXPECT_EQ(Counter("ring", "queues_stopped"), 1u);
  Release({told[0], told[1]});
}

TEST_F(RingResetTest, ASendQueueThatStopsIsToldAlsoWhenNobodyWaitsForASend) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "nobody asks");
  queue().BreakSends();
  EXPECT_TRUE(PollAll().empty()) << "nobody looked yet";
  nic->PushEvent(nic::PortEvent::kQueueError);
  EXPECT_EQ(Events(Settle()), std::vector<RingEvent>{RingEvent::kBroken});
}

// As a card's queue is of which no frame was signalled lately.
TEST_F(RingResetTest, ASendQueueThatStopsIsToldAlsoWhenNoCompletionIsDue) {
  Open();
  ASSERT_TRUE(queue().SendIdle());
  queue().BreakSends();
  nic->PushEvent(nic::PortEvent::kQueueError);
  EXPECT_EQ(Events(Settle()), std::vector<RingEvent>{RingEvent::kBroken});
}

TEST_F(RingResetTest, ASendQueueThatStopsIsToldWithTheNextLookAtTheClockAtTheLatest) {
  Open();
  queue().BreakSends();
  ring->OnClock({.host = ring->core().clock.host(), .ptp = {}}, {});
  EXPECT_EQ(Events(PollAll()), std::vector<RingEvent>{RingEvent::kBroken});
}

TEST_F(RingResetTest, ASendThatFindsTheQueueStoppedMakesTheNextPollTellIt) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  queue().BreakSends();
  EXPECT_EQ(Send(socket, "x"), SendResult::kRefusedState);
  EXPECT_EQ(Events(PollAll()), std::vector<RingEvent>{RingEvent::kBroken});
}

TEST_F(RingResetTest, BringsBackReceivingSendingRulesAndMemberships) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const Handle group = OpenSocket(8000);
  Join(group, kGroup);
  const auto before = nic->rules();
  queue().Break();
  PollAll();
  EXPECT_EQ(Send(socket, "refused"), SendResult::kRefusedState);
  const Completion done = Reset();
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.socket, 0u);
  EXPECT_EQ(nic->rules().size(), before.size());
  EXPECT_EQ(Send(socket, "again"), SendResult::kSent);
  ASSERT_FALSE(fresh().sent().empty());
  EXPECT_EQ(PayloadOf(fresh().sent().back()), "again");
  EXPECT_EQ(nic->Deliver(MakeFrame({.source = kPeer, .payload = "unicast"})), 1);
  EXPECT_EQ(nic->Deliver(MakeFrame({.destination = {kGroup, 8000}, .payload = "group"})), 1);
  const auto told = PollAll();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kPacket, Kind::kPacket}));
  EXPECT_EQ(Text(told[0]), "unicast");
  EXPECT_EQ(told[0].socket, socket);
  EXPECT_NE(told[0].flags & kAfterDrop, 0);
  EXPECT_EQ(Text(told[1]), "group");
  EXPECT_EQ(told[1].socket, group);
  EXPECT_EQ(kernel->memberships().size(), 1u);
  EXPECT_EQ(Counter("ring", "resets"), 1u);
  Release(told);
}

TEST_F(RingResetTest, WhatHadComeBeforeItComesBeforeTimers) {
  for (const uint32_t max : {64, 1}) {
    ring.reset();
    engine.reset();
    Open();
    OpenSocket(7000);
    ASSERT_NE(ring->StartTimer(base::Nanoseconds(now + 1'000'000), 3), 0u);
    for (const char* payload : {"1", "2", "3"}) ASSERT_TRUE(Inject({.payload = payload}));
    ASSERT_TRUE(ring->Reset(5).ok());
    engine->control().RunAndWait([] {});
    now += 2'000'000;
    const auto told = PollAll(max);
    EXPECT_EQ(Kinds(told), (std::vector<Kind>{Kind::kOpDone, Kind::kPacket, Kind::kPacket,
                                              Kind::kPacket, Kind::kTimer}));
    Release(told);
  }
}

TEST_F(RingResetTest, ThatNothingIsPostedMeanwhileIsNoLowWater) {
  Open();
  const uint64_t low = Counter("queue", "rx_low_water");
  ASSERT_NE(low, 0u);
  ASSERT_TRUE(ring->Reset(5).ok());
  EXPECT_EQ(Counter("queue", "rx_low_water"), low);
  Settle();
  EXPECT_EQ(Counter("queue", "rx_low_water"), low);
}

TEST_F(RingResetTest, WhatCameBehindAFrameWithoutUseIsTakenToo) {
  Open();
  OpenSocket(7000);
  for (const char* payload : {"1", "2"}) {
    ASSERT_TRUE(Inject({.payload = payload}));
    queue().InjectTooLong();
    queue().InjectTooLong();
  }
  ASSERT_TRUE(Inject({.payload = "3"}));
  ASSERT_TRUE(ring->Reset(5).ok());
  const auto told = Settle();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kOpDone, Kind::kPacket, Kind::kPacket,
                                            Kind::kPacket}));
  for (size_t i = 1; i < told.size(); ++i) EXPECT_EQ(Text(told[i]), std::to_string(i));
  EXPECT_EQ(Counter("queue", "rx_too_long"), 4u);
  EXPECT_EQ(Counter("queue", "rx_frames"), 3u);
  Release(told);
}

TEST_F(RingResetTest, CountersGoOnWhereTheyWere) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (int i = 0; i < 3; ++i) Send(socket, "x");
  const uint64_t sent = Counter("queue", "tx_frames");
  Reset();
  EXPECT_GE(Counter("queue", "tx_frames"), sent);
  Reset(78);
  Send(socket, "x");
  EXPECT_GT(Counter("queue", "tx_frames"), sent);
}

TEST_F(RingResetTest, OfAWorkingRingCancelsWhatMayNotHaveLeftOnce) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const uint64_t free = Counter("pool", "free") + queue().posted();
  Send(socket, "done", {.flags = kSendWantDone, .cookie = 1});
  queue().CompleteSends();
  ASSERT_EQ(Kinds(PollAll()), std::vector<Kind>{Kind::kTxDone});
  Send(socket, std::string(1'000, 'l'), {.flags = kSendWantDone, .cookie = 2});
  ASSERT_TRUE(ring->Reset(5).ok());
  EXPECT_EQ(ring->Reset(6).error, EALREADY);
  EXPECT_EQ(Send(socket, "meanwhile"), SendResult::kRefusedState);
  const auto told = Settle();
  ASSERT_EQ(Kinds(told), (std::vector<Kind>{Kind::kOpDone, Kind::kTxDone}));
  EXPECT_EQ(told[1].cookie, 2u);
  EXPECT_EQ(told[1].status, ECANCELED);
  EXPECT_EQ(Counter("pool", "free") + fresh().posted(), free) << "no buffer was lost";
  Send(socket, "new", {.flags = kSendWantDone, .cookie = 3});
  fresh().CompleteSends();
  const auto later = PollAll();
  ASSERT_EQ(Kinds(later), std::vector<Kind>{Kind::kTxDone});
  EXPECT_EQ(later[0].cookie, 3u);
  EXPECT_EQ(later[0].status, 0);
}

// It leaves while the new queues are made, as what had its doorbell does.
TEST_F(RingResetTest, WhatWaitsForADoorbellIsRungForBeforeTheQueuesGo) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  ASSERT_EQ(Send(socket, "x", {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(queue().visible(), 0u);
  uint32_t visible = 0;
  nic->before_queues = [&] { visible = queue().visible(); };
  EXPECT_EQ(Reset().status, 0);
  EXPECT_EQ(visible, 1u);
}

// Of the ring's own queue, and of one with a rate.
TEST_F(RingResetTest, WhatHadLeftAndWasNotPolledForIsToldAsThat) {
  nic_options.rate_limit = true;
  Open();
  const nic::ClockConversion clock{.base_raw = 1'000, .base_ns = 50'000, .multiplier = 2,
                                   .in_sync = true};
  ring->OnClock({.host = clock, .ptp = {}}, {});
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const Handle paced = OpenSocket(7001);
  Connect(paced, kPeer);
  ASSERT_TRUE(ring->udp().SetRate(paced, {.bytes_per_second = 1'000'000}, 9).ok());
  ASSERT_EQ(Kinds(Settle()), std::vector<Kind>{Kind::kOpDone});
  for (const Handle sender : {socket, paced}) {
    EXPECT_EQ(Send(sender, "x", {.flags = kSendWantDone | kSendWantWire, .cookie = sender}),
              SendResult::kSent);
  }
  for (const size_t index : {0u, 1u}) nic->queue(index)->CompleteSends(/*hw_clock=*/1'500);
  ASSERT_TRUE(ring->Reset(5).ok());
  std::map<std::pair<Handle, Kind>, int> told;
  for (const Completion& completion : Settle()) {
    if (completion.socket == 0) continue;
    told[{completion.socket, completion.kind}] = completion.status;
    if (completion.kind != Kind::kTxWire) continue;
    EXPECT_EQ(completion.hw_time_ns, 51'000);
  }
  EXPECT_EQ(told, (std::map<std::pair<Handle, Kind>, int>{{{socket, Kind::kTxWire}, 0},
                                                          {{socket, Kind::kTxDone}, 0},
                                                          {{paced, Kind::kTxWire}, 0},
                                                          {{paced, Kind::kTxDone}, 0}}));
}

TEST_F(RingResetTest, PreparedSendsAreBuiltForTheNewQueues) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Handle order = 0;
  const std::string text = "order";
  queue().TakeDirectPosts();
  ASSERT_TRUE(ring->udp()
                  .PrepareSend(socket, {reinterpret_cast<const uint8_t*>(text.data()), 5}, &order)
                  .ok());
  const PreparedSend& prepared = *ring->prepared().Find(order);
  EXPECT_NE(prepared.front, nic::QueuePair::NoFront());
  ASSERT_TRUE(ring->Reset(1).ok());
  EXPECT_EQ(prepared.front, nic::QueuePair::NoFront()) << "its own is about to go";
  engine->control().RunAndWait([] {});
  PollAll();
  EXPECT_EQ(Fire(*ring->prepared().Find(order), {}), SendResult::kSent);
  EXPECT_EQ(PayloadOf(fresh().sent().back()), "order");
}

TEST_F(RingResetTest, WhenTheDeviceRefusesItSaysWhyAndMayBeTriedAgain) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  queue().Break();
  PollAll();
  nic->FailQueues(absl::ResourceExhaustedError("create QP: none left"));
  ASSERT_TRUE(ring->Reset(1).ok());
  engine->control().RunAndWait([] {});
  const auto refused = PollOnce();
  ASSERT_EQ(Kinds(refused), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(refused[0].status, ENOSPC);
  EXPECT_STREQ(refused[0].text, "create QP: none left");
  EXPECT_EQ(Send(socket, "x"), SendResult::kRefusedState);
  EXPECT_TRUE(PollAll().empty());
  nic->FailQueues(absl::OkStatus());
  EXPECT_EQ(Reset(2).status, 0);
  EXPECT_EQ(Send(socket, "x"), SendResult::kSent);
}

TEST_F(RingResetTest, ClosingARingThatIsBeingResetLeavesNothing) {
  Open();
  OpenSocket(7000);
  ASSERT_TRUE(ring->Reset(1).ok());
  ring.reset();
  engine.reset();  // The address sanitizer looks for what was left.
}

TEST_F(RingResetTest, WhatTellsTheBreakLivesUntilTheNextPollWhateverIsResetMeanwhile) {
  Open();
  OpenSocket(7000);
  queue().Break();
  const auto told = PollOnce();
  ASSERT_EQ(Events(told), std::vector<RingEvent>{RingEvent::kBroken});
  ASSERT_TRUE(ring->Reset(1).ok());
  engine->control().RunAndWait([] {});
  EXPECT_STREQ(told[0].text, "local protection error");
}

TEST_F(RingResetTest, WhatTellsTheBreakLivesAsLongAsThereIsNoRoomForIt) {
  options.completions = 64;
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  const auto lane = ring->OpenLane();
  for (uint64_t i = 0; i < 70; ++i) ASSERT_EQ(lane->Post(i), 0);
  auto told = PollOnce(1);
  queue().BreakSends();
  ASSERT_EQ(Send(socket, "x"), SendResult::kRefusedState);
  ASSERT_TRUE(PollOnce(0).empty()) << "it was seen, and there was no room";
  ASSERT_TRUE(ring->Reset(1).ok());
  engine->control().RunAndWait([] {});
  bool seen = false;
  for (int i = 0; i < 40 && !seen; ++i) {
    for (const Completion& next : PollOnce(3)) {
      if (next.kind != Kind::kRing) continue;
      EXPECT_STREQ(next.text, "local queue operation error");
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
}

// What waited for the neighbour takes all the room that there is.
TEST_F(RingResetTest, ItsEndWaitsForRoomBehindSendsThatFailWithIt) {
  options.completions = 64;
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 9).ok());
  for (const uint64_t cookie : {1, 2}) {
    ASSERT_EQ(Send(socket, "x", {.flags = kSendWantDone, .cookie = cookie}), SendResult::kQueued);
  }
  for (int i = 0; i < 29; ++i) {
    now += 100'000'000;
    ASSERT_TRUE(PollAll().empty());
  }
  const auto lane = ring->OpenLane();
  constexpr uint64_t kPosted = 70;
  for (uint64_t i = 0; i < kPosted; ++i) ASSERT_EQ(lane->Post(i), 0);
  auto told = PollOnce(1);
  now += 200'000'000;  // The next hop has not answered, and there was no room to say so.
  ASSERT_TRUE(ring->Reset(77).ok());
  engine->control().RunAndWait([] {});
  for (const uint32_t max : {2, 64, 64}) {
    for (const Completion& next : PollOnce(max)) told.push_back(next);
  }
  std::vector<uint64_t> posted;
  std::map<uint64_t, int> done;
  for (const Completion& completion : told) {
    if (completion.kind == Kind::kPosted) posted.push_back(completion.value);
    if (completion.kind == Kind::kOpDone) done[completion.cookie] = completion.status;
    if (completion.kind == Kind::kTxDone) done[completion.cookie] = completion.status;
  }
  std::vector<uint64_t> all(kPosted);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(posted, all);
  EXPECT_EQ(done, (std::map<uint64_t, int>{
                      {1, ECANCELED}, {2, ECANCELED}, {9, EHOSTUNREACH}, {77, 0}}));
}

TEST_F(RingResetTest, SendsThatAreFlushedBehindAnErrorOfTheReceiveQueueAreCancelled) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "left", {.flags = kSendWantDone, .cookie = 1});
  queue().CompleteSends();
  Send(socket, "flushed", {.flags = kSendWantDone, .cookie = 2});
  queue().Break();
  queue().CompleteSends();
  std::map<uint64_t, int> done;
  for (const Completion& completion : PollAll()) {
    if (completion.kind == Kind::kTxDone) done[completion.cookie] = completion.status;
  }
  EXPECT_EQ(done, (std::map<uint64_t, int>{{1, 0}, {2, ECANCELED}}));
}

TEST_F(RingResetTest, AQueueThatStoppedIsToldBeforeTheRingSleeps) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Send(socket, "x"), SendResult::kSent);
  queue().BreakSends();
  EXPECT_EQ(Send(socket, "x"), SendResult::kRefusedState);
  EXPECT_FALSE(ring->Arm());
  EXPECT_EQ(Events(PollAll()), std::vector<RingEvent>{RingEvent::kBroken});
}

TEST_F(RingResetTest, LossesAreToldBeforeTheRingSleeps) {
  Open();
  PollAll();
  ASSERT_TRUE(ring->Arm());
  ring->core().CountLoss(Drop::kLoopbackFull);
  EXPECT_FALSE(ring->Arm());
  EXPECT_EQ(Events(PollAll()), std::vector<RingEvent>{RingEvent::kDropped});
}

TEST_F(RingResetTest, TheMemoryOfAClosedRingStaysUntilItIsBuriedWhoeverHadItsBuffersLast) {
  static std::vector<uint8_t> memory;
  static std::atomic<bool> released;
  released = false;
  options.rx_buffers = 128;
  options.memory = {.allocate = [](void*, size_t bytes) -> void* {
                      memory.resize(bytes);
                      return memory.data();
                    },
                    .release = [](void*, void*) { released = true; }};
  Open(/*start=*/false);
  std::vector<packet::Buffer*> all;
  while (packet::Buffer* buffer = ring->AcquireBuffer()) all.push_back(buffer);
  const auto on_another_thread = [&all](auto act) {
    std::thread([&] { std::for_each(all.begin(), all.end(), act); }).join();
  };
  on_another_thread([](packet::Buffer* buffer) { packet::BufferPool::AddReference(buffer); });
  for (packet::Buffer* buffer : all) packet::BufferPool::Release(buffer);
  on_another_thread([](packet::Buffer* buffer) { packet::BufferPool::Release(buffer); });
  std::promise<void> gate;
  engine->control().StartNow(MakeOperation([&gate] { gate.get_future().wait(); }));
  ring.reset();
  EXPECT_FALSE(released);
  gate.set_value();
  engine->control().RunAndWait([] {});
  EXPECT_TRUE(released);
}

TEST_F(RingResetTest, AChangedMtuIsToldWithWhatItIsNow) {
  Open();
  kernel->tables().interfaces[0].mtu = 1'400;
  kernel->Publish();
  auto told = Settle();
  ASSERT_EQ(Events(told), std::vector<RingEvent>{RingEvent::kMtuChanged});
  EXPECT_EQ(told[0].count, 1'400u);
  EXPECT_EQ(told[0].text, nullptr);
  kernel->tables().interfaces[0].mtu = 9'000;
  kernel->Publish();
  told = Settle();
  ASSERT_EQ(Events(told), std::vector<RingEvent>{RingEvent::kMtuChanged});
  EXPECT_EQ(told[0].count, 9'000u);
  EXPECT_STREQ(told[0].text, "above the MTU that the ring was opened with");
  kernel->Publish();
  EXPECT_TRUE(Events(Settle()).empty());
}

TEST_F(RingResetTest, SendTimesSayWhatTheyAreTheTimeOfAndHowFarTheyMayBeOff) {
  for (const nic::TimeSource source : {nic::TimeSource::kCompletion, nic::TimeSource::kPort}) {
    ring.reset();
    engine.reset();
    nic_options.time = source;
    Open();
    const nic::ClockConversion clock{.base_raw = 1'000, .base_ns = 50'000, .multiplier = 2,
                                     .error_bound_ns = 30, .in_sync = true};
    nic->SetClock(clock);
    ring->OnClock({.host = clock, .ptp = {}}, {});
    const Handle socket = OpenSocket(7000);
    Connect(socket, kPeer);
    PollAll();
    Send(socket, "x", {.flags = kSendWantWire, .cookie = 1});
    queue().CompleteSends(/*hw_clock=*/1'500);
    const auto told = PollAll();
    ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kTxWire});
    EXPECT_EQ(told[0].hw_clock, 1'500u);
    EXPECT_EQ(told[0].hw_time_ns, 51'000);
    EXPECT_EQ(told[0].error_ns, 30u);
    EXPECT_NE(told[0].flags & kClockSynced, 0);
    EXPECT_EQ((told[0].flags & kPortTime) != 0, source == nic::TimeSource::kPort);
  }
}

}  // namespace
}  // namespace xtreme::engine::testing
