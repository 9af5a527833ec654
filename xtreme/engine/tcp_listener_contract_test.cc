// SPDX-License-Identifier: Apache-2.0
//
// The completion contract for listeners, clause by clause, by name: what a listener's end leaves to
// the connections that it accepted.

#include <gtest/gtest.h>
#include <linux/neighbour.h>

#include <cerrno>
#include <string>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

// Of a SYN.
constexpr uint64_t kUntilItComesAgain = 2'000'000'000;
constexpr uint64_t kCoarse = 10'000'000;
constexpr uint64_t kUntilAskedAgain = 1'100'000'000;  // Of a next hop: three times.

class TcpListenerContractTest : public TcpPairTest {
 protected:
  TcpListenerContractTest() {
    Open();
    ports_ = b->kernel->ports();
  }
  // Of TCP, that b's kernel keeps for us.
  size_t LeasedPorts() const { return b->kernel->ports() - ports_; }
  // What ended is told, and what it held is given back.
  void LetGo() {
    b->Poll();
    b->Settle();
  }

 private:
  size_t ports_ = 0;
};

TEST_F(TcpListenerContractTest, AClosedListenerIsTerminatedAtOnceAndItsChildrenGoOn) {
  OpenConnection();
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  b->Poll();
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(b->got[0].socket, listener);
  EXPECT_EQ(b->got[0].status, 0);
  b->Settle();
  EXPECT_EQ(b->nic->rules().size(), 1u);
  EXPECT_EQ(LeasedPorts(), 1u);
  a->Send(client, "still there?");
  b->Send(server, "still here");
  Run();
  EXPECT_EQ(b->Bytes(server), "still there?");
  EXPECT_EQ(a->Bytes(client), "still here");
}

// Neither a connect nor a listener gets a port of the block; the ring goes on answering there.
TEST_F(TcpListenerContractTest, APortOfTheBlockStaysTheRingsWhateverFailedOnIt) {
  OpenConnection();
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  const uint16_t port = report.local.port;
  a->kernel->TakePort(port);  // As the kernel has it, by the block.
  Handle connects = 0, listens = 0;
  ASSERT_TRUE(a->tcp().Connect({.peer = {kB, kPort + 1}, .local = {kA, port}}, &connects).ok());
  ASSERT_TRUE(a->tcp().OpenListener({.local = {{}, port}}, &listens).ok());
  a->Settle();
  ASSERT_TRUE(a->tcp().Close(listens).ok());
  a->Settle();
  ASSERT_EQ(a->Kinds().size(), 3u);
  EXPECT_EQ(a->Of(Kind::kOpDone)[0].status, EADDRINUSE);
  EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, EADDRINUSE);
  a->Clear();
  // The last acknowledgement is lost, and the peer repeats its FIN.
  ASSERT_TRUE(a->tcp().Close(client).ok());
  Run();
  a->lose = [](const auto&) { return true; };
  ASSERT_TRUE(b->tcp().Close(server).ok());
  Run();
  a->lose = nullptr;
  Run(kUntilItComesAgain, kCoarse);
  ASSERT_EQ(b->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(b->Of(Kind::kTerminated)[0].status, 0);
  EXPECT_EQ(a->Counter("drop", "tcp_port"), 0u);
}

// As a connection is accepted its next hop is looked at; others, which wait for theirs, may end by
// that, and more than ACCEPTED is told.
TEST_F(TcpListenerContractTest, ItIsAcceptedBeforeItReceivesThoughOthersEndByThat) {
  for (host::Neighbour& neighbour : b->kernel->tables().neighbours) {
    if (neighbour.address == kA) neighbour.state = NUD_STALE;
  }
  b->kernel->Publish();
  b->Listen(kPort);
  for (int i = 0; i < 2; ++i) b->Connect({{10, 0, 0, 77}, kPort});
  for (int i = 0; i < 2; ++i) {
    now += kUntilAskedAgain;
    b->Poll();
  }
  client = a->Connect({kB, kPort});
  Carry(*a, *b);
  b->Poll();
  Carry(*b, *a);
  a->Poll();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  ASSERT_EQ(a->Send(client, "order"), SendResult::kSent);
  b->Clear();
  now += kUntilAskedAgain;  // Which b has not seen yet.
  Carry(*a, *b);
  b->Poll();
  EXPECT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kAccepted, Kind::kTerminated, Kind::kTerminated,
                                           Kind::kPacket}));
}

TEST_F(TcpListenerContractTest, SettingsOfAChildAreItsOwnAndThoseOfAListenerItsLaterChildrens) {
  OpenConnection();
  const auto timeout = [this](Handle of) {
    TcpSettings settings;
    EXPECT_TRUE(b->tcp().GetSettings(of, &settings));
    return settings.user_timeout;
  };
  TcpSettings settings;
  settings.user_timeout = base::Seconds(3);
  ASSERT_TRUE(b->tcp().SetSettings(server, settings).ok());
  EXPECT_EQ(timeout(server), base::Seconds(3));
  EXPECT_EQ(timeout(listener), base::kNever);
  settings.user_timeout = base::Seconds(5);
  ASSERT_TRUE(b->tcp().SetSettings(listener, settings).ok());
  b->got.clear();
  a->Connect({kB, kPort});
  Run();
  EXPECT_EQ(timeout(b->Of(Kind::kAccepted)[0].socket), base::Seconds(5));
  EXPECT_EQ(timeout(server), base::Seconds(3));
}

TEST_F(TcpListenerContractTest, TheLastChildOfAClosedListenerGivesPortAndRuleBack) {
  OpenConnection();
  const Handle other = a->Connect({kB, kPort});
  Run();
  const Handle other_server = b->Of(Kind::kAccepted)[0].socket;
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 1u);
  ASSERT_TRUE(b->tcp().Abort(other_server).ok());
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 0u);
  EXPECT_EQ(LeasedPorts(), 0u);
  EXPECT_EQ(b->Of(Kind::kTerminated).size(), 3u);
  Run();
  EXPECT_EQ(a->got.back().socket, other);
  EXPECT_EQ(a->got.back().status, ECONNRESET);
}

TEST_F(TcpListenerContractTest, APortWhoseListenerWentRefusesNewConnections) {
  OpenConnection();
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  const Handle late = a->Connect({kB, kPort});
  Run();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got[0].socket, late);
  EXPECT_EQ(a->got[0].status, ECONNREFUSED);
}

TEST_F(TcpListenerContractTest, AListenerOpensOnThePortOfChildrenThatOutliveTheOldOne) {
  OpenConnection();
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  b->Settle();
  b->Clear();
  const Handle next = b->Listen(kPort);  // Its OP_DONE says that all is well.
  EXPECT_EQ(LeasedPorts(), 1u);
  const Handle newcomer = a->Connect({kB, kPort});
  Run();
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kAccepted});
  EXPECT_EQ(b->got[0].cookie, next);
  // The old listener's child leaves what the new listener receives by.
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 1u);
  const Handle accepted = b->got[0].socket;
  a->Send(newcomer, "hello");
  Run();
  EXPECT_EQ(b->Bytes(accepted), "hello");
}

TEST_F(TcpListenerContractTest, APortThatIsOpenedAgainAtOnceIsStillTheRings) {
  const Handle first = b->Listen(kPort);
  ASSERT_TRUE(b->tcp().Close(first).ok());
  // The old lease is given back first; the ring hears of it when the new one may stand already.
  Handle second = 0;
  ASSERT_TRUE(b->tcp().OpenListener({.local = {{}, kPort}}, &second).ok());
  b->Settle();
  EXPECT_EQ(b->Of(Kind::kOpDone).size(), 1u);
  a->Connect({kB, kPort});
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
}

TEST_F(TcpListenerContractTest, WhatNoListenerCanBeIsRefusedWithAWord) {
  const auto refusal = [this](const TcpListenerOptions& options) {
    Handle handle = 0;
    const Outcome outcome = b->tcp().OpenListener(options, &handle);
    EXPECT_EQ(outcome.error, EINVAL);
    return outcome.text;
  };
  EXPECT_EQ(refusal({}), "open listener: no port asked");
  EXPECT_EQ(refusal({.local = {{}, kPort}, .backlog = 0}), "open listener: backlog 0 asked");
  EXPECT_EQ(refusal({.local = {{}, kPort}, .syns_per_second = kMostSynsPerSecond + 1}),
            "open listener: 1000000001 SYNs a second asked, 0 to 1000000000 possible");
}

TEST_F(TcpListenerContractTest, MoreSynsThanAListenerAnswersInASecondAreCounted) {
  Handle listener = 0;
  ASSERT_TRUE(b->tcp().OpenListener({.local = {{}, kPort}, .syns_per_second = 1}, &listener).ok());
  b->Settle();
  a->Connect({kB, kPort});
  a->Connect({kB, kPort});
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  EXPECT_EQ(b->Counter("tcp", "syns_withheld"), 1u);
  Run(kUntilItComesAgain, kCoarse);
  EXPECT_EQ(a->Kinds(), (std::vector<Kind>{Kind::kEstablished, Kind::kEstablished}));
}

// Each by its own name, among those of the ring.
TEST_F(TcpListenerContractTest, HandshakesThatWaitAndTimeWaitsAreCounted) {
  OpenConnection();
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  Run();
  ASSERT_TRUE(b->tcp().Shutdown(server).ok());
  Run();
  EXPECT_EQ(b->Counter("tcp", "syns_queued"), 1u);
  for (const char* none : {"syn_queue_full", "syn_acks_resent", "handshakes_deferred",
                           "handshakes_given_up", "time_wait_entered"}) {
    EXPECT_EQ(b->Counter("tcp", none), 0u) << none;
  }
  EXPECT_EQ(a->Counter("tcp", "time_wait_entered"), 1u);
  for (const char* none : {"time_wait_expired", "time_wait_evicted", "time_wait_reused",
                           "time_wait_resets_ignored", "time_wait_acknowledged"}) {
    EXPECT_EQ(a->Counter("tcp", none), 0u) << none;
  }
}

TEST_F(TcpListenerContractTest, AListenerThatHoldsCountsWhatItHandedOutUntilItIsTaken) {
  // Its SYN-ACK comes again 1, 3, 7 and 15 seconds after the first.
  constexpr uint64_t kSeconds = 1'000'000'000;
  Handle listener = 0;
  ASSERT_TRUE(
      b->tcp().OpenListener({.local = {{}, kPort}, .backlog = 2, .holds = true}, &listener).ok());
  b->Settle();
  for (int i = 0; i < 4; ++i) a->Connect({kB, kPort});
  Run(4 * kSeconds, kCoarse);
  EXPECT_EQ(b->Of(Kind::kAccepted).size(), 2u);
  ASSERT_TRUE(b->tcp().TookOne(listener).ok());
  Run(4 * kSeconds, kCoarse);
  EXPECT_EQ(b->Of(Kind::kAccepted).size(), 3u);
  ASSERT_TRUE(b->tcp().SetBacklog(listener, 3).ok());
  Run(8 * kSeconds, kCoarse);
  EXPECT_EQ(b->Of(Kind::kAccepted).size(), 4u);
  EXPECT_EQ(b->tcp().TookOne(listener + 1).error, EBADF);
  EXPECT_EQ(b->tcp().SetBacklog(listener + 1, 3).error, EBADF);
}

TEST_F(TcpListenerContractTest, AHushedListenerAnswersNobodyUntilItIsWelcome) {
  Handle hushed = 0;
  ASSERT_TRUE(b->tcp().OpenListener({.local = {{}, kPort}, .hushed = true}, &hushed).ok());
  b->Settle();
  EXPECT_EQ(b->Of(Kind::kOpDone).size(), 1u);
  a->Connect({kB, kPort});
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{});
  EXPECT_EQ(b->Counter("tcp", "hushed"), 1u);
  ASSERT_TRUE(b->tcp().Welcome(hushed).ok());
  Run(kUntilItComesAgain, kCoarse);
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
  EXPECT_EQ(b->tcp().Welcome(hushed + 1).error, EBADF);
}

// What its rule had caught is there still when it has ended, and is somebody else's.
TEST_F(TcpListenerContractTest, WhereAHushedListenerEndedNobodyIsResetUntilAnotherOpens) {
  Handle hushed = 0;
  ASSERT_TRUE(b->tcp().OpenListener({.local = {{}, kPort}, .hushed = true}, &hushed).ok());
  b->Settle();
  ASSERT_TRUE(b->tcp().Close(hushed).ok());
  LetGo();
  EXPECT_EQ(b->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(b->nic->rules().size(), 0u);
  a->Connect({kB, kPort});
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{});
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
  b->Clear();
  b->Listen(kPort);
  Run(kUntilItComesAgain, kCoarse);
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kEstablished});
}

// --- What the kernel's listener goes on with ---

TEST_F(TcpListenerContractTest, WhereTheKernelListensOnChildrenGetRulesOfBothEnds) {
  std::vector<uint8_t> syn;
  a->lose = [&syn](const std::vector<uint8_t>& frame) {
    if (syn.empty()) syn = frame;
    return false;
  };
  OpenConnection();
  // What its rule had caught is not refused: it comes again, and is the kernel's then.
  std::vector<uint8_t> caught;
  a->lose = [&caught](const std::vector<uint8_t>& frame) {
    caught = frame;
    return true;
  };
  a->Connect({kB, kPort});
  Run();
  a->lose = nullptr;
  ASSERT_EQ(b->nic->Deliver(caught, now), 1);
  b->kernel->KeepListening();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  b->Poll();
  EXPECT_EQ(b->Counter("tcp", "hushed"), 1u);
  LetGo();
  ASSERT_EQ(b->nic->rules().size(), 1u);
  const nic::FlowMatch match = b->nic->rules()[0].match;
  TcpReport report;
  ASSERT_TRUE(b->tcp().Report(server, &report));
  EXPECT_EQ(match.source_ip, kA);
  EXPECT_EQ(match.source_port, report.peer.port);
  EXPECT_EQ(match.destination_ip, kB);
  EXPECT_EQ(match.destination_port, kPort);
  LetGo();
  EXPECT_EQ(LeasedPorts(), 0u);
  a->Send(client, "still there?");
  b->Send(server, "still here");
  Run(kUntilItComesAgain, kCoarse);
  EXPECT_EQ(b->Bytes(server), "still there?");
  EXPECT_EQ(a->Bytes(client), "still here");
  EXPECT_TRUE(a->Of(Kind::kEstablished).empty());
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
  // Until its rule is gone, who begins anew from the same port is not refused either.
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  b->Poll();
  const int came = b->nic->Deliver(syn, now);
  b->Poll();
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
  EXPECT_EQ(b->Counter("drop", "tcp_port"), static_cast<uint64_t>(came));
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 0u);
}

TEST_F(TcpListenerContractTest, AHandshakeThatTheKernelsListenerTakesOverIsForgotten) {
  OpenConnection();
  b->kernel->KeepListening();
  a->Connect({kB, kPort});
  Carry(*a, *b);
  b->Poll();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  Run();
  EXPECT_TRUE(b->Of(Kind::kAccepted).empty());
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
}

TEST_F(TcpListenerContractTest, ADetachedListenerThatNobodyGoesOnWithRefusesAtOnce) {
  OpenConnection();
  // Its rule caught a SYN while it was there.
  std::vector<uint8_t> caught;
  a->lose = [&caught](const std::vector<uint8_t>& frame) {
    caught = frame;
    return true;
  };
  a->Connect({kB, kPort});
  Run();
  a->lose = nullptr;
  ASSERT_EQ(b->nic->Deliver(caught, now), 1);
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  Run();
  ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, ECONNREFUSED);
  EXPECT_EQ(b->tcp().DetachListener(listener).error, EBADF);
  EXPECT_EQ(b->tcp().DetachListener(server).error, EBADF);
}

// So that another process may listen there; by who does not share ports it is not to be had.
TEST_F(TcpListenerContractTest, ADetachedListenersPortStaysLeasedUntilItsLastChildHasEnded) {
  OpenConnection();
  const Handle other = a->Connect({kB, kPort});
  Run();
  const Handle second = b->Of(Kind::kAccepted)[0].socket;
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  LetGo();
  LetGo();
  ASSERT_EQ(b->nic->rules().size(), 2u);
  for (const auto& rule : b->nic->rules()) EXPECT_TRUE(rule.match.source_ip.has_value());
  a->Send(client, "one");
  a->Send(other, "other");
  Run();
  EXPECT_EQ(b->Bytes(server), "one");
  EXPECT_EQ(b->Bytes(second), "other");
  EXPECT_EQ(LeasedPorts(), 1u);
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 1u);
  EXPECT_EQ(LeasedPorts(), 1u);
  ASSERT_TRUE(b->tcp().Abort(second).ok());
  LetGo();
  EXPECT_EQ(b->nic->rules().size(), 0u);
  EXPECT_EQ(LeasedPorts(), 0u);
}

TEST_F(TcpListenerContractTest, AChildThatEndsBeforeItsRuleIsToldOfLeavesNone) {
  for (const bool all : {false, true}) {
    Open();
    OpenConnection();
    const Handle other = a->Connect({kB, kPort});
    Run();
    ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
    const Handle second = b->Of(Kind::kAccepted)[0].socket;
    b->kernel->KeepListening();
    ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
    ASSERT_TRUE(b->tcp().Abort(server).ok());
    if (all) b->tcp().Abort(second);
    LetGo();
    LetGo();
    EXPECT_EQ(b->nic->rules().size(), all ? 0u : 1u);
    EXPECT_EQ(LeasedPorts(), 0u);
    ASSERT_TRUE(a->tcp().Abort(other).ok());
    Run();
    LetGo();
    EXPECT_EQ(b->nic->rules().size(), 0u);
  }
}

TEST_F(TcpListenerContractTest, WithoutRoomForTheirRulesChildrenKeepThePort) {
  for (const size_t room : {1, 2}) {
    nic_options.max_rules = room;
    Open();
    OpenConnection();
    a->Connect({kB, kPort});
    Run();
    b->Clear();
    b->kernel->KeepListening();
    ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
    LetGo();
    ASSERT_EQ(b->Of(Kind::kRing).size(), 1u);
    EXPECT_EQ(b->Of(Kind::kRing)[0].event, RingEvent::kRuleFallback);
    EXPECT_EQ(b->Of(Kind::kRing)[0].status, 0);
    ASSERT_EQ(b->nic->rules().size(), 1u);
    EXPECT_FALSE(b->nic->rules()[0].match.source_ip.has_value());
    a->Clear();
    a->Connect({kB, kPort});
    a->Send(client, "by the port's");
    Run();
    EXPECT_EQ(a->Kinds(), std::vector<Kind>{});
    EXPECT_EQ(b->Bytes(server), "by the port's");
  }
}

TEST_F(TcpListenerContractTest, WhyADeviceMadeNoRuleForAChildIsTold) {
  nic_options.working_rules = 1;
  Open();
  OpenConnection();
  b->kernel->KeepListening();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  LetGo();
  ASSERT_EQ(b->Of(Kind::kRing).size(), 1u);
  EXPECT_EQ(b->Of(Kind::kRing)[0].event, RingEvent::kRuleFallback);
  EXPECT_EQ(b->Of(Kind::kRing)[0].status, EIO);
}

TEST_F(TcpListenerContractTest, AClosedRingGivesBackWhatChildrenReceivedBy) {
  OpenConnection();
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  b->Settle();
  b->Clear();
  b->ring.reset();
  b->engine->control().RunAndWait([] {});
  EXPECT_EQ(b->kernel->ports(), 0u);
  EXPECT_EQ(b->nic->rules().size(), 0u);
}

}  // namespace
}  // namespace xtreme::engine::testing
