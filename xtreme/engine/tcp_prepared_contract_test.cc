// SPDX-License-Identifier: Apache-2.0
//
// The contract of prepared sends over TCP, clause by clause, by name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/tcp.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// On a device that takes posts without a call, and on one that does not.
class TcpPreparedContractTest : public TcpPairTest, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr size_t kTcp = 14 + 20;  // Of the TCP header in a frame.

  Handle Prepare(std::string_view payload) {
    if (GetParam() && !direct_) a->queue().TakeDirectPosts();
    direct_ = true;
    Handle prepared = 0;
    const Outcome outcome = a->tcp().PrepareSend(client, Bytes(payload), &prepared);
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    return prepared;
  }
  PreparedSends& sends() { return a->ring->prepared(); }
  SendResult Fire(Handle prepared, SendOptions with = {}) {
    return engine::Fire(*sends().Find(prepared), with);
  }
  const std::vector<uint8_t>& LastFrame() { return a->queue().sent().back().bytes; }
  uint32_t FreeBuffers() { return static_cast<uint32_t>(a->Counter("pool", "free")); }

 private:
  bool direct_ = false;
};

INSTANTIATE_TEST_SUITE_P(Device, TcpPreparedContractTest, ::testing::Bool(),
                         [](const auto& with) { return with.param ? "Direct" : "ByCalls"; });

TEST_P(TcpPreparedContractTest, FiredItIsTheSegmentThatASendWouldBe) {
  OpenConnection();
  ASSERT_EQ(a->Send(client, "buy 100 at 17"), SendResult::kSent);
  const SentFrame sent = a->queue().sent().back();
  Run();
  const Handle order = Prepare("buy 100 at 17");
  const size_t before = a->queue().sent().size();
  EXPECT_EQ(Fire(order), SendResult::kSent);
  ASSERT_EQ(a->queue().sent().size(), before + 1);
  SentFrame fired = a->queue().sent().back();
  EXPECT_EQ(a->queue().visible(), before + 1);
  EXPECT_EQ(base::LoadBe32(&fired.bytes[kTcp + 4]), base::LoadBe32(&sent.bytes[kTcp + 4]) + 13);
  // All else is the same but the time.
  std::copy_n(&sent.bytes[kTcp + 4], 4, &fired.bytes[kTcp + 4]);
  std::copy_n(&sent.bytes[kTcp + 24], 8, &fired.bytes[kTcp + 24]);
  EXPECT_EQ(fired.bytes, sent.bytes);
  EXPECT_EQ(fired.flags, sent.flags);
  Run();
  EXPECT_EQ(b->Bytes(server), "buy 100 at 17buy 100 at 17");
}

// Of two blocks and of three, and with payload where timestamps would stand.
TEST_P(TcpPreparedContractTest, OfAnyLengthAndWithoutTimestampsItIsTheSegmentThatASendWouldBe) {
  TcpSettings settings;
  settings.timestamps = false;
  OpenConnection(settings);
  std::string all;
  for (size_t length = 1; length <= 160; length += 3) {
    std::string payload(length, ' ');
    std::iota(payload.begin(), payload.end(), static_cast<char>(length));
    ASSERT_EQ(a->Send(client, payload), SendResult::kSent);
    const SentFrame sent = a->queue().sent().back();
    Run();
    const Handle order = Prepare(payload);
    ASSERT_EQ(Fire(order), SendResult::kSent);
    SentFrame fired = a->queue().sent().back();
    EXPECT_EQ(base::LoadBe32(&fired.bytes[kTcp + 4]),
              base::LoadBe32(&sent.bytes[kTcp + 4]) + length);
    std::copy_n(&sent.bytes[kTcp + 4], 4, &fired.bytes[kTcp + 4]);
    ASSERT_EQ(fired.bytes, sent.bytes) << length;
    Run();
    ASSERT_TRUE(sends().Discard(order).ok());
    all += payload + payload;
  }
  EXPECT_EQ(b->Bytes(server), all);
}

// As sends: what is received needs the rest.
TEST_P(TcpPreparedContractTest, OrdersLeaveAQuarterOfThePool) {
  OpenConnection();
  const uint32_t quarter = a->ring->core().device.pool->capacity() / 4;
  std::vector<packet::Buffer*> held;
  while (FreeBuffers() > quarter + 1) held.push_back(a->ring->AcquireBuffer());
  const Handle first = Prepare("first");
  EXPECT_EQ(FreeBuffers(), quarter);
  const Handle second = Prepare("second");
  EXPECT_EQ(FreeBuffers(), quarter);
  for (packet::Buffer* buffer : held) packet::BufferPool::Release(buffer);
  EXPECT_EQ(Fire(second), SendResult::kSent);
  EXPECT_EQ(Fire(first), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "secondfirst");
}

TEST_P(TcpPreparedContractTest, ItsHeaderIsOfTheMomentItIsFired) {
  OpenConnection();
  const Handle order = Prepare("order");
  b->Send(server, "a tick");
  Run(kMillisecond);  // Less than a delayed acknowledgement waits.
  const uint32_t next = base::LoadBe32(&b->queue().sent().back().bytes[kTcp + 4]) + 6;
  now += 7 * kMillisecond;
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(base::LoadBe32(&LastFrame()[kTcp + 8]), next);
  const uint32_t value = base::LoadBe32(&LastFrame()[kTcp + 24]);
  const uint32_t peers = base::LoadBe32(&b->queue().sent().back().bytes[kTcp + 24]);
  EXPECT_EQ(base::LoadBe32(&LastFrame()[kTcp + 28]), peers) << "the peer's time, echoed";
  Run(100 * kMillisecond);
  EXPECT_EQ(a->queue().sent().size(), before + 1) << "the acknowledgement went with it";
  ASSERT_TRUE(sends().Rearm(order).ok());
  ASSERT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(base::LoadBe32(&LastFrame()[kTcp + 24]) - value, 100u) << "milliseconds later";
}

TEST_P(TcpPreparedContractTest, ItsTypeOfServiceAndTimeToLiveAreOfTheMomentItIsFired) {
  constexpr size_t kTos = 14 + 1, kTtl = 14 + 8;
  TcpSettings settings;
  OpenConnection(settings);
  const Handle order = Prepare("order");
  settings.tos = 0x10;
  settings.ttl = 7;
  ASSERT_TRUE(a->tcp().SetSettings(client, settings).ok());
  ASSERT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(LastFrame()[kTos], 0x10);
  EXPECT_EQ(LastFrame()[kTtl], 7);
}

TEST_P(TcpPreparedContractTest, ItsWindowIsOfTheMomentItIsFired) {
  constexpr uint16_t kWindow = 7'240;
  TcpSettings manual;
  manual.receive_window_bytes = kWindow;
  manual.manual_credit = true;
  OpenConnection(manual);
  b->Send(server, std::string(kWindow, 'x'));
  Run();
  const Handle closed = Prepare("closed");
  const Handle half = Prepare("half");
  const Handle open = Prepare("open");
  const auto window = [&] { return base::LoadBe16(&LastFrame()[kTcp + 14]); };
  ASSERT_EQ(Fire(closed), SendResult::kSent);
  EXPECT_EQ(window(), 0u);
  ASSERT_TRUE(a->tcp().Credit(client, kWindow / 2).ok());
  ASSERT_EQ(Fire(half), SendResult::kSent);
  EXPECT_EQ(window(), kWindow / 2);
  ASSERT_TRUE(a->tcp().Credit(client, kWindow / 2).ok());
  ASSERT_EQ(Fire(open), SendResult::kSent);
  EXPECT_EQ(window(), kWindow);
}

TEST_P(TcpPreparedContractTest, LeavesOnceUntilItIsArmedAgain) {
  OpenConnection();
  const Handle order = Prepare("buy 17");
  ASSERT_TRUE(sends().Patch(order, 4, Bytes("18")).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
  ASSERT_TRUE(sends().Patch(order, 4, Bytes("19")).ok());
  ASSERT_TRUE(sends().Rearm(order).ok());
  ASSERT_TRUE(sends().Cancel(order).ok());
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
  ASSERT_TRUE(sends().Rearm(order).ok());
  EXPECT_EQ(Fire(order), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "buy 18buy 19");
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  EXPECT_EQ(report.in_flight, 0u);
}

TEST_P(TcpPreparedContractTest, WhatWasFiredIsKeptUntilItIsAcknowledged) {
  OpenConnection();
  const Handle order = Prepare("buy 17");
  bool lost = true;
  a->lose = [&](const auto& frame) { return lost && TcpPayloadOf(frame) > 0; };
  ASSERT_EQ(Fire(order), SendResult::kSent);
  // What is armed and patched next is another send.
  ASSERT_TRUE(sends().Rearm(order).ok());
  ASSERT_TRUE(sends().Patch(order, 0, Bytes("SELL 9")).ok());
  Run(kMillisecond);
  lost = false;
  Run(2'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server), "buy 17");
  EXPECT_EQ(Fire(order), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "buy 17SELL 9");
}

TEST_P(TcpPreparedContractTest, NothingIsQueuedAndARefusedOneStaysArmed) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 2'048;
  OpenConnection({}, tiny);
  const Handle order = Prepare("order");
  ASSERT_EQ(a->Send(client, std::string(2'046, 'x')), SendResult::kSent);
  EXPECT_EQ(Fire(order), SendResult::kRefusedWindow);
  EXPECT_EQ(a->Counter("ring", "refused_window"), 1u);
  Run();
  EXPECT_EQ(b->Bytes(server), std::string(2'046, 'x'));
  b->Clear();
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
  EXPECT_EQ(Fire(order), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "order");
}

TEST_P(TcpPreparedContractTest, BehindQueuedBytesItIsRefused) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 2'048;
  OpenConnection({}, tiny);
  const Handle order = Prepare("order");
  ASSERT_EQ(a->Send(client, std::string(3'000, 'x')), SendResult::kQueued);
  EXPECT_EQ(Fire(order), SendResult::kRefusedWindow);
}

TEST_P(TcpPreparedContractTest, NagleKeepsNoPreparedSend) {
  TcpSettings nagle;
  nagle.nodelay = false;
  OpenConnection(nagle);
  ASSERT_EQ(a->Send(client, "first"), SendResult::kSent);
  EXPECT_EQ(Fire(Prepare("second")), SendResult::kSent);
  // Nor one that is too long for the short way, nor any other that may not queue.
  EXPECT_EQ(Fire(Prepare(std::string(1'000, 'l'))), SendResult::kSent);
  EXPECT_EQ(a->Send(client, "fourth", {.flags = kNowOrFail}), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "firstsecond" + std::string(1'000, 'l') + "fourth");
}

TEST_P(TcpPreparedContractTest, PreparedBeforeItIsEstablishedItIsReadyThen) {
  Open();
  b->Listen(kPort);
  client = a->Connect({kB, kPort});
  const Handle order = Prepare("order");
  EXPECT_EQ(Fire(order), SendResult::kRefusedState);
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  EXPECT_NE(sends().Find(order)->built_for, PreparedSend::kNotBuilt);
  EXPECT_EQ(Fire(order), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(b->Of(Kind::kAccepted)[0].socket), "order");
}

TEST_P(TcpPreparedContractTest, TxWireComesAtItsFirstCopy) {
  OpenConnection();
  b->lose = [](const auto&) { return true; };  // No acknowledgement comes.
  const Handle order = Prepare("order");
  EXPECT_EQ(Fire(order, {.flags = kSendWantWire | kSendWantDone, .cookie = 5}),
            SendResult::kSent);
  const uint64_t fired_at = now;
  Run(kMillisecond);
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxWire});
  EXPECT_EQ(a->got[0].cookie, 5u);
  EXPECT_EQ(a->got[0].hw_clock, fired_at + 100'000);  // As the wire took it.
  b->lose = nullptr;
  Run(1'000 * kMillisecond, kMillisecond);
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTxWire, Kind::kTxDone}));
  EXPECT_EQ(a->got[1].cookie, 5u);
  EXPECT_EQ(a->got[1].status, 0);
}

TEST_P(TcpPreparedContractTest, TxWireSaysHowFarItsTimeMayBeOffAndThatItIsThePorts) {
  nic_options.time = nic::TimeSource::kPort;
  OpenConnection();
  a->ring->OnClock({.host = {.multiplier = 1, .error_bound_ns = 30, .in_sync = true}, .ptp = {}},
                   {});
  EXPECT_EQ(Fire(Prepare("order"), {.flags = kSendWantWire}), SendResult::kSent);
  Run(kMillisecond);
  const std::vector<Completion> wires = a->Of(Kind::kTxWire);
  ASSERT_EQ(wires.size(), 1u);
  EXPECT_EQ(wires[0].error_ns, 30u);
  EXPECT_EQ(wires[0].flags, kPortTime | kClockSynced);
}

TEST_P(TcpPreparedContractTest, TxDoneWaitsForTheAcknowledgementAndForThePostedWqe) {
  OpenConnection();
  a->complete_sends = false;
  const Handle order = Prepare("order");
  EXPECT_EQ(Fire(order, {.flags = kSendWantWire | kSendWantDone, .cookie = 5}),
            SendResult::kSent);
  Run(100 * kMillisecond);
  EXPECT_EQ(b->Bytes(server), "order");
  EXPECT_TRUE(a->got.empty()) << "acknowledged, and a posted WQE refers to it";
  a->queue().CompleteSends(/*hw_clock=*/77);
  Run(kMillisecond);
  EXPECT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTxWire, Kind::kTxDone}));
}

TEST_P(TcpPreparedContractTest, HolesOfTheReceiverAreToldWithIt) {
  OpenConnection();
  const Handle order = Prepare("order");
  int data = 0;
  b->lose = [&](const auto& frame) { return TcpPayloadOf(frame) > 0 && data++ == 0; };
  b->Send(server, "lost");
  b->Send(server, "came");
  Carry(*b, *a);
  a->Poll();
  ASSERT_EQ(Fire(order), SendResult::kSent);
  EXPECT_GT(LastFrame()[kTcp + 12] >> 4, 8) << "more options than timestamps";
  Run(3'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(a->Bytes(client), "lostcame");
  EXPECT_EQ(b->Bytes(server), "order");
}

TEST_P(TcpPreparedContractTest, FollowsTheNextHop) {
  OpenConnection();
  const Handle order = Prepare("order");
  const wire::MacAddress moved({2, 0, 0, 0, 0, 9});
  a->kernel->tables().neighbours[0].mac = moved;
  a->kernel->Publish();
  a->Settle();
  ASSERT_EQ(Fire(order), SendResult::kSent);
  EXPECT_EQ(wire::MacAddress::Load(LastFrame().data()), moved);
}

TEST_P(TcpPreparedContractTest, AWarmFireReachesNoWireAndLeavesItArmed) {
  OpenConnection();
  const Handle order = Prepare("order");
  EXPECT_EQ(Fire(order, {.flags = kWarm}), SendResult::kSent);
  EXPECT_NE(a->queue().sent().back().flags & nic::kTxWarm, 0);
  EXPECT_EQ(Fire(order), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "order");
}

TEST_P(TcpPreparedContractTest, WithoutADoorbellItWaitsForTheFlush) {
  OpenConnection();
  const uint32_t before = a->queue().visible();
  EXPECT_EQ(Fire(Prepare("one "), {.flags = kNoDoorbell}), SendResult::kSent);
  EXPECT_EQ(Fire(Prepare("two"), {.flags = kNoDoorbell}), SendResult::kSent);
  EXPECT_EQ(a->queue().visible(), before);
  a->ring->Flush();
  EXPECT_EQ(a->queue().visible(), before + 2);
  Run();
  EXPECT_EQ(b->Bytes(server), "one two");
}

TEST_P(TcpPreparedContractTest, ItsBufferGoesBackHoweverItEnds) {
  OpenConnection();
  const uint32_t free = FreeBuffers();
  const Handle discarded = Prepare("1");
  const Handle fired = Prepare("2");
  Prepare("3");
  EXPECT_EQ(FreeBuffers(), free - 3);
  EXPECT_TRUE(sends().Discard(discarded).ok());
  EXPECT_EQ(Fire(fired), SendResult::kSent);
  Run();
  EXPECT_EQ(FreeBuffers(), free - 1) << "the peer has it";
  ASSERT_TRUE(a->tcp().Close(client).ok());
  EXPECT_EQ(sends().Find(fired), nullptr);
  Run();
  EXPECT_EQ(FreeBuffers(), free);
}

TEST_P(TcpPreparedContractTest, OfAConnectionThatEndedItIsRefusedAndThenGone) {
  OpenConnection();
  const Handle order = Prepare("order");
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  Carry(*b, *a);
  a->ring->OnPortEvent(nic::PortEvent::kLinkDown);
  Completion first;
  ASSERT_EQ(a->ring->Poll(&first, 1, sizeof(Completion)), 1u);  // TERMINATED waits.
  if (sends().Find(order) != nullptr) {
    EXPECT_EQ(Fire(order), SendResult::kRefusedState);
  }
  a->Poll();
  EXPECT_EQ(a->got.back().kind, Kind::kTerminated);
  EXPECT_EQ(sends().Find(order), nullptr);
}

TEST_P(TcpPreparedContractTest, AnotherThreadFiresThroughItsLane) {
  OpenConnection();
  const Handle order = Prepare("order");
  const auto lane = a->ring->OpenLane();
  std::thread strategy([&] { EXPECT_EQ(lane->Fire(order, 31, kSendWantDone), 0); });
  strategy.join();
  Run(100 * kMillisecond);
  EXPECT_EQ(b->Bytes(server), "order");
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxDone});
  EXPECT_EQ(a->got[0].cookie, 31u);
}

// What is told of the connection would be behind its last, and is handed out no more.
TEST_P(TcpPreparedContractTest, ALanesFireBehindTheEndIsToldOfNoSocket) {
  OpenConnection();
  const Handle order = Prepare("order");
  const auto lane = a->ring->OpenLane();
  b->tcp().Abort(server);
  Carry(*b, *a);
  a->ring->OnPortEvent(nic::PortEvent::kLinkDown);
  Completion first;
  ASSERT_EQ(a->ring->Poll(&first, 1, sizeof(Completion)), 1u);  // TERMINATED waits.
  ASSERT_EQ(lane->Fire(order, 31, kSendWantDone), 0);
  a->Poll();
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTerminated, Kind::kError, Kind::kTxDone}));
  for (const Completion& told : {a->got[1], a->got[2]}) {
    EXPECT_EQ(told.socket, 0u);
    EXPECT_EQ(told.cookie, 31u);
  }
  EXPECT_EQ(a->got[1].status, EBADF);
  EXPECT_EQ(a->got[2].status, ECANCELED);
}

TEST_P(TcpPreparedContractTest, WhatCannotBePreparedSaysWhy) {
  OpenConnection();
  Handle prepared = 0;
  EXPECT_EQ(b->tcp().PrepareSend(listener, Bytes("x"), &prepared).error, ENOTCONN);
  EXPECT_EQ(a->tcp().PrepareSend(client, {}, &prepared).error, EINVAL);
  const std::string longer(1024 * 1024 + 1, 'x');
  EXPECT_EQ(a->tcp().PrepareSend(client, Bytes(longer), &prepared).error, EMSGSIZE);
  a->tcp().Close(client);
  EXPECT_EQ(a->tcp().PrepareSend(client, Bytes("x"), &prepared).error, EBADF);
}

}  // namespace
}  // namespace xtreme::engine::testing
