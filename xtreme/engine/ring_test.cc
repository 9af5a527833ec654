// SPDX-License-Identifier: Apache-2.0
//
// The completion contract, timers and the ring's own news; waiting.

#include "xtreme/engine/ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_group.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class RingContractTest : public RingTest {
 protected:
  static bool Readable(int fd, int timeout_ms = 0) {
    pollfd waited{.fd = fd, .events = POLLIN};
    return ::poll(&waited, 1, timeout_ms) == 1;
  }
  base::Nanoseconds Now() const { return base::Nanoseconds(static_cast<int64_t>(now.load())); }
};

TEST_F(RingContractTest, TimersAfterPackets) {
  Open();
  OpenSocket(7000);
  ASSERT_NE(ring->StartTimer(Now() + base::Microseconds(10), 99), 0u);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Inject({.payload = std::to_string(i)}));
  now += 20'000'000;  // A thread that stalled for 20 ms finds the packets before the timer.
  const auto got = PollAll(10);
  ASSERT_EQ(got.size(), 51u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(got[i].kind, Kind::kPacket);
  EXPECT_EQ(got[50].kind, Kind::kTimer);
  EXPECT_EQ(got[50].cookie, 99u);
  EXPECT_EQ(got[50].late_ns, 20'000'000u - 10'000u);
  Release(got);
}

TEST_F(RingContractTest, ThePollBehindOneThatBroughtPacketsLooksAtTimers) {
  Open();
  OpenSocket(7000);
  ASSERT_TRUE(Inject({}));
  Release(PollAll());  // The flow is known from here on.
  for (int i = 0; i < 20; ++i) {
    ASSERT_NE(ring->StartTimer(Now() + base::Microseconds(10), 99), 0u);
    now += 1'000'000;
    ASSERT_TRUE(Inject({}));
    std::vector<Completion> got = PollOnce(8);
    for (const Completion& completion : PollOnce(8)) got.push_back(completion);
    EXPECT_EQ(Kinds(got), (std::vector<Kind>{Kind::kPacket, Kind::kTimer})) << i;
    Release(got);
  }
}

TEST_F(RingContractTest, APollThatRefillsLeavesTimersToTheNextOneOnce) {
  Open();
  OpenSocket(7000);
  ASSERT_TRUE(Inject({}));
  Release(PollAll());  // The flow is known from here on.
  const auto poll_packet = [this](bool refills) {
    queue().SayThatRefillsAreDue(refills);
    EXPECT_TRUE(Inject({}));
    const std::vector<Completion> got = PollOnce(8);
    EXPECT_EQ(queue().posted(), options.rx_queue_frames);
    Release(got);
    return Kinds(got);
  };
  const std::vector<Kind> packet{Kind::kPacket}, timer{Kind::kTimer};
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NE(ring->StartTimer(Now() + base::Microseconds(10), 99), 0u);
    now += 1'000'000;
    EXPECT_EQ(poll_packet(/*refills=*/false), packet) << "leaves them to the next one";
    EXPECT_EQ(poll_packet(/*refills=*/true), packet) << "which gives buffers back";
    const bool busy = i % 2 == 0;
    const std::vector<Kind> third = busy ? poll_packet(/*refills=*/true) : Kinds(PollOnce(8));
    EXPECT_EQ(third, busy ? (std::vector{Kind::kPacket, Kind::kTimer}) : timer);
  }
}

TEST_F(RingContractTest, ATimerIsNotStarvedByPacketsThatNeverStop) {
  Open();
  OpenSocket(7000);
  for (const bool refills : {false, true}) {
    SCOPED_TRACE(refills);
    queue().SayThatRefillsAreDue(refills);
    ring->StartTimer(Now() + base::Microseconds(10), 99);
    now += 1'000'000;
    for (int i = 0; i < 32; ++i) Inject({});
    bool fired = false;
    uint32_t packets = 0;
    for (int round = 0; round < 40 && !fired; ++round) {
      for (int i = 0; i < 8; ++i) Inject({});
      const auto got = PollOnce(8);
      for (const Completion& completion : got) {
        fired |= completion.kind == Kind::kTimer;
        packets += completion.kind == Kind::kPacket;
      }
      Release(got);
    }
    EXPECT_TRUE(fired);
    // No more packets came between than the receive queue holds, and a poll's worth, or where polls
    // refill as much once more.
    EXPECT_LE(packets, options.rx_queue_frames + (refills ? 3 : 2) * 8);
    EXPECT_EQ(Counter("ring", "timers_forced"), refills ? 2u : 1u);
    Release(PollAll());
  }
}

TEST_F(RingContractTest, ACancelledTimerIsSilentAndItsHandleStale) {
  Open();
  const Handle timer = ring->StartTimer(Now() + base::Microseconds(10), 1);
  EXPECT_TRUE(ring->CancelTimer(timer).ok());
  EXPECT_EQ(ring->CancelTimer(timer).error, EBADF);
  now += 1'000'000;
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(RingContractTest, TimersFireInTheOrderOfTheirDeadlines) {
  Open();
  for (int i = 0; i < 5; ++i) {
    ring->StartTimer(Now() + base::Microseconds(100 - 10 * i), static_cast<uint64_t>(i));
  }
  now += 1'000'000;
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 5u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(got[i].cookie, 4 - i);
}

TEST_F(RingContractTest, WhatWasPostedHasTheTimeOfThePollThatSawIt) {
  Open();
  const auto lane = ring->OpenLane();
  for (int i = 0; i < 3; ++i) {
    now += 1'000'000;
    // One stands before the lane, one in it.
    ASSERT_EQ(lane->Post(1), 0);
    ASSERT_EQ(lane->Post(2), 0);
    const auto told = PollOnce();
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[0].poll_tsc, now.load());
    EXPECT_EQ(told[1].poll_tsc, now.load());
  }
}

TEST_F(RingContractTest, PostedValuesAreFifoPerSender) {
  Open();
  const auto lane = ring->OpenLane();
  ASSERT_NE(lane, nullptr);
  constexpr uint64_t kValues = 20'000;
  std::thread sender([&lane] {
    for (uint64_t i = 0; i < kValues;) {
      if (lane->Post(i) == 0) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  uint64_t expected = 0;
  while (expected < kValues) {
    for (const Completion& completion : PollOnce()) {
      ASSERT_EQ(completion.kind, Kind::kPosted);
      ASSERT_EQ(completion.value, expected++);
    }
  }
  sender.join();
  EXPECT_EQ(Counter("ring", "posted"), kValues);
}

// An entry in the mailbox and knocks of others do not hide each other; and what follows it in its
// lane, perhaps between two looks of one poll, comes behind it.
TEST_F(RingContractTest, LanesOfManyThreadsLoseNothing) {
  Open();
  constexpr uint64_t kThreads = 3, kValues = 4'000;  // A lane holds as many.
  std::vector<std::thread> senders;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    senders.emplace_back([this, thread, lane = ring->OpenLane()] {
      for (uint64_t i = 0; i < kValues; ++i) {
        if (i % 8 == thread) ring->Wake();
        EXPECT_EQ(lane->Post(thread << 32 | i), 0);
        if (i % 2 == 0) std::this_thread::yield();
      }
    });
  }
  std::array<uint64_t, kThreads> next{};
  uint64_t in_order = 0;
  for (uint64_t got = 0; got < kThreads * kValues;) {
    for (const Completion& completion : PollOnce()) {
      in_order += (completion.value & 0xffffffff) == next[completion.value >> 32]++;
      ++got;
    }
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(in_order, kThreads * kValues);
}

// The door of the mailbox is looked at first, and what stands there waits for what came before it.
class RingDoorTest : public RingContractTest {
 protected:
  static constexpr uint32_t kCompletions = 64;
  static constexpr uint64_t kEntry = 777;

  void SetUp() override {
    options.completions = kCompletions;
    Open();
    lane_ = ring->OpenLane();
  }
  static void PushNotices(Ring& ring, uint64_t notices) {
    for (uint64_t i = 0; i < notices; ++i) {
      ring.mailbox()->Push(MakeNotice([i](Ring& to) { to.core().Emit(Kind::kPosted)->value = i; }));
    }
  }
  // Until as many were handed out; one at a time.
  std::vector<Completion> Take(size_t count) {
    std::vector<Completion> all;
    for (size_t polls = 0; polls < 2 * count && all.size() < count; ++polls) {
      for (const Completion& one : PollOnce(/*max=*/1)) all.push_back(one);
    }
    return all;
  }
  void ExpectEntryLast(const std::vector<Completion>& told, size_t count) {
    ASSERT_EQ(told.size(), count);
    EXPECT_EQ(told.back().kind, Kind::kPosted);
    EXPECT_EQ(told.back().value, kEntry);
    EXPECT_EQ(told.front().kind, Kind::kPosted) << "which nothing was written over";
    EXPECT_EQ(told.front().value, 1u);
  }

  std::shared_ptr<RingLane> lane_;
};

TEST_F(RingDoorTest, AnEntryComesBehindNoticesThatWaitForRoom) {
  constexpr size_t kNotices = 100;
  PushNotices(*ring, kNotices);
  EXPECT_EQ(Take(1).size(), 1u);
  ASSERT_EQ(lane_->Post(kEntry), 0);
  ASSERT_TRUE(ring->mailbox()->HasEntry());
  ExpectEntryLast(Take(kNotices), kNotices);
}

TEST_F(RingDoorTest, AndWhatItsLaneHoldsBehindIt) {
  constexpr size_t kNotices = 100;
  PushNotices(*ring, kNotices);
  EXPECT_EQ(Take(1).size(), 1u);
  for (const uint64_t value : {kEntry, kEntry + 1}) ASSERT_EQ(lane_->Post(value), 0);
  ASSERT_TRUE(ring->mailbox()->HasEntry());
  const auto told = Take(kNotices + 1);
  ASSERT_EQ(told.size(), kNotices + 1);
  EXPECT_EQ(told[kNotices - 1].value, kEntry);
  EXPECT_EQ(told[kNotices].value, kEntry + 1);
}

TEST_F(RingDoorTest, AndWaitsForRoomItself) {
  PushNotices(*ring, kCompletions - 1);
  EXPECT_EQ(Take(1).size(), 1u);
  for (RingCore& core = ring->core(); core.fifo.Room() > 0;) core.Emit(Kind::kTimer);
  ASSERT_EQ(lane_->Post(kEntry), 0);
  ASSERT_TRUE(ring->mailbox()->HasEntry());
  ExpectEntryLast(Take(kCompletions + 1), kCompletions + 1);
}

TEST_F(RingDoorTest, AndBehindWhatIsRareAndFoundNoRoom) {
  PushNotices(*ring, kCompletions - 1);
  EXPECT_EQ(Take(1).size(), 1u);
  for (RingCore& core = ring->core(); core.fifo.Room() > 0;) core.Emit(Kind::kTimer);
  ring->OnPortEvent(nic::PortEvent::kLinkDown);
  ASSERT_EQ(lane_->Post(kEntry), 0);
  ASSERT_TRUE(ring->mailbox()->HasEntry());
  const auto told = Take(kCompletions + 2);
  ExpectEntryLast(told, kCompletions + 2);
  EXPECT_EQ(told[kCompletions].kind, Kind::kRing);
}

TEST_F(RingContractTest, AnOrderOfAnotherThreadWaitsForNoPackets) {
  Open();
  OpenSocket(7000);
  Inject({.payload = "x"});
  const auto lane = ring->OpenLane();
  EXPECT_EQ(lane->Post(1), 0);
  EXPECT_FALSE(ring->Arm());
  const auto got = PollAll();
  Release(got);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].kind, Kind::kPosted);
  EXPECT_EQ(got[1].kind, Kind::kPacket);
}

TEST_F(RingContractTest, ALaneOutlivesItsRing) {
  Open();
  const auto lane = ring->OpenLane();
  ring.reset();
  EXPECT_EQ(lane->Post(1), EPIPE);
}

TEST_F(RingContractTest, ArmReportsPendingWorkInsteadOfArming) {
  Open();
  OpenSocket(7000);
  Inject({.payload = "x"});
  EXPECT_FALSE(ring->Arm());
  Release(PollAll());
  EXPECT_TRUE(ring->Arm());
  EXPECT_FALSE(Readable(ring->fd()));
  Inject({.payload = "y"});
  EXPECT_TRUE(Readable(ring->fd()));
  Release(PollAll());
  EXPECT_TRUE(ring->Arm());
  EXPECT_FALSE(Readable(ring->fd()));
}

TEST_F(RingContractTest, WakeMakesTheFdReadable) {
  Open();
  ASSERT_TRUE(ring->Arm());
  EXPECT_FALSE(Readable(ring->fd()));
  std::thread waker([this] { ring->mailbox()->Knock(); });
  EXPECT_TRUE(Readable(ring->fd(), 10'000));
  waker.join();
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(RingContractTest, TheFdWorksInEpollBesideOthers) {
  Open();
  OpenSocket(7000);
  const int epoll = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u32 = 1}};
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, ring->fd(), &event), 0);
  ASSERT_TRUE(ring->Arm());
  EXPECT_EQ(epoll_wait(epoll, &event, 1, 0), 0);
  Inject({.payload = "x"});
  EXPECT_EQ(epoll_wait(epoll, &event, 1, 0), 1);
  Release(PollAll());
  close(epoll);
}

TEST_F(RingContractTest, WatchedFdsAreReportedOnceAndAgainWhenAsked) {
  Open();
  const int fd = eventfd(1, EFD_NONBLOCK);
  std::vector<Completion> got;
  ring->Watch(fd, EPOLLIN);
  while (got.empty()) got = Settle();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kFdEvent});
  EXPECT_EQ(got[0].fd, fd);
  EXPECT_EQ(got[0].events, uint64_t{EPOLLIN});
  EXPECT_TRUE(Settle().empty());
  ring->Watch(fd, EPOLLIN);
  got.clear();
  while (got.empty()) got = Settle();
  EXPECT_EQ(Kinds(got), std::vector<Kind>{Kind::kFdEvent});
  ring->Watch(fd, 0);
  Settle();
  close(fd);
}

TEST_F(RingContractTest, PoolLowAndPoolOkWithHysteresis) {
  options.rx_buffers = 128;
  Open();
  OpenSocket(7000);
  std::vector<Completion> held;
  int low = 0;
  for (int i = 0; i < 127; ++i) {
    if (!Inject({})) break;
    for (const Completion& completion : PollAll()) {
      if (completion.kind == Kind::kPacket) held.push_back(completion);
      if (completion.kind == Kind::kRing && completion.event == RingEvent::kPoolLow) ++low;
    }
  }
  EXPECT_EQ(low, 1);
  Release(held);
  const auto ok = PollAll();
  ASSERT_EQ(Kinds(ok), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(ok[0].event, RingEvent::kPoolOk);
}

TEST_F(RingContractTest, AnEmptyReceiveQueueIsReportedAndMarksTheNextPacket) {
  Open();
  OpenSocket(7000);
  for (uint32_t i = 0; i < options.rx_queue_frames; ++i) ASSERT_TRUE(Inject({}));
  EXPECT_FALSE(Inject({}));
  auto got = PollAll();
  uint32_t dropped = 0;
  for (const Completion& completion : got) {
    if (completion.kind != Kind::kRing) continue;
    EXPECT_EQ(completion.event, RingEvent::kDropped);
    EXPECT_EQ(completion.layer, static_cast<uint64_t>(Layer::kQueue));
    ++dropped;
  }
  EXPECT_EQ(dropped, 1u);
  Release(got);
}

TEST_F(RingContractTest, TheLeastNumberOfPostedBuffersIsCounted) {
  Open();
  OpenSocket(7000);
  EXPECT_EQ(Counter("queue", "rx_low_water"), options.rx_queue_frames);
  for (int i = 0; i < 10; ++i) Inject({});
  Release(PollAll());
  EXPECT_EQ(queue().posted(), options.rx_queue_frames);
  EXPECT_EQ(Counter("queue", "rx_low_water"), options.rx_queue_frames - 10);
}

TEST_F(RingContractTest, PortEventsAndClockChangesAreTold) {
  Open();
  nic->PushEvent(nic::PortEvent::kLinkDown);
  std::vector<Completion> got;
  while (got.empty()) got = Settle();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(got[0].event, RingEvent::kLinkDown);
  ring->OnClock({.host = {.in_sync = false}, .ptp = {}}, {});
  got = PollAll();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(got[0].event, RingEvent::kClockLost);
  EXPECT_EQ(ring->ClockError(), base::kNever);
  ring->OnClock({.host = {.error_bound_ns = 150, .in_sync = true}, .ptp = {}}, {});
  EXPECT_EQ(ring->ClockError(), base::Nanoseconds(150));
}

TEST_F(RingContractTest, TheKernelsNewsOfTheLinkAreToldOnceWhoeverNoticesFirst) {
  Open();
  const auto events = [](const std::vector<Completion>& got) {
    std::vector<RingEvent> events;
    for (const Completion& completion : got) events.push_back(completion.event);
    return events;
  };
  host::Interface& interface = kernel->tables().interfaces[0];
  interface.running = false;
  kernel->Publish();
  EXPECT_EQ(events(PollAll()), std::vector<RingEvent>{RingEvent::kLinkDown});
  ring->OnPortEvent(nic::PortEvent::kLinkDown);
  EXPECT_TRUE(PollAll().empty());
  interface.running = true;
  kernel->Publish();
  EXPECT_TRUE(PollAll().empty());  // The device still says that it is down.
  ring->OnPortEvent(nic::PortEvent::kLinkUp);
  EXPECT_EQ(events(PollAll()), std::vector<RingEvent>{RingEvent::kLinkUp});
  kernel->tables().interfaces.clear();
  kernel->Publish();
  EXPECT_EQ(events(PollAll()), std::vector<RingEvent>{RingEvent::kRemoved});
  ring->OnPortEvent(nic::PortEvent::kDeviceRemoved);
  ring->OnPortEvent(nic::PortEvent::kLinkDown);
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(Counter("ring", "link_downs"), 1u);
  EXPECT_EQ(Counter("ring", "removals"), 1u);
}

TEST_F(RingContractTest, LossesOfThePortAreReportedByLayer) {
  Open();
  ring->OnPortCounters({.out_of_buffer = 3, .discards = 4});
  const auto got = PollAll();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(got[0].event, RingEvent::kDropped);
  EXPECT_EQ(got[0].count, 7u);
  EXPECT_EQ(got[0].layer, static_cast<uint64_t>(Layer::kPort));
}

TEST_F(RingContractTest, ReleasesOfOtherThreadsComeBack) {
  Open();
  OpenSocket(7000);
  const uint32_t before = ring->core().device.pool->free_count();
  Inject({.payload = "x"});
  const auto got = PollAll();
  std::thread other([&got] { Release(got); });
  other.join();
  Inject({.payload = "y"});
  Release(PollAll());
  PollAll();
  Inject({.payload = "z"});
  Release(PollAll());
  EXPECT_EQ(ring->core().device.pool->free_count(), before);
}

TEST_F(RingContractTest, ShorterCompletionsGetTheFirstPartOfEach) {
  Open();
  const Handle socket = OpenSocket(7000);
  Inject({.payload = "a"});
  Inject({.payload = "b"});
  alignas(64) uint8_t out[128];
  ASSERT_EQ(ring->Poll(out, 2, 64), 2u);
  for (size_t i = 0; i < 2; ++i) {
    Completion head;
    memcpy(static_cast<void*>(&head), out + 64 * i, 64);
    EXPECT_EQ(head.kind, Kind::kPacket);
    EXPECT_EQ(head.socket, socket);
    packet::BufferPool::Release(head.buffer);
  }
}

TEST_F(RingContractTest, AGroupIsFairAndWaitsForAll) {
  Open();
  auto second = Ring::Open(engine.get(), options);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE((*second)->Start().ok());
  Ring* rings[] = {ring.get(), second->get()};
  auto group = RingGroup::Create(rings);
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE((*group)->Arm());
  EXPECT_FALSE(Readable((*group)->fd()));
  const auto busy = ring->OpenLane();
  const auto quiet = (*second)->OpenLane();
  for (uint64_t i = 0; i < 100; ++i) busy->Post(i);
  quiet->Post(7);
  EXPECT_TRUE(Readable((*group)->fd()));
  std::vector<Completion> got(8);
  bool quiet_heard = false;
  uint32_t count = (*group)->Poll(got.data(), 8, sizeof(Completion));
  for (uint32_t i = 0; i < count; ++i) quiet_heard |= got[i].value == 7 && i >= 4;
  EXPECT_TRUE(quiet_heard);
  EXPECT_FALSE((*group)->Arm());
  group->reset();
}

TEST_F(RingContractTest, BadOptionsAreRefusedByName) {
  options.rx_queue_frames = 100;
  EXPECT_EQ(options.Validate().message(),
            "ring option rx_queue_frames: 100 asked, a power of two allowed");
  options.rx_queue_frames = 64;
  options.poll_batch = 0;
  EXPECT_EQ(options.Validate().message(), "ring option poll_batch: 0 asked, 1 to 256 allowed");
}

TEST_F(RingContractTest, AnUnknownInterfaceIsNotFound) {
  Open();
  options.interface_name = "nope";
  EXPECT_EQ(Ring::Open(engine.get(), options).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace xtreme::engine::testing
