// SPDX-License-Identifier: Apache-2.0
//
// The completion contract where a connection's ring is not ready: sends before the SYN has left,
// a ring that is reset while connections are open, and resets that have to wait for it.

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_exit.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class TcpEarlyContractTest : public TcpPairTest {
 protected:
  // Nothing is known of the way to the peer yet.
  Handle StartConnect(const wire::Endpoint& peer, const TcpSettings& settings = {}) {
    Handle handle = 0;
    EXPECT_TRUE(a->tcp().Connect({.peer = peer, .settings = settings}, &handle).ok());
    EXPECT_TRUE(a->queue().sent().empty());
    return handle;
  }
  packet::Buffer* InBuffer(std::string_view text) {
    packet::Buffer* buffer = a->ring->AcquireBuffer();
    memcpy(buffer->data, text.data(), text.size());
    buffer->length = static_cast<uint32_t>(text.size());
    return buffer;
  }
  SendResult SendInPlace(Handle socket, packet::Buffer* buffer) {
    return a->tcp().Send(a->tcp().Find(socket),
                         {.data = buffer->data, .length = buffer->length, .buffer = buffer}, {});
  }
  // The client, whose reset finds the send queue full.
  void AbortWithoutRoom() {
    a->complete_sends = false;
    while (a->Send(client, "0123456789", {.flags = kNowOrFail}) == SendResult::kSent) {
      Carry(*a, *b);
      b->Poll();
      Carry(*b, *a);
      a->Poll();
    }
    ASSERT_TRUE(a->tcp().Abort(client).ok());
  }
};

TEST_F(TcpEarlyContractTest, SendsBeforeTheSynAreQueuedAndArriveInOrder) {
  Open();
  b->Listen(kPort);
  const uint64_t free = a->Counter("pool", "free");
  client = StartConnect({kB, kPort});
  EXPECT_EQ(a->Send(client, "one, "), SendResult::kQueued);
  EXPECT_EQ(SendInPlace(client, InBuffer("two, ")), SendResult::kQueued);
  EXPECT_EQ(a->Send(client, "three", {.flags = kSendWantDone, .cookie = 3}), SendResult::kQueued);
  a->Settle();
  Run(100 * kMillisecond);
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
  EXPECT_EQ(b->Bytes(b->Of(Kind::kAccepted)[0].socket), "one, two, three");
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kEstablished, Kind::kTxDone}));
  EXPECT_EQ(a->got[1].cookie, 3u);
  EXPECT_EQ(a->got[1].status, 0);
  EXPECT_EQ(a->Counter("pool", "free"), free);
}

TEST_F(TcpEarlyContractTest, WhatNoSynCameForIsCancelledBeforeTerminated) {
  Open();
  const uint64_t free = a->Counter("pool", "free");
  client = StartConnect({{10, 0, 0, 77}, kPort});  // No next hop.
  EXPECT_EQ(a->Send(client, "one", {.flags = kSendWantDone, .cookie = 1}), SendResult::kQueued);
  EXPECT_EQ(SendInPlace(client, InBuffer("two")), SendResult::kQueued);
  a->Settle();
  Run(10'000 * kMillisecond, 10 * kMillisecond);
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTxDone, Kind::kTerminated}));
  EXPECT_EQ(a->got[0].status, ECANCELED);
  EXPECT_EQ(a->got[0].interface_index, MemoryKernel::kIfindex);
  EXPECT_EQ(a->got[0].cookie, 1u);
  EXPECT_EQ(a->got[1].status, EHOSTUNREACH);
  EXPECT_EQ(a->Counter("pool", "free"), free);
}

TEST_F(TcpEarlyContractTest, BeforeTheSynWhatMayNotWaitOrDoesNotFitIsRefused) {
  TcpSettings small;
  small.send_queue_bytes = 10;
  Open();
  client = StartConnect({kB, kPort}, small);
  EXPECT_EQ(a->Send(client, "now", {.flags = kNowOrFail}), SendResult::kRefusedState);
  EXPECT_EQ(a->Send(client, "six so"), SendResult::kQueued);
  EXPECT_EQ(a->Send(client, "five!"), SendResult::kRefusedState);
  const std::string more = "12345";
  SendResult result;
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client),
                              {reinterpret_cast<const uint8_t*>(more.data()), more.size()}, {},
                              &result),
            4u);
  EXPECT_EQ(result, SendResult::kQueued);
}

TEST_F(TcpEarlyContractTest, BeforeTheSynAQueueThatIsFullArrives) {
  TcpSettings small;
  small.send_queue_bytes = 10;
  Open();
  b->Listen(kPort);
  client = StartConnect({kB, kPort}, small);
  EXPECT_EQ(a->Send(client, "six so"), SendResult::kQueued);
  EXPECT_EQ(a->Send(client, "four"), SendResult::kQueued);
  a->Settle();
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
  EXPECT_EQ(b->Bytes(b->Of(Kind::kAccepted)[0].socket), "six sofour");
}

TEST_F(TcpEarlyContractTest, BeforeTheSynWhatWasTakenArrivesThroughLowerLimits) {
  TcpSettings lower;
  lower.send_queue_bytes = 5;
  lower.unsent_low_water_bytes = 1;
  Open();
  b->Listen(kPort);
  client = StartConnect({kB, kPort});
  EXPECT_EQ(a->Send(client, "six so"), SendResult::kQueued);
  EXPECT_EQ(a->Send(client, "four"), SendResult::kQueued);
  ASSERT_TRUE(a->tcp().SetSettings(client, lower).ok());
  EXPECT_EQ(a->Send(client, "!"), SendResult::kRefusedState);
  a->Settle();
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
  EXPECT_EQ(b->Bytes(b->Of(Kind::kAccepted)[0].socket), "six sofour");
}

TEST_F(TcpEarlyContractTest, OfTwoConnectsBetweenTheSameEndsOneIsRefused) {
  Open();
  b->Listen(kPort);
  std::array<Handle, 2> handles{};
  for (Handle& handle : handles) {
    ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort}, .local = {kA, 9'000}}, &handle).ok());
  }
  a->Settle();
  Run();
  a->Settle();
  ASSERT_EQ(a->Of(Kind::kEstablished).size(), 1u);
  client = a->Of(Kind::kEstablished)[0].socket;
  ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, EADDRINUSE);
  EXPECT_NE(a->Of(Kind::kTerminated)[0].socket, client);
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
  server = b->Of(Kind::kAccepted)[0].socket;
  // Nor does the end of one take the port from the other.
  a->Send(client, "hello");
  b->Send(server, "you too");
  Run();
  EXPECT_EQ(b->Bytes(server), "hello");
  EXPECT_EQ(a->Bytes(client), "you too");
}

// The port is leased once, for both.
TEST_F(TcpEarlyContractTest, APortThatIsAboutToStandServesAnyNumberOfPeers) {
  Open();
  b->Listen(kPort);
  b->Listen(kPort + 1);
  a->Settle();
  const size_t ports = a->kernel->ports();
  for (const uint16_t port : {kPort, static_cast<uint16_t>(kPort + 1)}) {
    Handle handle = 0;
    ASSERT_TRUE(a->tcp().Connect({.peer = {kB, port}, .local = {kA, 9'000}}, &handle).ok());
  }
  a->Settle();
  Run();
  EXPECT_EQ(a->Of(Kind::kEstablished).size(), 2u);
  EXPECT_EQ(a->kernel->ports(), ports + 1);
  for (const Completion& each : a->Of(Kind::kEstablished)) a->tcp().Abort(each.socket);
  a->Settle();
  a->Settle();
  EXPECT_EQ(a->kernel->ports(), ports);
}

// The first of them is closed meanwhile.
TEST_F(TcpEarlyContractTest, APortThatIsAboutToStandStandsForWhoStillWaits) {
  Open();
  b->Listen(kPort);
  std::array<Handle, 2> handles{};
  for (Handle& handle : handles) {
    ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort}, .local = {kA, 9'000}}, &handle).ok());
  }
  ASSERT_TRUE(a->tcp().Close(handles[0]).ok());
  a->Settle();
  Run();
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTerminated, Kind::kEstablished}));
  EXPECT_EQ(a->got[0].status, ECANCELED);
  EXPECT_EQ(a->got[1].socket, handles[1]);
}

TEST_F(TcpEarlyContractTest, APortThatCannotBeHadEndsAllThatWaitForIt) {
  Open();
  a->kernel->TakePort(9'000);
  std::array<Handle, 2> handles{};
  for (Handle& handle : handles) {
    ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort}, .local = {kA, 9'000}}, &handle).ok());
  }
  a->Settle();
  a->Settle();
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTerminated, Kind::kTerminated}));
  for (const Completion& each : a->got) EXPECT_EQ(each.status, EADDRINUSE);
}

// More of them than there is room to tell of, and a listener behind.
TEST_F(TcpEarlyContractTest, OfAPortThatCannotBeHadEachIsToldThoughTheFifoIsFull) {
  constexpr size_t kConnects = 140;
  options.completions = 64;
  Open();
  a->kernel->TakePort(9'000);
  Handle handle = 0;
  for (size_t i = 0; i < kConnects; ++i) {
    ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort}, .local = {kA, 9'000}}, &handle).ok());
  }
  ASSERT_TRUE(a->tcp().OpenListener({.local = {kA, 9'000}}, &handle).ok());
  a->Settle();
  a->Settle();
  EXPECT_EQ(a->Of(Kind::kTerminated).size(), kConnects);
  ASSERT_EQ(a->Of(Kind::kOpDone).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kOpDone)[0].socket, handle);
  EXPECT_EQ(a->Of(Kind::kOpDone)[0].status, EADDRINUSE);
}

TEST_F(TcpEarlyContractTest, BeforeTheSynASendOfNoBytesGivesItsBufferBack) {
  Open();
  const uint64_t free = a->Counter("pool", "free");
  client = StartConnect({kB, kPort});
  EXPECT_EQ(SendInPlace(client, InBuffer("")), SendResult::kSent);
  EXPECT_EQ(a->Counter("pool", "free"), free);
}

TEST_F(TcpEarlyContractTest, AClosedRingGivesBackWhatWaitedForASyn) {
  Open();
  client = StartConnect({{10, 0, 0, 77}, kPort});
  EXPECT_EQ(SendInPlace(client, InBuffer("never")), SendResult::kQueued);
  a->ring.reset();  // A buffer that stays behind is a leak.
}

TEST_F(TcpEarlyContractTest, ConnectionsSurviveAResetOfTheirRing) {
  OpenConnection();
  Handle order = 0;
  const std::string text = "|order";
  ASSERT_TRUE(a->tcp()
                  .PrepareSend(client, {reinterpret_cast<const uint8_t*>(text.data()), 6}, &order)
                  .ok());
  a->lose = [](const auto&) { return true; };
  ASSERT_EQ(a->Send(client, "lost", {.flags = kSendWantDone, .cookie = 4}), SendResult::kSent);
  Run(kMillisecond);
  ASSERT_TRUE(a->ring->Reset(7).ok());
  EXPECT_EQ(a->Send(client, "meanwhile"), SendResult::kRefusedState);
  a->Settle();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kOpDone});
  ASSERT_EQ(a->got[0].status, 0);
  a->Clear();
  a->lose = nullptr;
  a->resets = 1;
  a->carried = 0;
  b->Send(server, "from the peer");
  EXPECT_EQ(engine::Fire(*a->ring->prepared().Find(order), {}),
            SendResult::kSent);
  Run(3'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server), "lost|order");
  EXPECT_EQ(a->Bytes(client), "from the peer");
  const std::vector<Completion> done = a->Of(Kind::kTxDone);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].cookie, 4u);
  EXPECT_EQ(done[0].status, 0);
}

TEST_F(TcpEarlyContractTest, ADeviceThatIsPulledDuringAResetEndsItsConnections) {
  OpenConnection();
  a->nic->FailQueues(absl::InternalError("create QP: no such device"));
  ASSERT_TRUE(a->ring->Reset(7).ok());
  a->ring->OnPortEvent(nic::PortEvent::kDeviceRemoved);
  a->Settle();
  ASSERT_EQ(a->Of(Kind::kOpDone).size(), 1u);
  const std::vector<Completion> ends = a->Of(Kind::kTerminated);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, ENETDOWN);
}

TEST_F(TcpEarlyContractTest, AResetThatTheSendQueueHasNoRoomForLeavesWhenItHas) {
  OpenConnection();
  AbortWithoutRoom();
  Run();
  EXPECT_TRUE(b->Of(Kind::kTerminated).empty());
  EXPECT_FALSE(a->tcp().Quiescent());
  a->complete_sends = true;
  Run();
  ASSERT_EQ(b->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(b->Of(Kind::kTerminated)[0].status, ECONNRESET);
  EXPECT_EQ(a->Counter("tcp", "resets_owed"), 1u);
  EXPECT_TRUE(a->tcp().Quiescent());
}

// Its queue is made before the ring's own, and rules that its answers come by stand after that.
TEST_F(TcpEarlyContractTest, OfAConnectionWithARateNothingLeavesBeforeTheRingHasQueues) {
  nic_options.rate_limit = true;
  OpenConnection();
  ASSERT_TRUE(a->tcp().SetRate(client, {.bytes_per_second = 1'000'000}, 9).ok());
  a->Settle();
  ASSERT_EQ(a->Of(Kind::kOpDone).size(), 1u);
  ASSERT_EQ(a->Send(client, "lost"), SendResult::kSent);
  std::promise<void> reached, gate;
  a->nic->before_queues = [&, made = 0]() mutable {
    if (++made != 2) return;
    reached.set_value();
    gate.get_future().wait();
  };
  ASSERT_TRUE(a->ring->Reset(7).ok());
  reached.get_future().wait();
  MemoryQueuePair& paced = *a->nic->queue(2);
  now += 2'000 * kMillisecond;
  a->Poll();
  EXPECT_TRUE(paced.sent().empty());
  gate.set_value();
  a->Settle();
  now += 2'000 * kMillisecond;
  a->Poll();
  EXPECT_FALSE(paced.sent().empty());
}

// More than the queue holds, of which a completion gives room as what goes behind them is posted.
TEST_F(TcpEarlyContractTest, ResetsAtTheExitThatWaitedForRoomAreRungForToo) {
  constexpr size_t kConnections = 80;
  options.tcp_ports_log2 = 7;
  Open();
  b->Listen(kPort);
  for (size_t i = 0; i < kConnections; ++i) {
    a->Connect({kB, kPort});
    Run(1'000'000);
  }
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), kConnections);
  a->complete_sends = false;
  a->queue().completes_when_polled = true;
  ResetPeers(*a->ring, base::Milliseconds(5));
  Carry(*a, *b);
  b->Poll();
  EXPECT_EQ(b->Of(Kind::kTerminated).size(), kConnections);
}

TEST_F(TcpEarlyContractTest, AResetThatABrokenQueueKeptLeavesByTheNextOne) {
  OpenConnection();
  AbortWithoutRoom();
  a->queue().Break();
  a->Poll();
  ASSERT_EQ(a->Of(Kind::kRing).size(), 1u);
  EXPECT_FALSE(a->tcp().Quiescent());
  ASSERT_TRUE(a->ring->Reset(7).ok());
  a->Settle();
  a->complete_sends = true;
  a->resets = 1;
  a->carried = 0;
  Run();
  ASSERT_EQ(b->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(b->Of(Kind::kTerminated)[0].status, ECONNRESET);
  EXPECT_TRUE(a->tcp().Quiescent());
}

}  // namespace
}  // namespace xtreme::engine::testing
