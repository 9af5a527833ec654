// SPDX-License-Identifier: Apache-2.0
//
// The completion contract for connections that move from ring to ring, clause by clause, by name: a
// peer at one end, a host with three rings at the other, and the wire in the test's hands.

#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kCookie = 4711;

class TcpMoveContractTest : public TcpPairTest {
 protected:
  // A connection from a, accepted by b; c and d are rings beside b, on the same NIC.
  void OpenRings(const TcpSettings& client_settings = {}, const TcpSettings& server_settings = {}) {
    Open();
    RingOptions beside = options;
    beside.number = 6;
    c = std::make_unique<TcpEnd>(*b, beside);
    beside.number = 7;
    d = std::make_unique<TcpEnd>(*b, beside);
    OpenConnection(client_settings, server_settings);
  }
  ~TcpMoveContractTest() override {
    OpenGate();
    d.reset();
    c.reset();
  }

  // Time, wire and polls of all rings there are.
  void RunAll(uint64_t for_ns = 10'000'000, uint64_t step_ns = 100'000) {
    for (const uint64_t end = now + for_ns; now < end;) {
      now += step_ns;
      TcpEnd& host = b->ring != nullptr ? *b : *c;
      Carry(*a, host);
      for (TcpEnd* end_of : {b.get(), c.get(), d.get()}) {
        if (end_of->ring == nullptr) continue;
        Carry(*end_of, *a);
        end_of->Poll();
      }
      a->Poll();
    }
  }
  // What control threads were asked for is done, and told.
  void SettleAll() {
    for (TcpEnd* end : {b.get(), c.get(), d.get()}) {
      if (end->ring != nullptr) end->Settle();
    }
  }

  static Outcome Move(TcpEnd& from, Handle handle, TcpEnd& to) {
    return from.tcp().Move(handle, to.tcp().door(), kCookie);
  }
  // The new handle.
  Handle MoveNow(TcpEnd& from, Handle handle, TcpEnd& to) {
    const size_t before = to.Of(Kind::kArrived).size();
    const Outcome moved = Move(from, handle, to);
    EXPECT_TRUE(moved.ok()) << moved.text;
    to.Poll();
    const auto arrived = to.Of(Kind::kArrived);
    if (arrived.size() != before + 1) {
      ADD_FAILURE() << "it did not arrive";
      return 0;
    }
    return arrived.back().socket;
  }

  // Nothing that b's control thread is asked for is done until OpenGate().
  void CloseGate() {
    gate_ = std::make_shared<std::promise<void>>();
    b->engine->control().Start(
        MakeOperation([opened = gate_->get_future().share()] { opened.wait(); }));
  }
  void OpenGate() {
    if (gate_ != nullptr) gate_->set_value();
    gate_ = nullptr;
  }

  std::unique_ptr<TcpEnd> c;
  std::unique_ptr<TcpEnd> d;

 private:
  std::shared_ptr<std::promise<void>> gate_;
};

// --- The two ends of a move ---

TEST_F(TcpMoveContractTest, DepartedIsTheLastOfTheOldHandleAndArrivedTheFirstOfTheNew) {
  OpenRings();
  a->Send(client, "before");
  RunAll();
  ASSERT_EQ(b->Bytes(server), "before");
  b->Clear();
  ASSERT_TRUE(Move(*b, server, *c).ok());
  EXPECT_EQ(Move(*b, server, *c).error, EBADF);
  EXPECT_EQ(b->Send(server, "stale"), SendResult::kRefusedState);
  a->Send(client, "after");
  RunAll();
  EXPECT_EQ(b->Kinds(), std::vector<Kind>{Kind::kDeparted});
  EXPECT_EQ(b->got[0].socket, server);
  EXPECT_EQ(b->tcp().sockets(), 1u);
  ASSERT_EQ(c->Kinds(), (std::vector<Kind>{Kind::kArrived, Kind::kPacket}));
  const Completion& arrived = c->got[0];
  EXPECT_EQ(arrived.status, 0);
  EXPECT_EQ(arrived.cookie, kCookie);
  EXPECT_EQ(arrived.user_data, 99u);
  EXPECT_EQ(arrived.destination_port, kPort);
  EXPECT_EQ(arrived.source_ip[15], 1);
  EXPECT_EQ(RingOf(arrived.socket), 6u);
  EXPECT_EQ(c->got[1].user_data, 99u);
  EXPECT_EQ(c->Bytes(arrived.socket), "after");
  EXPECT_EQ(c->Send(arrived.socket, "answer"), SendResult::kSent);
  RunAll();
  EXPECT_EQ(a->Bytes(client), "answer");
}

TEST_F(TcpMoveContractTest, WhatTheOldRingWasToldIsHandedOutThereBeforeDeparted) {
  OpenRings();
  a->Send(client, "first");
  Carry(*a, *b);
  b->ring->OnPortEvent(nic::PortEvent::kLinkDown);
  Completion one;
  ASSERT_EQ(b->ring->Poll(&one, 1, sizeof(Completion)), 1u);  // The PACKET waits.
  ASSERT_EQ(one.kind, Kind::kRing);
  const Handle moved = MoveNow(*b, server, *c);
  a->Send(client, "second");
  RunAll();
  EXPECT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kPacket, Kind::kDeparted}));
  EXPECT_EQ(b->Bytes(server), "first");
  EXPECT_EQ(c->Bytes(moved), "second");
}

TEST_F(TcpMoveContractTest, AMovedConnectionEndsOnceAndAllItHeldIsGivenBack) {
  OpenRings();
  const size_t ports = b->kernel->ports();
  const Handle moved = MoveNow(*b, server, *c);
  SettleAll();
  EXPECT_EQ(b->nic->rules().size(), 2u);
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  SettleAll();
  // The port is kept for it though its ring has no socket of it any more.
  EXPECT_EQ(b->kernel->ports(), ports);
  EXPECT_EQ(b->nic->rules().size(), 2u);
  ASSERT_TRUE(a->tcp().Close(client).ok());
  RunAll();
  ASSERT_TRUE(c->tcp().Close(moved).ok());
  RunAll();
  SettleAll();
  SettleAll();
  EXPECT_EQ(c->Kinds(),
            (std::vector<Kind>{Kind::kArrived, Kind::kPeerClosed, Kind::kTerminated}));
  EXPECT_EQ(c->got.back().status, 0);
  EXPECT_EQ(c->tcp().sockets(), 0u);
  EXPECT_EQ(b->tcp().sockets(), 0u);
  EXPECT_TRUE(b->nic->rules().empty());
  EXPECT_EQ(b->kernel->ports(), ports - 1);
}

// --- Nothing is lost ---

TEST_F(TcpMoveContractTest, BytesUnderWayBothWaysSurviveManyMovesOnALossyWire) {
  TcpSettings settings;
  settings.min_rto = base::Milliseconds(5);
  OpenRings(settings, settings);
  uint32_t frames = 0;
  const auto lose = [&frames](const std::vector<uint8_t>& frame) {
    return TcpPayloadOf(frame) > 0 && ++frames % 7 == 0;
  };
  for (TcpEnd* end : {a.get(), b.get(), c.get(), d.get()}) end->lose = lose;
  std::vector<TcpEnd*> rings{b.get(), c.get(), d.get()};
  std::string up, down, received;
  Handle handle = server;
  size_t at = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string to_server(100 + static_cast<size_t>(i) * 13, static_cast<char>('a' + i % 26));
    const std::string to_client(90 + static_cast<size_t>(i) * 17, static_cast<char>('A' + i % 26));
    ASSERT_FALSE(static_cast<int>(a->Send(client, to_server)) < 0);
    ASSERT_FALSE(static_cast<int>(rings[at]->Send(handle, to_client)) < 0);
    up += to_server;
    down += to_client;
    RunAll(500'000);
    if (i % 4 != 3) continue;
    TcpEnd& from = *rings[at];
    const Handle before = handle;
    const size_t next = (at + 1 + static_cast<size_t>(i / 12 % 2)) % 3;
    handle = MoveNow(from, handle, *rings[next]);
    ASSERT_NE(handle, 0u);
    RunAll(100'000);  // What it was told before is handed out.
    received += from.Bytes(before);
    from.Clear();
    at = next;
  }
  RunAll(3 * kSecond, 1'000'000);
  received += rings[at]->Bytes(handle);
  EXPECT_EQ(received, up);
  EXPECT_EQ(a->Bytes(client), down);
}

TEST_F(TcpMoveContractTest, WhatStillComesToTheOldRingIsPassedOnAndCounted) {
  OpenRings();
  CloseGate();
  const Handle moved = MoveNow(*b, server, *c);
  a->Send(client, "one ");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "one ");
  const uint64_t strays = b->Counter("tcp", "strays_passed_on");
  EXPECT_GT(strays, 0u);
  EXPECT_EQ(c->Counter("tcp", "strays_taken"), strays);
  EXPECT_EQ(c->Counter("tcp", "strays_lost"), 0u);
  OpenGate();
  SettleAll();
  a->Send(client, "two");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "one two");
  EXPECT_EQ(b->Counter("tcp", "strays_passed_on"), strays);
  EXPECT_EQ(c->Counter("tcp", "resets_to_strangers"), 0u);
}

TEST_F(TcpMoveContractTest, ABufferThatIsPassedOnIsGivenBackWithTheSamePoll) {
  OpenRings();
  CloseGate();
  MoveNow(*b, server, *c);
  const auto held = [this] {
    const packet::BufferPool& pool = *b->ring->core().device.pool;
    return pool.capacity() - pool.free_count() - b->queue().posted();
  };
  ASSERT_EQ(held(), 0u);
  a->Send(client, "stray");
  Carry(*a, *b);
  b->Poll();
  EXPECT_EQ(held(), 1u);
  c->Poll();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(c->Counter("tcp", "strays_taken"), 1u);
}

TEST_F(TcpMoveContractTest, ASegmentThatIsFasterThanItsConnectionWaitsForIt) {
  OpenRings();
  const Handle other = a->Connect({kB, kPort});
  RunAll();
  MoveNow(*b, b->got.back().socket, *c);  // c has connections of that port already.
  SettleAll();
  c->Clear();
  ASSERT_TRUE(Move(*b, server, *c).ok());
  b->engine->control().RunAndWait([] {});  // The rule stands, and c has not looked yet.
  a->Send(client, "early bird");
  Carry(*a, *b);
  RunAll();
  ASSERT_EQ(c->Kinds(), (std::vector<Kind>{Kind::kArrived, Kind::kPacket}));
  EXPECT_EQ(c->Bytes(c->got[0].socket), "early bird");
  EXPECT_EQ(c->Counter("tcp", "resets_to_strangers"), 0u);
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
  EXPECT_NE(other, client);
}

// Its first ring is gone, and another listens on the port.
TEST_F(TcpMoveContractTest, ASegmentThatIsFasterIsNoStrangersWhereThePortIsListenedOn) {
  OpenRings();
  const Handle moved = MoveNow(*b, server, *c);
  b->ring.reset();
  SettleAll();
  d->Listen(kPort);
  ASSERT_TRUE(Move(*c, moved, *d).ok());
  c->engine->control().RunAndWait([] {});  // The rule stands, and d has not looked yet.
  a->Send(client, "early ");
  a->Send(client, "bird");
  a->Connect({kB, kPort});
  Carry(*a, *c);
  RunAll();
  ASSERT_EQ(d->Kinds(), (std::vector<Kind>{Kind::kArrived, Kind::kPacket, Kind::kPacket,
                                           Kind::kAccepted}));
  EXPECT_EQ(d->Bytes(d->got[0].socket), "early bird");
  EXPECT_EQ(a->Of(Kind::kEstablished).size(), 1u);
  EXPECT_EQ(d->Counter("tcp", "resets_to_strangers"), 0u);
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpMoveContractTest, AMoveAmidARetransmissionGoesOnWithIt) {
  OpenRings();
  b->lose = [](const auto&) { return true; };
  ASSERT_EQ(b->Send(server, "lost at first"), SendResult::kSent);
  RunAll(kSecond, 1'000'000);
  ASSERT_GT(b->Counter("tcp", "retransmits"), 0u);
  const Handle moved = MoveNow(*b, server, *c);
  TcpReport report;
  ASSERT_TRUE(c->tcp().Report(moved, &report));
  EXPECT_EQ(report.in_flight, 13u);
  RunAll(5 * kSecond, 1'000'000);
  EXPECT_EQ(a->Bytes(client), "lost at first");
  EXPECT_GT(c->Counter("tcp", "retransmits"), 0u);
}

TEST_F(TcpMoveContractTest, AConnectionThatMovesBackIsSteeredAsAtFirst) {
  OpenRings();
  const Handle there = MoveNow(*b, server, *c);
  SettleAll();
  const Handle back = MoveNow(*c, there, *b);
  SettleAll();
  EXPECT_NE(back, server);
  EXPECT_EQ(b->nic->rules().size(), 1u);
  a->Send(client, "home");
  b->Send(back, "again");
  RunAll();
  EXPECT_EQ(b->Bytes(back), "home");
  EXPECT_EQ(a->Bytes(client), "again");
  EXPECT_EQ(b->Counter("tcp", "strays_passed_on"), 0u);
  ASSERT_TRUE(b->tcp().Abort(back).ok());
  RunAll();
  EXPECT_EQ(b->got.back().kind, Kind::kTerminated);
  SettleAll();
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  SettleAll();
  SettleAll();
  EXPECT_TRUE(b->nic->rules().empty());
}

TEST_F(TcpMoveContractTest, AConnectionThatMovesTwiceIsFoundByWhatComesToItsFirstRing) {
  OpenRings();
  CloseGate();
  const Handle second = MoveNow(*b, server, *c);
  a->Send(client, "1");
  const Handle third = MoveNow(*c, second, *d);
  RunAll();
  a->Send(client, "2");
  RunAll();
  EXPECT_EQ(d->Bytes(third), "12");
  EXPECT_EQ(c->Kinds(), (std::vector<Kind>{Kind::kArrived, Kind::kDeparted}));
  OpenGate();
  SettleAll();
  EXPECT_EQ(b->nic->rules().size(), 2u);
  a->Send(client, "3");
  d->Send(third, "4");
  RunAll();
  EXPECT_EQ(d->Bytes(third), "123");
  EXPECT_EQ(a->Bytes(client), "4");
}

TEST_F(TcpMoveContractTest, AConnectionWhosePeerHasClosedMovesAndSendsOn) {
  OpenRings();
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  RunAll();
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kPeerClosed});
  const Handle moved = MoveNow(*b, server, *c);
  EXPECT_EQ(c->Send(moved, "last words"), SendResult::kSent);
  RunAll();
  ASSERT_TRUE(c->tcp().Close(moved).ok());
  RunAll();
  SettleAll();
  SettleAll();
  EXPECT_EQ(c->Kinds(), (std::vector<Kind>{Kind::kArrived, Kind::kTerminated}));
  EXPECT_EQ(c->got.back().status, 0);
  EXPECT_EQ(a->Bytes(client), "last words");
}

TEST_F(TcpMoveContractTest, AConnectionOfOursMovesTooAndItsPortIsNotUsedAgain) {
  options.tcp_ports_log2 = 0;  // One port.
  OpenRings();
  const Handle b_client = b->Connect({kA, kPort + 1});
  a->Listen(kPort + 1);
  RunAll(3 * kSecond, 1'000'000);
  ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kEstablished});
  const Handle accepted = a->Of(Kind::kAccepted)[0].socket;
  const Handle moved = MoveNow(*b, b_client, *c);
  const Handle again = b->Connect({kA, kPort + 1});
  RunAll();
  EXPECT_EQ(b->got.back().socket, again);
  EXPECT_EQ(b->got.back().status, EADDRINUSE);
  a->Send(accepted, "ours");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "ours");
}

TEST_F(TcpMoveContractTest, TimeWaitIsAnsweredByTheFirstRingWhenTheRuleIsGone) {
  OpenRings();
  const Handle moved = MoveNow(*b, server, *c);
  ASSERT_TRUE(c->tcp().Close(moved).ok());
  RunAll();
  // The acknowledgement of a's FIN is lost: the FIN comes again, when c's rule is gone.
  c->lose = [](const auto&) { return true; };
  ASSERT_TRUE(a->tcp().Close(client).ok());
  RunAll(1'000'000);
  SettleAll();
  SettleAll();
  ASSERT_EQ(c->got.back().kind, Kind::kTerminated);
  ASSERT_EQ(b->nic->rules().size(), 1u);
  RunAll(2 * kSecond, 1'000'000);
  EXPECT_EQ(a->got.back().kind, Kind::kTerminated);
  EXPECT_EQ(a->got.back().status, 0);
  EXPECT_EQ(b->Counter("tcp", "resets_to_strangers"), 0u);
}

// --- Sends and buffers ---

TEST_F(TcpMoveContractTest, TxDoneComesOnceOnTheRingThatHearsTheAcknowledgement) {
  OpenRings();
  a->lose = [](const auto&) { return true; };
  ASSERT_EQ(b->Send(server, "a", {.flags = kSendWantDone, .cookie = 1}), SendResult::kSent);
  ASSERT_EQ(b->Send(server, std::string(600, 'b'), {.flags = kSendWantDone, .cookie = 2}),
            SendResult::kSent);
  RunAll();
  const Handle moved = MoveNow(*b, server, *c);
  a->lose = nullptr;
  RunAll(kSecond, 1'000'000);
  EXPECT_EQ(b->Kinds(), std::vector<Kind>{Kind::kDeparted});
  const auto done = c->Of(Kind::kTxDone);
  ASSERT_EQ(done.size(), 2u);
  for (uint64_t i : {0u, 1u}) {
    EXPECT_EQ(done[i].socket, moved);
    EXPECT_EQ(done[i].cookie, i + 1);
    EXPECT_EQ(done[i].status, 0);
  }
}

TEST_F(TcpMoveContractTest, DepartedWaitsForPostedFramesAndTxWireIsToldBeforeIt) {
  OpenRings();
  b->complete_sends = false;
  ASSERT_EQ(b->Send(server, std::string(600, 'w'), {.flags = kSendWantWire, .cookie = 3}),
            SendResult::kSent);
  const Handle moved = MoveNow(*b, server, *c);
  RunAll();
  EXPECT_TRUE(b->got.empty());
  b->complete_sends = true;
  RunAll();
  ASSERT_EQ(b->Kinds(), (std::vector<Kind>{Kind::kTxWire, Kind::kDeparted}));
  EXPECT_EQ(b->got[0].cookie, 3u);
  EXPECT_EQ(b->got[0].socket, server);
  EXPECT_EQ(a->Bytes(client), std::string(600, 'w'));
  EXPECT_TRUE(c->Of(Kind::kTxWire).empty());
  EXPECT_NE(moved, 0u);
}

TEST_F(TcpMoveContractTest, BuffersOfTheOldRingStayReadableAndCreditTheConnection) {
  TcpSettings small;
  small.receive_window_bytes = 4096;
  OpenRings({}, small);
  const std::string text(4096, 't');
  a->Send(client, text);
  RunAll(kSecond, 1'000'000);
  ASSERT_EQ(b->Bytes(server).size(), 4096u);
  const Handle moved = MoveNow(*b, server, *c);
  a->Send(client, "more");
  RunAll(50'000'000, 1'000'000);
  EXPECT_EQ(c->Bytes(moved), "");  // The window is closed.
  EXPECT_EQ(b->Bytes(server), text);
  b->Clear();
  RunAll(50'000'000, 1'000'000);
  EXPECT_EQ(c->Bytes(moved), "more");
  TcpReport report;
  ASSERT_TRUE(c->tcp().Report(moved, &report));
  EXPECT_EQ(report.owed_credit, 4u);
}

// Whether it waits in the stack or, of completions that are cut short, in the ring.
TEST_F(TcpMoveContractTest, TxSpaceThatNobodyWasToldOfComesWhereItGoes) {
  TcpSettings small;
  small.send_queue_bytes = 4'000;
  OpenRings({}, small);
  TcpEnd* from = b.get();
  TcpEnd* to = c.get();
  Handle connection = server;
  for (const size_t stride : {sizeof(Completion), size_t{64}}) {
    SCOPED_TRACE(stride);
    ASSERT_EQ(from->Send(connection, std::string(4'000, 'x')), SendResult::kSent);
    ASSERT_EQ(from->Send(connection, std::string(3'000, 'y')), SendResult::kRefusedWindow);
    Carry(*from, *a);
    a->Poll();
    // What acknowledges brings a byte, of which the poll tells first.
    a->lose = [](const std::vector<uint8_t>& frame) { return TcpPayloadOf(frame) == 0; };
    ASSERT_EQ(a->Send(client, "z"), SendResult::kSent);
    Carry(*a, *b);
    a->lose = nullptr;
    Completion one;
    for (int i = 0; i < 64 && from->ring->Poll(&one, 1, stride) == 0; ++i) {
    }
    ASSERT_EQ(one.kind, Kind::kPacket);
    packet::BufferPool::ReleaseChain(one.buffer);
    from->Clear();
    to->Clear();
    connection = MoveNow(*from, connection, *to);
    SettleAll();
    RunAll();
    EXPECT_TRUE(from->Of(Kind::kTxSpace).empty());
    const auto space = to->Of(Kind::kTxSpace);
    ASSERT_EQ(space.size(), 1u);
    EXPECT_EQ(space[0].socket, connection);
    EXPECT_EQ(to->Send(connection, std::string(3'000, 'y')), SendResult::kSent);
    RunAll();
    std::swap(from, to);
  }
}

// --- Refused, and ended amid a move ---

TEST_F(TcpMoveContractTest, WhoseRateIsBeingSetStaysUntilThatIsDone) {
  OpenRings();
  b->Clear();
  CloseGate();
  for (int i = 0; i < UINT8_MAX; ++i) ASSERT_TRUE(b->tcp().SetRate(server, {}, kCookie).ok());
  EXPECT_EQ(b->tcp().SetRate(server, {}, kCookie).error, EAGAIN);
  EXPECT_EQ(Move(*b, server, *c).error, EBUSY);
  OpenGate();
  b->Settle();
  const auto done = b->Of(Kind::kOpDone);
  ASSERT_EQ(done.size(), size_t{UINT8_MAX});
  EXPECT_EQ(done[0].socket, server);
  EXPECT_EQ(done[0].cookie, kCookie);
  EXPECT_NE(MoveNow(*b, server, *c), 0u);
}

TEST_F(TcpMoveContractTest, WhatCannotMoveIsRefusedAtOnceWithItsReason) {
  OpenRings();
  EXPECT_EQ(Move(*b, server, *b).error, EINVAL);
  EXPECT_EQ(b->tcp().Move(server, nullptr, 0).error, EOPNOTSUPP);
  EXPECT_EQ(Move(*b, listener, *c).error, ENOTCONN);
  const Handle opening = b->Connect({{10, 0, 0, 77}, kPort});
  EXPECT_EQ(Move(*b, opening, *c).error, ENOTCONN);
  Handle prepared = 0;
  const uint8_t byte = 1;
  ASSERT_TRUE(b->tcp().PrepareSend(server, {&byte, 1}, &prepared).ok());
  EXPECT_EQ(Move(*b, server, *c).error, EBUSY);
  ASSERT_TRUE(b->ring->prepared().Discard(prepared).ok());
  const std::shared_ptr<TcpDoor> elsewhere = std::make_shared<TcpDoor>();
  elsewhere->mailbox = c->tcp().door()->mailbox;
  elsewhere->ifindex = c->tcp().door()->ifindex + 1;
  EXPECT_EQ(b->tcp().Move(server, elsewhere, 0).error, EXDEV);
  const std::shared_ptr<TcpDoor> closed = c->tcp().door();
  c->ring.reset();
  EXPECT_EQ(b->tcp().Move(server, closed, 0).error, EPIPE);
  ASSERT_TRUE(b->tcp().Close(server).ok());
  EXPECT_EQ(Move(*b, server, *d).error, EBADF);
}

TEST_F(TcpMoveContractTest, ARingWithoutRoomRefusesAtOnceOrByTerminated) {
  options.max_connections = 2;
  OpenRings();
  c->Listen(kPort + 1);
  const Outcome moved = Move(*b, server, *c);
  EXPECT_TRUE(moved.ok()) << moved.text;
  // It takes the last place before the connection is looked at.
  Handle last = 0;
  ASSERT_TRUE(c->tcp().OpenListener({.local = {{}, kPort + 2}}, &last).ok());
  c->Poll();
  RunAll();
  EXPECT_EQ(b->Kinds(), std::vector<Kind>{Kind::kDeparted});
  const auto ended = c->Of(Kind::kTerminated);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].status, EMFILE);
  EXPECT_EQ(ended[0].cookie, kCookie);
  EXPECT_EQ(ended[0].user_data, 99u);
  EXPECT_EQ(ended[0].socket, 0u);
  EXPECT_EQ(a->got.back().kind, Kind::kTerminated);
  EXPECT_EQ(a->got.back().status, ECONNRESET);
  const Handle again = a->Connect({kB, kPort});
  RunAll();
  ASSERT_EQ(a->got.back().kind, Kind::kEstablished);
  EXPECT_EQ(a->got.back().socket, again);
  EXPECT_EQ(Move(*b, b->got.back().socket, *c).error, EMFILE);
}

TEST_F(TcpMoveContractTest, ARingWithoutBuffersForWhatIsNotAcknowledgedTellsTerminated) {
  OpenRings();
  b->lose = [](const auto&) { return true; };
  ASSERT_EQ(b->Send(server, "kept", {.flags = kSendWantDone, .cookie = 8}), SendResult::kSent);
  std::vector<packet::Buffer*> all;
  while (packet::Buffer* buffer = c->ring->AcquireBuffer()) all.push_back(buffer);
  ASSERT_TRUE(Move(*b, server, *c).ok());
  c->Poll();
  for (packet::Buffer* buffer : all) packet::BufferPool::Release(buffer);
  std::vector<Kind> kinds;
  for (const Completion& completion : c->got) {
    if (completion.kind != Kind::kRing) kinds.push_back(completion.kind);
  }
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kTxDone, Kind::kTerminated}));
  EXPECT_EQ(c->Of(Kind::kTxDone)[0].status, ECANCELED);
  EXPECT_EQ(c->Of(Kind::kTxDone)[0].interface_index, MemoryKernel::kIfindex);
  EXPECT_EQ(c->Of(Kind::kTxDone)[0].cookie, 8u);
  EXPECT_EQ(c->Of(Kind::kTerminated)[0].status, ENOBUFS);
}

TEST_F(TcpMoveContractTest, ANewRingThatClosesAmidAMoveHasThePeerReset) {
  OpenRings();
  ASSERT_TRUE(Move(*b, server, *c).ok());
  c->ring.reset();
  b->Settle();
  b->Settle();
  RunAll();
  EXPECT_EQ(b->Kinds(), std::vector<Kind>{Kind::kDeparted});
  EXPECT_EQ(a->got.back().kind, Kind::kTerminated);
  EXPECT_EQ(a->got.back().status, ECONNRESET);
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  SettleAll();
  SettleAll();
  EXPECT_TRUE(b->nic->rules().empty());
}

TEST_F(TcpMoveContractTest, APeerThatSaysNothingMoreIsResetWhenTheNewRingHasItsQueues) {
  OpenRings();
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());  // FIN-WAIT-2: it waits, and sends nothing.
  RunAll();
  a->Clear();
  CloseGate();
  ASSERT_TRUE(d->ring->Reset(/*cookie=*/5).ok());
  ASSERT_TRUE(Move(*b, server, *d).ok());
  RunAll();
  ASSERT_EQ(d->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(d->Of(Kind::kTerminated)[0].status, ENETDOWN);
  EXPECT_TRUE(a->got.empty());
  OpenGate();
  SettleAll();
  d->resets = 1;
  d->carried = 0;
  RunAll();
  ASSERT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->got[0].status, ECONNRESET);
}

TEST_F(TcpMoveContractTest, AnOldRingThatClosesAmidAMoveLeavesTheConnectionToTheNew) {
  OpenRings();
  ASSERT_TRUE(Move(*b, server, *c).ok());
  b->Clear();
  b->ring.reset();
  c->Settle();
  ASSERT_EQ(c->Kinds(), std::vector<Kind>{Kind::kArrived});
  const Handle moved = c->got[0].socket;
  a->Send(client, "still there?");
  c->Send(moved, "yes");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "still there?");
  EXPECT_EQ(a->Bytes(client), "yes");
}

TEST_F(TcpMoveContractTest, ANewRingThatClosesLaterResetsThePeerAndTheFirstGivesThePortBack) {
  OpenRings();
  MoveNow(*b, server, *c);
  SettleAll();
  MemoryQueuePair& queue = c->queue();
  std::vector<std::vector<uint8_t>> last;
  queue.on_post = [&last](const SentFrame& frame) { last.push_back(frame.bytes); };
  c->Clear();
  c->ring.reset();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_NE(TcpFlagsOf(last[0]) & 4, 0);  // RST.
  ASSERT_TRUE(b->tcp().Close(listener).ok());
  SettleAll();
  SettleAll();
  EXPECT_TRUE(b->nic->rules().empty());
}

// So that the address is the kernel's, though what was accepted there goes on elsewhere.
TEST_F(TcpMoveContractTest, AListenersPortIsTheKernelsThoughAConnectionHasMoved) {
  OpenRings();
  const Handle moved = MoveNow(*b, server, *c);
  SettleAll();
  b->kernel->KeepListening();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  SettleAll();
  ASSERT_FALSE(b->nic->rules().empty());
  for (const auto& rule : b->nic->rules()) EXPECT_TRUE(rule.match.source_ip.has_value());
  a->Send(client, "still there?");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "still there?");
  // Home again it receives by what it was left.
  const Handle home = MoveNow(*c, moved, *b);
  SettleAll();
  EXPECT_EQ(b->nic->rules().size(), 1u);
  a->Send(client, "and now?");
  RunAll();
  EXPECT_EQ(b->Bytes(home), "and now?");
  ASSERT_TRUE(b->tcp().Abort(home).ok());
  SettleAll();
  SettleAll();
  EXPECT_TRUE(b->nic->rules().empty());
}

TEST_F(TcpMoveContractTest, WithoutRoomForItsRuleAConnectionGoesOnByItsOldRing) {
  nic_options.max_rules = 1;
  OpenRings();
  const Handle moved = MoveNow(*b, server, *c);
  SettleAll();
  ASSERT_EQ(c->Of(Kind::kRing).size(), 1u);
  EXPECT_EQ(c->Of(Kind::kRing)[0].event, RingEvent::kRuleFallback);
  EXPECT_EQ(c->Of(Kind::kRing)[0].status, 0);
  a->Send(client, "by way of b");
  RunAll();
  EXPECT_EQ(c->Bytes(moved), "by way of b");
  EXPECT_EQ(b->nic->rules().size(), 1u);
}

TEST_F(TcpMoveContractTest, WhyADeviceMadeNoRuleForAConnectionIsTold) {
  nic_options.working_rules = 1;
  OpenRings();
  MoveNow(*b, server, *c);
  SettleAll();
  ASSERT_EQ(c->Of(Kind::kRing).size(), 1u);
  EXPECT_EQ(c->Of(Kind::kRing)[0].event, RingEvent::kRuleFallback);
  EXPECT_EQ(c->Of(Kind::kRing)[0].status, EIO);
}

}  // namespace
}  // namespace xtreme::engine::testing
