// SPDX-License-Identifier: Apache-2.0
//
// Sockets with a rate, over a device that paces their queues under virtual time: to the frame.

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

// A byte a microsecond: a frame of a thousand bytes, Ethernet header included, each millisecond.
constexpr nic::RateLimit kRate{
    .bytes_per_second = 1'000'000, .burst_bytes = 1'000, .typical_packet_bytes = 1'000};
constexpr size_t kPayloadBytes = 958;
constexpr int64_t kMillisecond = 1'000'000;
// At once: one, and a burst of one.
constexpr size_t kAtOnce = 2;

class RateTest : public TwoRingsTest {
 protected:
  explicit RateTest(const TwoRingsSetup& setup = {.tx_queue_frames = 64}) : TwoRingsTest(setup) {
    for (uint16_t port : {kFree, kPaced, kOther}) b->OpenSocket({.local = {kB, port}});
  }

  // A socket of `a` that is connected to `port` of `b`.
  Handle Open(uint16_t port) {
    const Handle socket = a->OpenSocket({.local = {kA, port}});
    EXPECT_TRUE(a->ring->udp().Connect(socket, {kB, port}, 0).ok());
    a->Settle();
    return socket;
  }
  void SetRate(Handle socket, const nic::RateLimit& rate = kRate) {
    const Outcome asked = a->ring->udp().SetRate(socket, rate, 1);
    ASSERT_TRUE(asked.ok()) << asked.text;
    a->Settle();
  }
  SendResult Send(Handle socket, SendOptions options = {}) {
    const std::string payload(kPayloadBytes, 'p');
    Udp& udp = a->ring->udp();
    return udp.Send(udp.Find(socket),
                    {.data = reinterpret_cast<const uint8_t*>(payload.data()),
                     .length = payload.size()},
                    options);
  }
  void SendMany(Handle socket, int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(Send(socket), SendResult::kSent) << i;
  }
  // Datagrams that have come to `port` of `b` since the last look, `after` nanoseconds later.
  size_t Arrived(uint16_t port, int64_t after = 0) {
    rig->Step(after);
    for (auto got = b->Poll(); !got.empty(); got = b->Poll()) {
      for (const Completion& completion : got) {
        if (completion.kind == Kind::kPacket) ++arrived[completion.destination_port];
      }
      Release(got);
    }
    return std::exchange(arrived[port], 0);
  }
  // What `a` tells, `after` nanoseconds later.
  std::vector<Completion> Told(int64_t after = 0) {
    rig->Step(after);
    a->engine->control().RunAndWait([] {});
    return a->Poll();
  }
  uint64_t Counter(std::string_view called) {
    uint64_t found = ~uint64_t{0};
    a->ring->VisitCounters([&](std::string_view, std::string_view name, std::string_view,
                               uint64_t value) {
      if (name == called) found = value;
    });
    return found;
  }
  uint64_t PacedQueues() { return Counter("paced_queues"); }

  static constexpr uint16_t kFree = 7000;
  static constexpr uint16_t kPaced = 7001;
  static constexpr uint16_t kOther = 7002;
  std::map<uint16_t, size_t> arrived;
};

class StoringRateTest : public RateTest {
 protected:
  StoringRateTest() : RateTest({.tx_queue_frames = 64, .device_memory = 8'192}) {}
};

class NoPacingTest : public RateTest {
 protected:
  NoPacingTest() : RateTest({.without = "packet_pacing"}) {}
};

class NoBurstsTest : public RateTest {
 protected:
  NoBurstsTest() : RateTest({.without = "pacing_bursts"}) {}
};

TEST_F(RateTest, APacedSocketSendsAtItsRateAndOthersAsTheyLike) {
  const Handle free = Open(kFree);
  const Handle paced = Open(kPaced);
  SetRate(paced);
  SendMany(paced, 20);
  SendMany(free, 20);
  EXPECT_EQ(Arrived(kFree), 20u);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  for (size_t i = kAtOnce; i < 20; ++i) {
    EXPECT_EQ(Arrived(kPaced, kMillisecond - 1), 0u) << i;
    EXPECT_EQ(Arrived(kPaced, 1), 1u) << i;
  }
}

TEST_F(RateTest, TxWireHasTheTimeAtWhichThePacedFrameLeft) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(Send(paced, {.flags = kSendWantWire | kSendWantDone, .cookie = i}),
              SendResult::kSent);
  }
  std::vector<int64_t> times;
  uint64_t done = 0;
  for (int i = 0; i < 8; ++i) {
    for (const Completion& completion : Told(kMillisecond)) {
      if (completion.kind == Kind::kTxWire) {
        EXPECT_EQ(completion.cookie, times.size());
        times.push_back(completion.hw_time_ns);
      } else {
        EXPECT_EQ(completion.kind, Kind::kTxDone);
        EXPECT_EQ(completion.cookie, done++);
        EXPECT_EQ(completion.status, 0);
      }
    }
  }
  EXPECT_EQ(done, 6u);
  ASSERT_EQ(times.size(), 6u);
  for (size_t i = kAtOnce; i < 6; ++i) {
    EXPECT_NEAR(static_cast<double>(times[i] - times[i - 1]), kMillisecond, 16) << i;
  }
}

TEST_F(RateTest, SocketsOfOneRateShareAQueueAndThoseOfAnotherDoNot) {
  const Handle one = Open(kPaced);
  const Handle two = Open(kOther);
  const Handle half = Open(kFree);
  SetRate(one);
  SetRate(two);
  EXPECT_EQ(PacedQueues(), 1u);
  SetRate(half, {.bytes_per_second = 500'000, .burst_bytes = 1'000});
  EXPECT_EQ(PacedQueues(), 2u);
  SendMany(one, 10);
  SendMany(two, 10);
  SendMany(half, 10);
  rig->Step();
  EXPECT_EQ(Arrived(kPaced, 8 * kMillisecond), 10u) << "ahead of those of the other";
  EXPECT_EQ(Arrived(kOther), 0u);
  EXPECT_EQ(Arrived(kFree), kAtOnce + 4) << "two milliseconds each";
  EXPECT_EQ(Arrived(kOther, 10 * kMillisecond), 10u);
}

TEST_F(RateTest, AQueueWithoutSocketsGoesWhenAllHasLeft) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  SendMany(paced, 8);
  ASSERT_TRUE(a->ring->udp().Close(paced, /*detach=*/true).ok());
  Told();
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(PacedQueues(), 1u);
  for (int i = 0; i < 6; ++i) Told(kMillisecond);
  EXPECT_EQ(Arrived(kPaced), 6u);
  Told(kMillisecond);  // What says so is behind the last of them.
  EXPECT_EQ(PacedQueues(), 0u);
}

TEST_F(RateTest, ARateOfNothingGoesBackToTheRingsOwnQueue) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  SetRate(paced, {});
  SendMany(paced, 10);
  EXPECT_EQ(Arrived(kPaced), 10u);
  Told();
  Told();
  EXPECT_EQ(PacedQueues(), 0u);
}

TEST_F(RateTest, FragmentsBurstsAndPreparedSendsArePacedToo) {
  const Handle paced = Open(kPaced);
  Handle prepared = 0;
  const std::vector<uint8_t> payload(kPayloadBytes, 'p');
  ASSERT_TRUE(a->ring->udp().PrepareSend(paced, std::span(payload).first(100), &prepared).ok());
  SetRate(paced);
  SendMany(paced, kAtOnce);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(Fire(*a->ring->prepared().Find(prepared), {}), SendResult::kSent);
  EXPECT_EQ(Arrived(kPaced), 0u);
  EXPECT_EQ(Arrived(kPaced, kMillisecond), 1u);

  Udp& udp = a->ring->udp();
  SendResult last;
  const std::vector<nic::TxPayload> burst(4, {payload.data(), kPayloadBytes});
  EXPECT_EQ(udp.SendBurst(udp.Find(paced), burst, 0, &last), 4u);
  EXPECT_EQ(Arrived(kPaced, 2 * kMillisecond), 2u);
  EXPECT_EQ(Arrived(kPaced, 4 * kMillisecond), 2u);

  const std::vector<uint8_t> large(3'000, 'l');  // 1,514, 1,514 and 90 bytes.
  ASSERT_EQ(udp.Send(udp.Find(paced), {.data = large.data(), .length = large.size()}, {}),
            SendResult::kSent);
  rig->Step();
  const auto left = [this] { return b->ring->core().device.queue->counters().rx_frames; };
  const uint64_t before = left();
  rig->Step(kMillisecond);
  b->Poll();
  EXPECT_LE(left() - before, 1u);
}

TEST_F(RateTest, AFullQueueRefusesItsSocketsAndNoOthers) {
  const Handle free = Open(kFree);
  const Handle paced = Open(kPaced);
  SetRate(paced);
  Udp& udp = a->ring->udp();
  int sent = 0;
  while (sent < 1'000 && Send(paced) == SendResult::kSent) ++sent;
  EXPECT_EQ(sent, 64);
  EXPECT_EQ(udp.WouldSend(udp.Find(paced), 10), SendResult::kRefusedSqFull);
  EXPECT_EQ(udp.WouldSend(udp.Find(free), 10), SendResult::kSent);
  EXPECT_EQ(Send(free), SendResult::kSent);
  for (int i = 0; i < 40; ++i) Told(kMillisecond);
  EXPECT_EQ(udp.WouldSend(udp.Find(paced), 10), SendResult::kSent);
  EXPECT_EQ(Send(paced), SendResult::kSent);
}

TEST_F(RateTest, AResetKeepsTheRateAndCancelsWhatHadNotLeft) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Send(paced, {.flags = kSendWantDone}), SendResult::kSent);
  }
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  a->Poll();
  ASSERT_TRUE(a->ring->Reset(9).ok());
  int cancelled = 0;
  bool reset = false;
  for (int i = 0; i < 3; ++i) {
    for (const Completion& completion : Told()) {
      cancelled += completion.kind == Kind::kTxDone && completion.status == ECANCELED;
      reset |= completion.kind == Kind::kOpDone && completion.cookie == 9;
      EXPECT_TRUE(completion.kind == Kind::kTxDone || completion.status == 0);
    }
  }
  EXPECT_TRUE(reset);
  EXPECT_EQ(cancelled, 3);
  EXPECT_EQ(Arrived(kPaced, 100 * kMillisecond), 0u);
  SendMany(paced, 5);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(Arrived(kPaced, 3 * kMillisecond), 3u);
}

TEST_F(RateTest, AResetThatCannotMakeItAgainSaysWhyAndAnotherOneMay) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  rig->FailNext("CREATE_QP", ENOMEM);
  ASSERT_TRUE(a->ring->Reset(9).ok());
  const auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, Kind::kOpDone);
  EXPECT_NE(told[0].status, 0);
  EXPECT_EQ(Send(paced), SendResult::kRefusedState);
  ASSERT_TRUE(a->ring->Reset(10).ok());
  a->Settle();
  EXPECT_EQ(Send(paced), SendResult::kSent);
  EXPECT_EQ(Arrived(kPaced), 1u);
}

TEST_F(RateTest, APacedQueueThatStopsBreaksTheRingUntilItIsReset) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  static const std::vector<uint8_t> kUnregistered(kPayloadBytes);
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  Udp& udp = a->ring->udp();
  ASSERT_EQ(udp.Send(udp.Find(paced), {kUnregistered.data(), kPayloadBytes, buffer},
                     {.flags = kSendWantDone, .cookie = 4}),
            SendResult::kSent);
  rig.ExpectViolation("memory_key");
  bool broken = false;
  bool cancelled = false;
  for (int i = 0; i < 3; ++i) {
    for (const Completion& completion : Told()) {
      broken |= completion.kind == Kind::kRing && completion.event == RingEvent::kBroken;
      cancelled |= completion.kind == Kind::kTxDone && completion.status == ECANCELED;
    }
  }
  EXPECT_TRUE(broken);
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(Send(paced), SendResult::kRefusedState);
  ASSERT_TRUE(a->ring->Reset(1).ok());
  a->Settle();
  SendMany(paced, 5);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
}

// The first is of before the reset: when it comes, the socket waits for the other.
TEST_F(RateTest, OfTwoQueuesInTheMakingTheLastIsTheSockets) {
  const Handle paced = Open(kPaced);
  ASSERT_TRUE(a->ring->udp().SetRate(paced, kRate, 1).ok());
  ASSERT_TRUE(a->ring->Reset(2).ok());
  for (int i = 0; i < 4; ++i) a->Settle();
  EXPECT_EQ(PacedQueues(), 1u);
  EXPECT_EQ(rig->live_objects().qps, 3u) << "of each ring one, and the last";
  SendMany(paced, 5);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  SetRate(paced, {});
  for (int i = 0; i < 8; ++i) Told(kMillisecond);
  EXPECT_EQ(PacedQueues(), 0u);
}

// A rate is there while a reset, which makes the next queue, still waits for the control thread.
class OvertakenRateTest : public RateTest {
 protected:
  // `meanwhile`: when the socket has its rate.
  void Overtake(Handle paced, const nic::RateLimit& rate,
                const std::function<void()>& meanwhile) {
    std::latch reached{1};
    std::latch go_on{1};
    EXPECT_TRUE(a->ring->udp().SetRate(paced, rate, 1).ok());
    a->engine->control().Start(MakeOperation([&] {
      reached.count_down();
      go_on.wait();
    }));
    EXPECT_TRUE(a->ring->Reset(2).ok());
    reached.wait();
    const std::vector<Completion> told = a->Poll();
    EXPECT_EQ(told.size(), 1u);
    for (const Completion& completion : told) {
      EXPECT_EQ(completion.cookie, 1u);
      EXPECT_EQ(completion.status, 0) << "how the other went is told of the reset";
    }
    a->ring->core().host.mailbox->Knock();
    a->Poll();  // Where what notices brought ends.
    meanwhile();
    go_on.count_down();
    a->engine->control().RunAndWait([] {});
  }
};

TEST_F(OvertakenRateTest, TheOwnerDoesNotEnterTheKernelForAQueueThatIsTooLate) {
  const Handle paced = Open(kPaced);
  Overtake(paced, kRate, [&] {
    EXPECT_EQ(rig->live_objects().qps, 3u) << "of each ring one, and the first";
  });
  for (int i = 0; i < 4; ++i) a->Settle();
  EXPECT_EQ(rig->live_objects().qps, 3u) << "of each ring one, and the last";
  SendMany(paced, 5);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(Arrived(kPaced, 3 * kMillisecond), 3u);
}

// As on another port, where a queue of the one before sends nowhere.
TEST_F(OvertakenRateTest, AQueueThatIsTooLateIsNoSubstituteForOneThatCannotBeMade) {
  const Handle paced = Open(kPaced);
  Overtake(paced, kRate, [&] { rig->FailNext("CREATE_QP", ENOMEM); });
  const auto told = a->Poll();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].cookie, 2u);
  EXPECT_NE(told[0].status, 0);
  EXPECT_EQ(Send(paced), SendResult::kRefusedState);
  ASSERT_TRUE(a->ring->Reset(3).ok());
  a->Settle();
  EXPECT_EQ(Send(paced), SendResult::kSent);
  EXPECT_EQ(Arrived(kPaced), 1u);
}

TEST_F(OvertakenRateTest, AQueueInTheMakingStaysUntilItCameThoughNoSocketIsLeft) {
  const Handle paced = Open(kPaced);
  SetRate(paced);
  Overtake(paced, {}, [&] { EXPECT_EQ(PacedQueues(), 1u); });
  for (int i = 0; i < 4; ++i) a->Settle();
  EXPECT_EQ(PacedQueues(), 0u);
  EXPECT_EQ(rig->live_objects().qps, 2u);
}

TEST_F(RateTest, SocketsThatAskForARateInTheMakingShareItsQueue) {
  const Handle one = Open(kPaced);
  const Handle two = Open(kOther);
  ASSERT_TRUE(a->ring->udp().SetRate(one, kRate, 1).ok());
  ASSERT_TRUE(a->ring->udp().SetRate(two, kRate, 2).ok());
  EXPECT_EQ(PacedQueues(), 1u);
  a->Settle();
  EXPECT_EQ(rig->live_objects().qps, 3u);
  EXPECT_EQ(Send(one), SendResult::kSent);
  EXPECT_EQ(Send(two), SendResult::kSent);
}

TEST_F(RateTest, OfTwoRatesThatASocketAsksForAtOnceTheLastHolds) {
  const Handle paced = Open(kPaced);
  ASSERT_TRUE(a->ring->udp().SetRate(paced, {.bytes_per_second = 1'000}, 1).ok());
  ASSERT_TRUE(a->ring->udp().SetRate(paced, kRate, 2).ok());
  EXPECT_EQ(PacedQueues(), 2u);
  for (int i = 0; i < 4; ++i) a->Settle();
  EXPECT_EQ(PacedQueues(), 1u);
  EXPECT_EQ(rig->live_objects().qps, 3u);
  SendMany(paced, 5);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(Arrived(kPaced, 3 * kMillisecond), 3u);
}

TEST_F(RateTest, WhatTheDeviceCannotDoIsSaidInOpDoneAndChangesNothing) {
  const Handle paced = Open(kPaced);
  ASSERT_TRUE(a->ring->udp().SetRate(paced, {.bytes_per_second = ~uint64_t{0} / 16}, 5).ok());
  const auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, Kind::kOpDone);
  EXPECT_EQ(told[0].socket, paced);
  EXPECT_EQ(told[0].cookie, 5u);
  EXPECT_EQ(told[0].status, EINVAL);
  EXPECT_NE(std::string(told[0].text).find("mlx5_0 offers"), std::string::npos) << told[0].text;
  Told();
  EXPECT_EQ(PacedQueues(), 0u);
  SendMany(paced, 10);
  EXPECT_EQ(Arrived(kPaced), 10u);
  EXPECT_EQ(a->ring->udp().SetRate(paced, {.bytes_per_second = 1, .typical_packet_bytes = 65'536},
                                   5).error, EINVAL);
}

// Which the ring's own queue has alone.
TEST_F(StoringRateTest, WhatIsPacedIsGatheredAndTakesNoMemoryOnTheDevice) {
  const Handle free = Open(kFree);
  const Handle paced = Open(kPaced);
  SetRate(paced);
  SendMany(free, 2);
  EXPECT_EQ(Counter("tx_device_memory"), 2u);
  SendMany(paced, 5);
  EXPECT_EQ(Counter("tx_device_memory"), 2u);
  EXPECT_EQ(Counter("tx_gathered"), 5u);
  EXPECT_EQ(Arrived(kFree), 2u);
  EXPECT_EQ(Arrived(kPaced), kAtOnce);
  EXPECT_EQ(Arrived(kPaced, 3 * kMillisecond), 3u);
}

TEST_F(NoPacingTest, ADeviceWithoutPacingRefusesTheCallByName) {
  const Handle socket = Open(kPaced);
  const Outcome asked = a->ring->udp().SetRate(socket, kRate, 1);
  EXPECT_EQ(asked.error, EOPNOTSUPP);
  EXPECT_EQ(asked.text,
            "limit sends to 1000000 bytes a second: mlx5_0 port 1 has no packet pacing");
  EXPECT_EQ(PacedQueues(), 0u);
  EXPECT_TRUE(a->ring->udp().SetRate(socket, {}, 1).ok()) << "that is what it has";
  a->Settle();
}

TEST_F(NoBurstsTest, ADeviceWithoutBurstsSaysThatItIsTheBurstAndPacesWithoutOne) {
  const Handle paced = Open(kPaced);
  ASSERT_TRUE(a->ring->udp().SetRate(paced, kRate, 1).ok());
  const auto told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].status, EINVAL);
  EXPECT_NE(std::string(told[0].text).find("in bursts of 1000, packets of 1000: mlx5_0"),
            std::string::npos)
      << told[0].text;
  SetRate(paced, {.bytes_per_second = 1'000'000});
  SendMany(paced, 5);
  const size_t at_once = Arrived(kPaced);
  EXPECT_LT(at_once, 5u);
  EXPECT_EQ(at_once + Arrived(kPaced, 10 * kMillisecond), 5u);
}

// --- TCP -----------------------------------------------------------------------------------------

class TcpRateTest : public RateTest {
 protected:
  static constexpr uint16_t kPort = 8000;

  void Listen() {
    Handle listener = 0;
    ASSERT_TRUE(b->ring->tcp().OpenListener({.local = {{}, kPort}}, &listener).ok());
    b->Settle();
    EXPECT_EQ(b->ring->tcp().SetRate(listener, kRate, 1).error, ENOTCONN);
  }
  // Its child at `b`.
  Handle Connect(Handle* client) {
    EXPECT_TRUE(a->ring->tcp().Connect({.peer = {kB, kPort}}, client).ok());
    a->engine->control().RunAndWait([] {});
    child = 0;
    Run(100);
    EXPECT_NE(child, 0u);
    return child;
  }
  // Milliseconds of both clocks.
  void Run(int milliseconds) {
    for (int i = 0; i < 10 * milliseconds; ++i) {
      now += kMillisecond / 10;
      rig->Step(kMillisecond / 10);
      for (const Completion& completion : b->Poll()) {
        if (completion.kind == Kind::kAccepted) child = completion.socket;
        if (completion.kind != Kind::kPacket) continue;
        received[completion.socket] += completion.length;
        packet::BufferPool::ReleaseChain(completion.buffer);
      }
      for (const Completion& completion : a->Poll()) {
        space += completion.kind == Kind::kTxSpace;
        if (completion.kind == Kind::kPacket) {
          answered += completion.length;
          packet::BufferPool::ReleaseChain(completion.buffer);
        }
        EXPECT_NE(completion.kind, Kind::kTerminated) << completion.status;
      }
    }
  }
  SendResult SendStream(Handle socket, size_t bytes, uint32_t flags = 0) {
    const std::vector<uint8_t> payload(bytes, 's');
    Tcp& tcp = a->ring->tcp();
    return tcp.Send(tcp.Find(socket), {.data = payload.data(), .length = bytes},
                    {.flags = flags});
  }

  Handle child = 0;
  int space = 0;
  size_t answered = 0;  // By any child.
  std::map<Handle, size_t> received;
};

TEST_F(TcpRateTest, APacedConnectionSendsAtItsRateAndAnotherOneAsItLikes) {
  Listen();
  Handle slow = 0;
  Handle fast = 0;
  const Handle slow_child = Connect(&slow);
  const Handle fast_child = Connect(&fast);
  ASSERT_TRUE(a->ring->tcp().SetRate(slow, kRate, 1).ok());
  a->Settle();
  constexpr size_t kBytes = 200'000;
  ASSERT_NE(SendStream(slow, kBytes), SendResult::kRefusedSqFull);
  Run(50);  // As long as a full queue is in its way.
  ASSERT_EQ(SendStream(fast, 100'000), SendResult::kQueued);
  Run(20);
  EXPECT_EQ(received[fast_child], 100'000u);
  const size_t so_far = received[slow_child];
  EXPECT_GT(so_far, 60'000u);
  EXPECT_LT(so_far, 72'000u);
  Run(50);
  // 1,448 bytes of a frame of 1,514.
  EXPECT_NEAR(static_cast<double>(received[slow_child] - so_far), 50'000 * 1'448.0 / 1'514, 1'500);
  Run(100);
  EXPECT_EQ(received[slow_child], kBytes);
}

TEST_F(TcpRateTest, WhatMayNotWaitIsRefusedByAFullQueueAndTxSpaceFollows) {
  Listen();
  Handle slow = 0;
  const Handle slow_child = Connect(&slow);
  ASSERT_TRUE(a->ring->tcp().SetRate(slow, kRate, 1).ok());
  a->Settle();
  size_t sent = 0;
  SendResult result = SendResult::kSent;
  for (int i = 0; i < 200 && result == SendResult::kSent; ++i) {
    result = SendStream(slow, 100, kNowOrFail);
    if (result == SendResult::kSent) sent += 100;
  }
  EXPECT_TRUE(result == SendResult::kRefusedSqFull || result == SendResult::kRefusedCongestion)
      << static_cast<int>(result);
  EXPECT_EQ(space, 0);
  Run(100);
  EXPECT_EQ(space, 1);
  EXPECT_EQ(received[slow_child], sent);
}

// Whatever it is: a short segment, a long one, or an acknowledgement.
TEST_F(TcpRateTest, NothingOfAPacedConnectionLeavesByTheRingsOwnQueue) {
  Listen();
  Handle slow = 0;
  const Handle slow_child = Connect(&slow);
  ASSERT_TRUE(a->ring->tcp().SetRate(slow, kRate, 1).ok());
  a->Settle();
  const nic::QueuePair& own = *a->ring->core().device.queue;
  const uint32_t before = own.posted_frames();
  constexpr size_t kAnswer = 20'000;
  const std::vector<uint8_t> answer(kAnswer, 'a');
  Tcp& theirs = b->ring->tcp();
  for (const size_t bytes : {10u, 1'000u, 10u, 3'000u}) {
    EXPECT_EQ(SendStream(slow, bytes), SendResult::kSent) << bytes;
    EXPECT_EQ(own.posted_frames(), before) << bytes;
    EXPECT_GE(static_cast<int>(theirs.Send(theirs.Find(slow_child),
                                           {.data = answer.data(), .length = kAnswer}, {})), 0);
    Run(100);
  }
  EXPECT_EQ(received[slow_child], 4'020u);
  EXPECT_EQ(answered, 4 * kAnswer);
  EXPECT_EQ(own.posted_frames(), before) << "acknowledgements";
}

// The ring's own doorbell asks nothing of a paced queue.
TEST_F(TcpRateTest, APacedSegmentWithoutADoorbellGivesItsBufferBack) {
  Listen();
  Handle slow = 0;
  const Handle slow_child = Connect(&slow);
  ASSERT_TRUE(a->ring->tcp().SetRate(slow, kRate, 1).ok());
  a->Settle();
  const auto refers = [this] {
    uint32_t records = 0;
    a->ring->core().paced->ForEachLog([&](SendLog& log) {
      records += log.wanted();
      return true;
    });
    return records;
  };
  ASSERT_EQ(SendStream(slow, 1'000, kNoDoorbell), SendResult::kSent);
  EXPECT_EQ(refers(), 1u);
  Run(200);
  EXPECT_EQ(received[slow_child], 1'000u);
  EXPECT_EQ(refers(), 0u);
}

TEST_F(TcpRateTest, WhatAPacedQueueIsAskedForTellsNothingOfTheRingsOwn) {
  Listen();
  Handle fast = 0;
  Connect(&fast);
  const Handle paced = Open(kPaced);
  SetRate(paced);
  const uint32_t& attention = a->ring->core().attention;
  ASSERT_EQ(SendStream(fast, 1'000, kNoDoorbell), SendResult::kSent);
  ASSERT_NE(attention & kCompletionOwed, 0u);
  ASSERT_EQ(RateTest::Send(paced, {.flags = kSendWantDone}), SendResult::kSent);
  EXPECT_NE(attention & kCompletionOwed, 0u);
  a->ring->Flush();
  EXPECT_EQ(attention & kCompletionOwed, 0u);
}

TEST_F(TcpRateTest, WouldSendAndTxSpaceAreOfItsOwnQueue) {
  Listen();
  Handle slow = 0;
  Connect(&slow);
  ASSERT_TRUE(a->ring->tcp().SetRate(slow, kRate, 1).ok());
  a->Settle();
  while (SendStream(slow, 100, kNowOrFail) == SendResult::kSent) {}
  constexpr size_t kBytes = 3 * 1'448;
  Tcp& tcp = a->ring->tcp();
  ASSERT_EQ(SendStream(slow, kBytes, kNowOrFail), SendResult::kRefusedSqFull);
  EXPECT_EQ(tcp.WouldSend(tcp.Find(slow), kBytes), SendResult::kRefusedSqFull);
  const std::vector<uint8_t> payload(kBytes, 's');
  SendResult result;
  EXPECT_EQ(tcp.SendSome(tcp.Find(slow), payload, {.flags = kNowOrFail}, &result), 0u);
  EXPECT_EQ(result, SendResult::kRefusedSqFull);
  ASSERT_EQ(SendStream(slow, kBytes, kNowOrFail), SendResult::kRefusedSqFull);
  while (space == 0) Run(1);
  EXPECT_EQ(tcp.WouldSend(tcp.Find(slow), kBytes), SendResult::kSent);
  EXPECT_EQ(SendStream(slow, kBytes, kNowOrFail), SendResult::kSent);
}

}  // namespace
}  // namespace xtreme::engine::testing
