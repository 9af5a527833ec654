// SPDX-License-Identifier: Apache-2.0
//
// The completion contract for TCP, clause by clause, by name: two rings and a wire in the test's
// hands.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "stack/wire/tcp.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/tcp_pair.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine::testing {
namespace {

using TcpContractTest = TcpPairTest;

constexpr uint64_t kSecond = 1'000'000'000;

bool IsData(const std::vector<uint8_t>& frame) { return TcpPayloadOf(frame) > 0; }

std::vector<Kind> KindsOf(const std::vector<Completion>& completions, Handle socket) {
  std::vector<Kind> kinds;
  for (const Completion& completion : completions) {
    if (completion.socket == socket) kinds.push_back(completion.kind);
  }
  return kinds;
}

// --- Connecting ---

TEST_F(TcpContractTest, EveryConnectEndsInExactlyOneOfEstablishedAndTerminated) {
  Open();
  b->Listen(kPort);
  TcpSettings quick;
  quick.connect_timeout = base::Seconds(1);
  const Handle good = a->Connect({kB, kPort}, quick);
  const Handle silent = a->Connect({kB, 1}, quick);  // No rule at b: nobody answers.
  const Handle unknown = a->Connect({{10, 0, 0, 77}, kPort}, quick);  // No next hop.
  const Handle closed = a->Connect({{10, 0, 0, 77}, kPort}, quick);
  ASSERT_TRUE(a->tcp().Close(closed).ok());
  Run(10 * kSecond, 10'000'000);
  EXPECT_EQ(KindsOf(a->got, good), std::vector<Kind>{Kind::kEstablished});
  std::set<std::pair<Handle, int>> ended;
  for (const Completion& completion : a->Of(Kind::kTerminated)) {
    ended.insert({completion.socket, completion.status});
  }
  EXPECT_EQ(ended, (std::set<std::pair<Handle, int>>{
                       {silent, ETIMEDOUT}, {unknown, EHOSTUNREACH}, {closed, ECANCELED}}));
  EXPECT_EQ(a->Of(Kind::kTerminated).size(), 3u);
}

// A segment of no connection waits behind what others asked of the ring.
TEST_F(TcpContractTest, HandshakeGoesOnWhereTheMailboxIsNeverEmpty) {
  Open();
  b->Listen(kPort);
  client = a->Connect({kB, kPort});
  for (int i = 0; i < 50; ++i) {
    now += 100'000;
    Carry(*a, *b);
    Carry(*b, *a);
    b->ring->Wake();
    b->Poll();
    a->Poll();
    if (i == 20) a->Send(client, "hello");
  }
  ASSERT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kAccepted, Kind::kPacket}));
  EXPECT_EQ(b->Bytes(b->got[0].socket), "hello");
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
}

TEST_F(TcpContractTest, ConnectToWhomDidNotAnswerLatelyAsksAnew) {
  Open();
  a->Connect({{10, 0, 0, 77}, kPort});
  Run(3 * kSecond + kSecond / 2, 10'000'000);
  ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  const uint64_t asked = a->Counter("ring", "arp_requests");
  const Handle again = a->Connect({{10, 0, 0, 77}, kPort});
  a->Poll();
  EXPECT_EQ(a->Counter("ring", "arp_requests"), asked + 1);
  EXPECT_TRUE(KindsOf(a->got, again).empty()) << "a loop of connects would spin";
  Run(3 * kSecond + kSecond / 2, 10'000'000);
  EXPECT_EQ(KindsOf(a->got, again), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got.back().status, EHOSTUNREACH);
}

TEST_F(TcpContractTest, AConnectThatIsRefusedIsTerminatedWithEconnrefused) {
  Open();
  b->Listen(kPort);
  const Handle other = b->Connect({kA, 1});  // b has leased its block: there it answers.
  ASSERT_NE(other, 0u);
  TcpReport report;
  ASSERT_TRUE(b->tcp().Report(other, &report));
  const Handle refused = a->Connect({kB, report.local.port});
  Run();
  EXPECT_EQ(KindsOf(a->got, refused), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got.back().status, ECONNREFUSED);
}

TEST_F(TcpContractTest, AConnectWithoutAFreePortIsTerminatedAndTheNextTriesAgain) {
  Open();
  a->kernel->TakeBlocks();
  const Handle refused = a->Connect({kB, kPort});
  EXPECT_EQ(KindsOf(a->got, refused), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got.back().status, EADDRINUSE);
  EXPECT_EQ(a->tcp().sockets(), 0u);
}

TEST_F(TcpContractTest, ConnectNeedsTheControlThreadForTheFirstOfABlockOnly) {
  options.tcp_ports_log2 = 10;
  options.max_connections = 2048;
  Open();
  b->Listen(kPort);
  const Handle first = a->Connect({kB, kPort});
  Run(1'000'000);
  ASSERT_EQ(KindsOf(a->got, first), std::vector<Kind>{Kind::kEstablished});
  a->Clear();
  const size_t rules = a->nic->rules().size();
  const size_t ports = a->kernel->ports();
  const uint64_t notices = a->Counter("ring", "notices");
  for (int batch = 0; batch < 50; ++batch) {
    for (int i = 0; i < 20; ++i) {
      Handle handle = 0;
      ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort}}, &handle).ok());
    }
    Run(1'000'000);
  }
  EXPECT_EQ(a->Of(Kind::kEstablished).size(), 1000u);
  EXPECT_EQ(b->Of(Kind::kAccepted).size(), 1001u);
  EXPECT_EQ(a->nic->rules().size(), rules);
  EXPECT_EQ(a->kernel->ports(), ports);
  EXPECT_EQ(a->Counter("ring", "notices"), notices);
}

TEST_F(TcpContractTest, ASynLeavesOnlyWhenItsRuleStandsAndTheNextHopIsKnown) {
  Open();
  Handle handle = 0;
  ASSERT_TRUE(a->tcp().Connect({.peer = {{10, 0, 0, 77}, kPort}}, &handle).ok());
  EXPECT_TRUE(a->queue().sent().empty());
  a->Settle();
  ASSERT_EQ(a->nic->rules().size(), 1u);
  EXPECT_EQ(a->nic->rules()[0].match.destination_port_mask, 0xFFC0);
  ASSERT_EQ(a->queue().sent().size(), 1u);  // ARP.
  EXPECT_EQ(a->queue().sent()[0].bytes[13], 0x06);
  a->kernel->Answer({10, 0, 0, 77}, wire::MacAddress({2, 0, 0, 0, 0, 77}));
  a->Poll();
  ASSERT_EQ(a->queue().sent().size(), 2u);
  EXPECT_EQ(a->queue().sent()[1].bytes[5], 77);
  EXPECT_EQ(TcpFlagsOf(a->queue().sent()[1].bytes), wire::kTcpSyn);
}

// --- Accepting ---

TEST_F(TcpContractTest, AcceptedComesBeforeItsData) {
  Open();
  b->Listen(kPort);
  const Handle connecting = a->Connect({kB, kPort});
  EXPECT_EQ(a->Send(connecting, "early"), SendResult::kQueued);
  // The server's thread is late: handshake, data and FIN wait for one poll.
  Carry(*a, *b);
  b->Poll();
  Carry(*b, *a);
  a->Poll();
  ASSERT_TRUE(a->tcp().Close(connecting).ok());
  Carry(*a, *b);
  b->Poll();
  ASSERT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kAccepted, Kind::kPacket, Kind::kPeerClosed}));
  EXPECT_EQ(b->Bytes(b->got[0].socket), "early");
}

TEST_F(TcpContractTest, UserDataIsInheritedByChildrenUntilSet) {
  OpenConnection();
  a->Send(client, "x");
  Run();
  ASSERT_TRUE(b->tcp().SetUserData(server, 7).ok());
  a->Send(client, "y");
  Run();
  const auto packets = b->Of(Kind::kPacket);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].user_data, 99u);
  EXPECT_EQ(packets[1].user_data, 7u);
}

TEST_F(TcpContractTest, WhatAClosedListenerAcceptedAndDidNotHandOutIsReset) {
  Open();
  const Handle closing = b->Listen(kPort);
  const Handle connecting = a->Connect({kB, kPort});
  Carry(*a, *b);
  b->Poll();
  Carry(*b, *a);
  a->Poll();
  Carry(*a, *b);
  // A poll that is full before the ACCEPTED: that waits.
  b->ring->OnPortEvent(nic::PortEvent::kLinkDown);
  Completion first;
  ASSERT_EQ(b->ring->Poll(&first, 1, sizeof(Completion)), 1u);
  ASSERT_EQ(first.kind, Kind::kRing);
  ASSERT_EQ(b->tcp().sockets(), 2u);
  ASSERT_TRUE(b->tcp().Close(closing).ok());
  b->Settle();
  Run();
  b->Settle();
  EXPECT_EQ(b->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(KindsOf(a->got, connecting),
            (std::vector<Kind>{Kind::kEstablished, Kind::kTerminated}));
  EXPECT_EQ(a->got.back().status, ECONNRESET);
  EXPECT_EQ(b->tcp().sockets(), 0u);
  EXPECT_EQ(b->nic->rules().size(), 0u);
}

// --- The end ---

TEST_F(TcpContractTest, PeerClosedComesAfterTheLastByteThoughTheFinCameFirst) {
  OpenConnection();
  int data = 0;
  a->lose = [&](const auto& frame) { return IsData(frame) && data++ == 0; };
  a->Send(client, "first");
  a->Send(client, "second");
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  Run(3 * kSecond, 1'000'000);
  const auto kinds = b->Kinds();
  ASSERT_FALSE(kinds.empty());
  EXPECT_EQ(kinds.back(), Kind::kPeerClosed);
  EXPECT_EQ(b->Of(Kind::kPeerClosed).size(), 1u);
  EXPECT_EQ(b->Bytes(server), "firstsecond");
  // The other way is still open.
  EXPECT_EQ(b->Send(server, "answer"), SendResult::kSent);
  Run();
  EXPECT_EQ(a->Bytes(client), "answer");
}

TEST_F(TcpContractTest, TerminatedIsLastAndComesOnceWithItsErrno) {
  OpenConnection();
  a->Send(client, "unread");
  ASSERT_TRUE(a->tcp().Abort(client).ok());
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got[0].status, ECONNABORTED);
  EXPECT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kPacket, Kind::kTerminated}));
  EXPECT_EQ(b->got.back().status, ECONNRESET);
  Run(5 * kSecond, 10'000'000);
  EXPECT_EQ(a->got.size(), 1u);
  EXPECT_EQ(b->got.size(), 2u);
  EXPECT_EQ(b->tcp().sockets(), 1u);  // The listener.
}

TEST_F(TcpContractTest, ASilentPeerEndsAFailFastConnectionWithEtimedout) {
  OpenConnection(TcpSettings::Of(TcpPreset::kFailFast));
  a->lose = b->lose = [](const auto&) { return true; };
  Run(10 * kSecond, 10'000'000);
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got[0].status, ETIMEDOUT);
}

TEST_F(TcpContractTest, AfterCloseOnlyTxDoneAndTerminatedCome) {
  OpenConnection();
  a->Send(client, "question", {.flags = kSendWantDone, .cookie = 5});
  b->Send(server, "unwanted");
  ASSERT_TRUE(b->tcp().Shutdown(server).ok());
  ASSERT_TRUE(a->tcp().Close(client).ok());
  Run();
  const auto kinds = a->Kinds();
  for (const Kind kind : kinds) EXPECT_TRUE(kind == Kind::kTxDone || kind == Kind::kTerminated);
  ASSERT_FALSE(kinds.empty());
  EXPECT_EQ(kinds.back(), Kind::kTerminated);
}

TEST_F(TcpContractTest, ADetachedConnectionTellsNothingAndGoesOnUntilThePeerHasEverything) {
  OpenConnection();
  a->Send(client, "last words", {.flags = kSendWantDone, .cookie = 5});
  ASSERT_TRUE(a->tcp().Detach(client).ok());
  EXPECT_EQ(a->tcp().Find(client), nullptr);
  EXPECT_FALSE(a->tcp().Quiescent());
  Run();
  EXPECT_EQ(b->Bytes(server), "last words");
  ASSERT_TRUE(b->tcp().Close(server).ok());
  Run();
  EXPECT_TRUE(a->got.empty());
  EXPECT_TRUE(a->tcp().Quiescent());
  EXPECT_EQ(a->tcp().sockets(), 0u);
}

TEST_F(TcpContractTest, StaleHandlesAreRefused) {
  OpenConnection();
  ASSERT_TRUE(a->tcp().Abort(client).ok());
  Run();
  const Handle next = a->Connect({kB, kPort});
  EXPECT_NE(next, client);
  EXPECT_EQ(a->tcp().Find(client), nullptr);
  EXPECT_EQ(a->tcp().Close(client).error, EBADF);
  EXPECT_EQ(a->tcp().Credit(client, 1).error, EBADF);
  EXPECT_EQ(a->tcp().SetUserData(client, 1).error, EBADF);
  EXPECT_EQ(a->tcp().Shutdown(client).error, EBADF);
}

TEST_F(TcpContractTest, AClosedRingResetsItsConnections) {
  OpenConnection();
  a->Clear();
  MemoryNic* const to = b->nic;
  // The queue's frames go with the ring: what its end posts is looked at as it is posted.
  bool reset = false;
  a->queue().on_post = [&](const SentFrame& frame) {
    reset |= (TcpFlagsOf(frame.bytes) & wire::kTcpRst) != 0;
    to->Deliver(frame.bytes, now);
  };
  a->ring.reset();
  EXPECT_TRUE(reset);
  b->Poll();
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(b->got[0].status, ECONNRESET);
}

// --- Sending ---

TEST_F(TcpContractTest, NowOrFailNeverQueuesAndWouldSendSaysSo) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 2'048;
  OpenConnection({}, tiny);
  Tcp& tcp = a->tcp();
  EXPECT_EQ(tcp.WouldSend(tcp.Find(client), 2'000), SendResult::kSent);
  EXPECT_EQ(a->Send(client, std::string(2'000, 'x'), {.flags = kNowOrFail}), SendResult::kSent);
  EXPECT_EQ(tcp.WouldSend(tcp.Find(client), 2'000), SendResult::kRefusedWindow);
  EXPECT_EQ(a->Send(client, std::string(2'000, 'y'), {.flags = kNowOrFail}),
            SendResult::kRefusedWindow);
  EXPECT_EQ(a->Counter("ring", "refused_window"), 1u);
  EXPECT_EQ(a->Send(client, std::string(2'000, 'z')), SendResult::kQueued);
  Run();
  EXPECT_EQ(b->Bytes(server).substr(0, 2'000), std::string(2'000, 'x'));
}

TEST_F(TcpContractTest, SendSomeTakesWhatFits) {
  TcpSettings small;
  small.send_queue_bytes = 1'000;
  OpenConnection(small);
  const std::vector<uint8_t> bytes(1'500, 'x');
  SendResult result;
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client), bytes, {}, &result), 1'000u);
  EXPECT_EQ(result, SendResult::kSent);
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client), bytes, {}, &result), 0u);
  EXPECT_EQ(result, SendResult::kRefusedWindow);
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
}

TEST_F(TcpContractTest, SendSomeThatMayNotWaitTakesWhatLeavesAtOnce) {
  OpenConnection();
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  const std::vector<uint8_t> bytes(100'000, 'x');
  SendResult result;
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client), bytes, {.flags = kNowOrFail}, &result),
            report.congestion_window);
  EXPECT_EQ(result, SendResult::kSent);
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client), bytes, {.flags = kNowOrFail}, &result), 0u);
  EXPECT_EQ(result, SendResult::kRefusedCongestion);
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
}

TEST_F(TcpContractTest, SendSomeTakesWhatThereIsMemoryFor) {
  OpenConnection();
  std::vector<packet::Buffer*> held;
  while (a->Counter("pool", "free") > 3) held.push_back(a->ring->AcquireBuffer());
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  const std::vector<uint8_t> bytes(100'000, 'x');
  SendResult result;
  EXPECT_EQ(a->tcp().SendSome(a->tcp().Find(client), bytes, {}, &result), 3u * report.mss);
  EXPECT_EQ(result, SendResult::kSent);
  for (packet::Buffer* buffer : held) packet::BufferPool::Release(buffer);
}

// A pause forgets what the congestion window had grown to (RFC 5681 section 4.1).
TEST_F(TcpContractTest, NowOrFailAfterAPauseIsNeverQueued) {
  OpenConnection();
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  const uint32_t at_first = report.congestion_window;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(a->Send(client, std::string(at_first, 'x'), {.flags = kNowOrFail}),
              SendResult::kSent);
    Run();
  }
  ASSERT_TRUE(a->tcp().Report(client, &report));
  ASSERT_GT(report.congestion_window, 2 * at_first);
  const std::string longer(at_first + 1'000, 'y');
  EXPECT_EQ(a->tcp().WouldSend(a->tcp().Find(client), longer.size()), SendResult::kSent);
  now += 60'000'000'000;
  EXPECT_EQ(a->Send(client, longer, {.flags = kNowOrFail}), SendResult::kRefusedCongestion);
  EXPECT_EQ(a->tcp().WouldSend(a->tcp().Find(client), longer.size()),
            SendResult::kRefusedCongestion);
  EXPECT_EQ(a->Send(client, std::string(at_first, 'z'), {.flags = kNowOrFail}),
            SendResult::kSent);
}

TEST_F(TcpContractTest, TxWireComesAtTheFirstCopy) {
  OpenConnection();
  a->lose = [](const auto& frame) { return IsData(frame); };
  a->Send(client, "order", {.flags = kSendWantWire, .cookie = 11});
  a->Poll();
  EXPECT_TRUE(a->got.empty());  // Posted, not completed.
  const uint64_t left_at = now += 1'000;
  a->queue().CompleteSends(left_at);
  a->Poll();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxWire});
  EXPECT_EQ(a->got[0].cookie, 11u);
  EXPECT_EQ(a->got[0].hw_clock, left_at);
  // Copies that follow are not told.
  Run(3 * kSecond, 1'000'000);
  EXPECT_EQ(a->got.size(), 1u);
  EXPECT_GT(a->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpContractTest, TxDoneWaitsForTheAcknowledgementAndForEveryPostedWqe) {
  OpenConnection();
  const std::string big(1'000, 'x');  // Gathered: its WQE refers to the bytes.
  b->lose = [](const auto&) { return true; };
  a->Send(client, big, {.flags = kSendWantDone, .cookie = 21});
  Run();
  EXPECT_TRUE(a->got.empty());  // Sent, not acknowledged.
  // A retransmission is posted, and stays in the send queue.
  a->complete_sends = false;
  const uint64_t before = a->Counter("tcp", "retransmits");
  while (a->Counter("tcp", "retransmits") == before) Run(1'000'000);
  b->lose = nullptr;
  b->Send(server, "with it comes the acknowledgement");
  Run(1'000'000);
  EXPECT_EQ(a->Of(Kind::kPacket).size(), 1u);
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  EXPECT_EQ(report.in_flight, 0u);
  EXPECT_TRUE(a->Of(Kind::kTxDone).empty());
  a->complete_sends = true;
  Run(1'000'000);
  ASSERT_EQ(a->Of(Kind::kTxDone).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTxDone)[0].cookie, 21u);
  EXPECT_EQ(a->Of(Kind::kTxDone)[0].status, 0);
}

TEST_F(TcpContractTest, TxDoneOfWhatMayNotHaveArrivedIsCancelledBeforeTerminated) {
  OpenConnection();
  a->lose = [](const auto& frame) { return IsData(frame); };
  a->Send(client, "never", {.flags = kSendWantDone, .cookie = 31});
  ASSERT_TRUE(a->tcp().Abort(client).ok());
  Run();
  ASSERT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kTxDone, Kind::kTerminated}));
  EXPECT_EQ(a->got[0].cookie, 31u);
  EXPECT_EQ(a->got[0].status, ECANCELED);
}

TEST_F(TcpContractTest, ADeviceThatIsPulledEndsItsConnections) {
  OpenConnection();
  const Handle opening = a->Connect({kB, kPort + 1});
  a->complete_sends = false;
  a->Send(client, std::string(1'000, 'x'), {.flags = kSendWantDone, .cookie = 41});
  a->ring->OnPortEvent(nic::PortEvent::kDeviceRemoved);
  Run();
  const std::vector<Completion> ends = a->Of(Kind::kTerminated);
  ASSERT_EQ(ends.size(), 2u);
  for (const Completion& end : ends) EXPECT_EQ(end.status, ENETDOWN);
  EXPECT_TRUE(ends[0].socket == opening || ends[1].socket == opening);
  ASSERT_EQ(a->Of(Kind::kTxDone).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTxDone)[0].status, ECANCELED);
  EXPECT_EQ(a->Send(client, "after"), SendResult::kRefusedState);
}

TEST_F(TcpContractTest, OneDoorbellForMany) {
  OpenConnection();
  const uint32_t visible = a->queue().visible();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(a->Send(client, "x", {.flags = kNoDoorbell}), SendResult::kSent);
  }
  EXPECT_EQ(a->queue().visible(), visible);
  a->ring->Flush();
  EXPECT_EQ(a->queue().visible(), visible + 5);
  Run();
  EXPECT_EQ(b->Bytes(server), "xxxxx");
}

TEST_F(TcpContractTest, AFullSendQueueRefusesAndWhatWaitsGoesOnWhenThereIsRoom) {
  OpenConnection();
  a->complete_sends = false;
  std::string sent;
  SendResult result = SendResult::kSent;
  for (int i = 0; i < 100 && result == SendResult::kSent; ++i) {
    const std::string bytes(10, static_cast<char>('a' + i % 26));
    result = a->Send(client, bytes, {.flags = kNowOrFail});
    if (result == SendResult::kSent) sent += bytes;
    Carry(*a, *b);
    b->Poll();
    Carry(*b, *a);
    a->Poll();
  }
  EXPECT_EQ(result, SendResult::kRefusedSqFull);
  a->complete_sends = true;
  Run();
  EXPECT_EQ(a->Of(Kind::kTxSpace).size(), 1u);
  EXPECT_EQ(b->Bytes(server), sent);
}

TEST_F(TcpContractTest, AWarmSendReachesNoWireAndChangesNothing) {
  OpenConnection();
  const size_t posted = a->queue().sent().size();
  const packet::BufferPool& pool = *a->ring->core().device.pool;
  const uint32_t free = pool.free_count();
  EXPECT_EQ(a->Send(client, "warm", {.flags = kWarm}), SendResult::kSent);
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  EXPECT_EQ(a->tcp().Send(a->tcp().Find(client),
                          {.data = buffer->data, .length = 4, .buffer = buffer},
                          {.flags = kWarm | kSendWantDone}),
            SendResult::kSent);
  EXPECT_EQ(pool.free_count(), free) << "its reference was taken over";
  ASSERT_EQ(a->queue().sent().size(), posted + 2);
  for (const size_t warm : {posted, posted + 1}) {
    EXPECT_NE(a->queue().sent()[warm].flags & nic::kTxWarm, 0);
  }
  EXPECT_EQ(a->Send(client, "real"), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "real");
  EXPECT_TRUE(a->got.empty()) << "nothing is told of it";
}

TEST_F(TcpContractTest, ASendInPlaceKeepsItsBufferUntilItIsDone) {
  OpenConnection();
  packet::BufferPool& pool = *a->ring->core().device.pool;
  const uint32_t free = pool.free_count();
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  memset(buffer->data, 'p', 1'400);
  Tcp& tcp = a->tcp();
  EXPECT_EQ(tcp.Send(tcp.Find(client), {.data = buffer->data, .length = 1'400, .buffer = buffer},
                     {.flags = kSendWantDone, .cookie = 1}),
            SendResult::kSent);
  EXPECT_EQ(pool.free_count(), free - 1);
  Run();
  EXPECT_EQ(a->Of(Kind::kTxDone).size(), 1u);
  EXPECT_EQ(pool.free_count(), free);
  EXPECT_EQ(b->Bytes(server), std::string(1'400, 'p'));
}

// --- Receiving ---

TEST_F(TcpContractTest, BuffersOfAClosedSocketAreReturned) {
  OpenConnection();
  packet::BufferPool& pool = *b->ring->core().device.pool;
  const auto in_use = [&] { return pool.free_count() + b->queue().posted(); };
  const uint32_t before = in_use();
  std::set<std::vector<uint8_t>> first;  // Sequence numbers: it never arrives.
  a->lose = [&](const auto& frame) {
    if (!IsData(frame)) return false;
    const std::vector<uint8_t> sequence(frame.begin() + 38, frame.begin() + 42);
    if (first.empty()) first.insert(sequence);
    return first.count(sequence) != 0;
  };
  for (int i = 0; i < 5; ++i) a->Send(client, std::string(1'000, 'x'));
  Run(1'000'000);
  EXPECT_LT(in_use(), before);  // Behind the hole.
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  Run();
  EXPECT_EQ(in_use(), before);
  EXPECT_TRUE(b->Of(Kind::kPacket).empty());
}

TEST_F(TcpContractTest, NothingIsDroppedOrMergedWhereASegmentMakesMoreDeliverableThanFits) {
  options.completions = 64;
  TcpSettings at_once;
  at_once.congestion = TcpCongestion::kNone;
  OpenConnection(at_once);
  Handle udp = 0;
  ASSERT_TRUE(b->ring->udp().Open({.local = {{}, 9000}}, &udp).ok());
  b->Settle();
  b->Clear();
  std::set<std::vector<uint8_t>> first;  // Sequence numbers: it arrives last.
  a->lose = [&](const auto& frame) {
    if (!IsData(frame)) return false;
    const std::vector<uint8_t> sequence(frame.begin() + 38, frame.begin() + 42);
    if (first.empty()) first.insert(sequence);
    return first.count(sequence) != 0;
  };
  std::string sent;
  for (int i = 0; i < 90; ++i) {
    const std::string bytes(300, static_cast<char>('a' + i % 26));
    ASSERT_GE(static_cast<int>(a->Send(client, bytes)), 0);
    sent += bytes;
    Carry(*a, *b);
    Carry(*b, *a);
    if (i < 89) a->Poll();
    // Two at a time: the poll of an application with little room.
    std::vector<Completion> some(2);
    const uint32_t count = b->ring->Poll(some.data(), 2, sizeof(Completion));
    b->got.insert(b->got.end(), some.begin(), some.begin() + count);
  }
  a->lose = nullptr;
  for (int i = 0; i < 3'000; ++i) {
    now += 1'000'000;
    Carry(*a, *b);
    Carry(*b, *a);
    a->Poll();
    b->Poll(2);
  }
  EXPECT_EQ(b->Bytes(server), sent);
  EXPECT_GT(a->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpContractTest, BytesArriveWholeBothWaysOverAWireThatLosesOneFrameInTwenty) {
  OpenConnection();
  std::mt19937 random(20);
  a->lose = b->lose = [&random](const auto&) { return random() % 20 == 0; };
  std::string up(200'000, ' ');
  for (char& byte : up) byte = static_cast<char>(random());
  const std::string down(up.rbegin(), up.rend());
  size_t up_at = 0;
  size_t down_at = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto some = [&](TcpEnd& end, Handle socket, const std::string& bytes, size_t* at) {
      const size_t length = std::min<size_t>(3'000, bytes.size() - *at);
      if (length == 0) return;
      SendResult result;
      *at += end.tcp().SendSome(end.tcp().Find(socket),
                                std::span(reinterpret_cast<const uint8_t*>(&bytes[*at]), length),
                                {}, &result);
    };
    some(*a, client, up, &up_at);
    some(*b, server, down, &down_at);
    Run(1'000'000, 500'000);
    if (b->Bytes(server).size() == up.size() && a->Bytes(client).size() == down.size()) break;
  }
  EXPECT_EQ(b->Bytes(server), up);
  EXPECT_EQ(a->Bytes(client), down);
  EXPECT_GT(a->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpContractTest, EachRunOfBytesHasTheHardwareTimeOfItsOwnSegment) {
  OpenConnection();
  int data = 0;
  a->lose = [&](const auto& frame) { return IsData(frame) && data++ == 0; };
  for (const char* bytes : {"one", "two", "three"}) {
    a->Send(client, bytes);
    now += 1'000;
    Carry(*a, *b);
  }
  Run(3 * kSecond, 1'000'000);
  const auto packets = b->Of(Kind::kPacket);
  ASSERT_EQ(packets.size(), 3u);
  // The first came last.
  EXPECT_GT(packets[0].hw_clock, packets[2].hw_clock);
  EXPECT_EQ(packets[2].hw_clock, packets[1].hw_clock + 1'000);
  EXPECT_EQ(b->Bytes(server), "onetwothree");
}

TEST_F(TcpContractTest, TimersAfterPackets) {
  OpenConnection();
  b->Send(server, "news");
  a->Send(client, "question");
  Carry(*a, *b);
  b->Poll();
  b->Send(server, "answer, and the acknowledgement");
  Carry(*b, *a);
  // a's thread stalls: its retransmission timer is long over, and the repair is in the queue,
  // behind what a poll of one frame takes first.
  now += 5 * kSecond;
  a->Poll(/*max=*/1);
  EXPECT_EQ(a->Of(Kind::kPacket).size(), 2u);
  EXPECT_EQ(a->Counter("tcp", "timeouts"), 0u);
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpContractTest, DatagramsAndSegmentsAreHandedOutInTheOrderOfTheReceiveQueue) {
  OpenConnection();
  Handle receiver = 0;
  ASSERT_TRUE(b->ring->udp().Open({.local = {kB, 9000}}, &receiver).ok());
  Handle sender = 0;
  ASSERT_TRUE(a->ring->udp().Open({.local = {kA, 9001}}, &sender).ok());
  a->Settle();
  b->Settle();
  a->Clear();
  b->Clear();
  std::vector<Handle> order;
  for (int i = 0; i < 8; ++i) {
    const bool is_tcp = i % 3 != 1;
    if (is_tcp) {
      a->Send(client, "t");
    } else {
      ASSERT_EQ(a->ring->udp().SendTo(a->ring->udp().Find(sender), {kB, 9000},
                                      {.data = reinterpret_cast<const uint8_t*>("u"), .length = 1},
                                      {}),
                SendResult::kSent);
    }
    order.push_back(is_tcp ? server : receiver);
  }
  Run(1'000'000);
  std::vector<Handle> came;
  for (const Completion& packet : b->Of(Kind::kPacket)) came.push_back(packet.socket);
  EXPECT_EQ(came, order);
}

TEST_F(TcpContractTest, WhatASegmentCausesStandsTogetherBeforeWhatCameAfterIt) {
  for (const uint32_t at_once : {64u, 1u}) {
    SCOPED_TRACE(at_once);
    Open();
    b->Listen(kPort);
    Handle receiver = 0;
    ASSERT_TRUE(b->ring->udp().Open({.local = {kB, 9000}}, &receiver).ok());
    Handle sender = 0;
    ASSERT_TRUE(a->ring->udp().Open({.local = {kA, 9001}}, &sender).ok());
    a->Settle();
    b->Settle();
    const auto send = [&] {
      const Payload payload{.data = reinterpret_cast<const uint8_t*>("u"), .length = 1};
      return a->ring->udp().SendTo(a->ring->udp().Find(sender), {kB, 9000}, payload, {});
    };
    ASSERT_EQ(send(), SendResult::kSent);  // From here on the driver knows its flow.
    const Handle connecting = a->Connect({kB, kPort});
    Carry(*a, *b);
    b->Poll();
    Carry(*b, *a);
    // The acknowledgement of SYN-ACK is lost: FIN ends the handshake too.
    a->lose = [](const auto& frame) {
      return frame[14 + 9] == wire::kIpProtocolTcp && TcpFlagsOf(frame) == wire::kTcpAck;
    };
    a->Poll();
    ASSERT_TRUE(a->tcp().Close(connecting).ok());
    ASSERT_EQ(send(), SendResult::kSent);
    Carry(*a, *b);
    b->Clear();
    b->Poll(at_once);
    EXPECT_EQ(b->Kinds(),
              (std::vector<Kind>{Kind::kAccepted, Kind::kPeerClosed, Kind::kPacket}));
    EXPECT_EQ(b->Counter("ring", "packets"), 2u);
  }
}

// --- Timers ---

TEST_F(TcpContractTest, KeepaliveLeavesASilentPeerToTheRetransmissionsWhileThereAreAny) {
  TcpSettings probing;
  probing.keepalive_idle = base::Milliseconds(20);
  OpenConnection(probing);
  a->lose = [](const auto&) { return true; };
  ASSERT_EQ(a->Send(client, "lost"), SendResult::kSent);
  now += 30'000'000;
  a->Poll();
  EXPECT_GT(a->tcp().NextDeadline().count(), static_cast<int64_t>(now + 10'000'000));
  Run(kSecond, 10'000'000);
  EXPECT_GT(a->Counter("tcp", "retransmits"), 0u);
  a->lose = nullptr;
  Run(2 * kSecond, 10'000'000);
  EXPECT_EQ(b->Bytes(server), "lost");
}

// --- Reports and memory ---

TEST_F(TcpContractTest, AReportTellsWhatIsInFlightAndSinceWhen) {
  OpenConnection();
  b->lose = [](const auto&) { return true; };
  a->Send(client, std::string(500, 'x'));
  now += 3'000'000;
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  EXPECT_EQ(report.state, TcpState::kEstablished);
  EXPECT_EQ(report.in_flight, 500u);
  EXPECT_EQ(report.oldest_unacknowledged, base::Milliseconds(3));
  EXPECT_EQ(report.peer.port, kPort);
  ASSERT_TRUE(b->tcp().Report(listener, &report));
  EXPECT_EQ(report.state, TcpState::kListen);
}

TEST_F(TcpContractTest, ARingWithoutConnectionsHasNoTcp) {
  options.max_connections = 0;
  Open();
  Handle handle = 0;
  EXPECT_EQ(a->tcp().Connect({.peer = {kB, kPort}}, &handle).error, EOPNOTSUPP);
  EXPECT_EQ(a->tcp().OpenListener({.local = {{}, kPort}}, &handle).error, EOPNOTSUPP);
  EXPECT_EQ(a->tcp().stack(), nullptr);
}

TEST_F(TcpContractTest, TheDefaultRingsTcpTakesLessThanTwoMegabytes) {
  Open();
  EXPECT_LT(a->tcp().memory_bytes(), 2u << 20);
}

}  // namespace
}  // namespace xtreme::engine::testing
