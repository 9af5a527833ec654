// SPDX-License-Identifier: Apache-2.0
//
// A connection that moves from stack to stack under virtual time, while bytes go both ways and the
// network loses some: the peer does not notice, and nothing is lost, repeated or leaked.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stack/tcp/connection.h"
#include "stack/tcp/departure.h"
#include "stack/wire/tcp_frame.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

using base::Microseconds;
using base::Milliseconds;
using base::Seconds;

struct Scenario {
  Scenario() { world.stack.time_wait_duration = Seconds(240); }

  World::Options world;
  PcbOptions client;
  PcbOptions server;
  Party::Plan client_plan{.stream = 1, .peer_stream = 2, .to_send = 200'000, .want_done = true};
  Party::Plan server_plan{.stream = 2, .peer_stream = 1, .to_send = 200'000, .want_done = true};
  base::Nanoseconds every = Milliseconds(3);  // between moves
  base::Nanoseconds way = Microseconds(20);   // from stack to stack
  base::Nanoseconds steering = Microseconds(200);
};

// The server has three stacks, and its connection goes round.
class Session {
 public:
  explicit Session(const Scenario& run)
      : run_(run),
        world_(run.world),
        client_(world_, 0, run.client_plan),
        server_(world_, 1, run.server_plan) {
    for (int i = 0; i < 2; ++i) world_.host(1).AddStack(2048);
    for (int i : {0, 1}) free_buffers_[i] = world_.host(i).free_buffers();
    world_.host(0).on_event = [this](const Stack::Event& event) { client_.OnEvent(event); };
    world_.host(1).on_event = [this](const Stack::Event& event) {
      if (event.kind == Stack::Event::Kind::kAccepted) server_.Attach(event.connection);
      server_.OnEvent(event);
    };
    world_.host(1).stack().OpenListener({.local = world_.host(1).At(80), .options = &run_.server});
  }

  void Connect() {
    const Stack::Opened opened = world_.host(0).stack().Open({.local = world_.host(0).At(40'000),
                                                              .remote = world_.host(1).At(80),
                                                              .options = &run_.client,
                                                              .path = world_.host(0).path()},
                                                             world_.now());
    ASSERT_NE(opened.connection, nullptr);
    client_.Attach(opened.connection);
  }

  void Move() {
    Host& host = world_.host(1);
    if (server_.connection() == nullptr) return;
    if (!host.stack().MayDepart(*server_.connection())) return;
    ++moves;
    Connection& connection = *server_.connection();
    server_.Attach(nullptr);
    host.Move(connection, moves % 3, run_.way, run_.steering, [this](Connection* admitted) {
      ASSERT_NE(admitted, nullptr);
      server_.Attach(admitted);
      server_.Pump();
    });
  }

  void MoveAgainAndAgain() {
    world_.At(world_.now() + run_.every, [this] {
      Move();
      if (!server_.terminated) MoveAgainAndAgain();
    });
  }

  void RunToTheEnd() {
    world_.RunUntil([this] { return client_.terminated && server_.terminated; },
                    world_.now() + Seconds(3600));
  }

  void ExpectWholeAndClean() {
    EXPECT_TRUE(client_.terminated && server_.terminated) << "did not end in time";
    EXPECT_EQ(client_.received, run_.server_plan.to_send);
    EXPECT_EQ(server_.received, run_.client_plan.to_send);
    for (Party* party : {&client_, &server_}) {
      EXPECT_EQ(party->status, 0);
      EXPECT_EQ(party->wrong_bytes, 0u);
      EXPECT_EQ(party->out_of_order_events, 0u);
      EXPECT_EQ(party->cancelled, 0u);
      EXPECT_EQ(party->done.size(), party->promised);
      for (const auto& [cookie, times] : party->done) EXPECT_EQ(times, 1) << cookie;
    }
    world_.RunUntil([] { return false; }, world_.now() + Seconds(200));
    uint64_t admitted = 0;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(world_.host(1).stack(i).Quiescent());
      admitted += world_.host(1).stack(i).counters().admitted;
    }
    EXPECT_EQ(admitted, moves);
    for (int i : {0, 1}) EXPECT_EQ(world_.host(i).free_buffers(), free_buffers_[i]) << i;
  }

  World& world() { return world_; }
  Party& client() { return client_; }
  Party& server() { return server_; }
  uint64_t moves = 0;

 private:
  Scenario run_;
  World world_;
  Party client_;
  Party server_;
  uint32_t free_buffers_[2];
};

struct Weather {
  const char* name;
  Impairments link;
};

class Moving : public ::testing::TestWithParam<Weather> {};

TEST_P(Moving, EveryByteArrivesOnceInOrderAndEverySendIsDoneOnce) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario run;
    run.world.seed = seed;
    run.world.link = GetParam().link;
    run.world.link.bits_per_second = 100'000'000;
    run.client.sack = run.server.sack = seed % 3 != 0;
    run.client.timestamps = seed % 4 != 0;
    run.client_plan.closes_first = seed % 2 == 0;
    run.server_plan.closes_first = seed % 2 != 0;
    run.client_plan.chunk = run.server_plan.chunk = 100 + static_cast<uint32_t>(seed * 601);
    run.server_plan.credit_delay = Microseconds(static_cast<int64_t>(seed) * 100);
    Session session(run);
    session.Connect();
    session.MoveAgainAndAgain();
    session.RunToTheEnd();
    session.ExpectWholeAndClean();
    EXPECT_GE(session.moves, 5u);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, Moving,
    ::testing::Values(Weather{"clean", {}}, Weather{"lose1", {.lose = 100}},
                      Weather{"lose10", {.lose = 1000}}, Weather{"reorder", {.reorder = 2000}},
                      Weather{"all", {.lose = 300, .duplicate = 300, .reorder = 300}}),
    [](const auto& info) { return std::string(info.param.name); });

// A connection whose server has sent what was not acknowledged yet, and sends no more by itself.
class Quiet : public Session {
 public:
  static Scenario Plan() {
    Scenario run;
    run.client_plan = {.stream = 1, .peer_stream = 2, .closes_first = false};
    run.server_plan = {.stream = 2, .peer_stream = 1, .closes_first = false};
    return run;
  }
  Quiet() : Session(Plan()) {
    Connect();
    For(Milliseconds(1));
  }
  void For(base::Nanoseconds time) {
    world().RunUntil([] { return false; }, world().now() + time);
  }
  void Send(int host, uint32_t bytes) {
    Party& party = host == 0 ? client() : server();
    std::vector<uint8_t> text(bytes);
    for (uint32_t i = 0; i < bytes; ++i) text[i] = ByteAt(host == 0 ? 1 : 2, party.sent + i);
    party.sent += bytes;
    ASSERT_FALSE(IsRefused(world().host(host).stack().SendCopy(*party.connection(), text, {},
                                                               world().now())));
  }
};

TEST(MovingTest, WhatAConnectionKnowsGoesAlong) {
  Quiet session;
  World& world = session.world();
  session.Send(1, 40'000);
  session.For(Milliseconds(2));
  world.link().lose = 10'000;
  session.Send(1, 9'000);
  session.Send(0, 10);
  session.For(Milliseconds(300));  // It times out and backs off.
  const ConnectionReport before = session.server().connection()->Report(world.now());
  const base::Nanoseconds deadline = session.server().connection()->NextDeadline();
  ASSERT_GT(before.in_flight, 0u);
  ASSERT_GT(before.retransmits, 0u);
  Host& host = world.host(1);
  const PcbOptions options = session.server().connection()->options();
  struct Nowhere : Onward {
    void PassOn(const wire::TcpFrame&, packet::Buffer*, uint64_t) override {}
  } nowhere;
  const auto departure =
      host.stack(0).Depart(*session.server().connection(), nowhere, world.now());
  session.server().Attach(nullptr);
  host.Drain();
  EXPECT_EQ(host.stack(0).connections(), 0u);
  const Connection* there = host.stack(1).Admit(*departure, options, 5, world.now()).connection;
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(there->user, 5u);
  const ConnectionReport after = there->Report(world.now());
  EXPECT_EQ(after.state, before.state);
  EXPECT_EQ(after.srtt, before.srtt);
  EXPECT_EQ(after.rttvar, before.rttvar);
  EXPECT_EQ(after.rto, before.rto);
  EXPECT_EQ(after.oldest_unacknowledged, before.oldest_unacknowledged);
  EXPECT_EQ(after.smss, before.smss);
  EXPECT_EQ(after.congestion_window, before.congestion_window);
  EXPECT_EQ(after.slow_start_threshold, before.slow_start_threshold);
  EXPECT_EQ(after.send_window, before.send_window);
  EXPECT_EQ(after.receive_window, before.receive_window);
  EXPECT_EQ(after.in_flight, before.in_flight);
  EXPECT_EQ(after.unsent, before.unsent);
  EXPECT_EQ(after.owed_credit, before.owed_credit);
  EXPECT_EQ(after.retransmits, before.retransmits);
  EXPECT_EQ(after.in_recovery, before.in_recovery);
  EXPECT_EQ(there->NextDeadline(), deadline);
}

TEST(MovingTest, WhatCameAfterAHoleGoesAlong) {
  Quiet session;
  World& world = session.world();
  int sent = 0;
  world.host(0).on_frame = [&](const std::vector<uint8_t>&) {
    world.link().lose = sent++ == 0 ? 10'000 : 0;
  };
  session.Send(0, 5 * 1448);
  world.link().lose = 0;
  session.For(Microseconds(60));  // Less than a round trip: nothing is repaired yet.
  ASSERT_EQ(session.server().received, 0u);
  ASSERT_GT(session.server().connection()->held_buffers(), 0u);
  session.Move();
  session.For(Milliseconds(500));
  EXPECT_EQ(session.server().received, 5u * 1448);
  EXPECT_EQ(session.server().wrong_bytes, 0u);
  // Only the first was repaired: what was held was not asked for again.
  EXPECT_EQ(world.host(0).stack().pcb_counters().retransmits, 1u);
}

TEST(MovingTest, AStackWithoutBuffersRefusesAllOfItAndThePeerIsReset) {
  Quiet session;
  World& world = session.world();
  Host& host = world.host(1);
  host.AddStack(/*buffers=*/4);
  session.Send(1, 10'000);  // Nothing of it is acknowledged yet.
  struct Nowhere : Onward {
    void PassOn(const wire::TcpFrame&, packet::Buffer* buffer, uint64_t) override {
      packet::BufferPool::Release(buffer);
    }
  } nowhere;
  const PcbOptions options = session.server().connection()->options();
  auto departure = host.stack(0).Depart(*session.server().connection(), nowhere, world.now());
  session.server().Attach(nullptr);
  const uint32_t free = host.free_buffers();
  const Stack::Opened opened = host.stack(3).Admit(*departure, options, 0, world.now());
  EXPECT_EQ(opened.connection, nullptr);
  EXPECT_EQ(opened.error, ENOBUFS);
  EXPECT_EQ(host.stack(3).connections(), 0u);
  EXPECT_EQ(host.free_buffers(), free);
  host.stack(3).Refuse(*departure, world.now());
  departure.reset();
  session.For(Milliseconds(1));
  EXPECT_TRUE(session.client().terminated);
  EXPECT_EQ(session.client().status, ECONNRESET);
}

TEST(MovingTest, AStrayOfNoConnectionIsDroppedAndNobodyIsReset) {
  Quiet session;
  World& world = session.world();
  Host& host = world.host(1);
  std::vector<uint8_t> segment;
  world.host(0).on_frame = [&](const std::vector<uint8_t>& frame) { segment = frame; };
  session.Send(0, 10);
  session.For(Milliseconds(1));
  ASSERT_FALSE(segment.empty());
  packet::Buffer* const buffer = host.buffers().Acquire();
  std::copy(segment.begin(), segment.end(), buffer->data);
  buffer->length = static_cast<uint32_t>(segment.size());
  wire::TcpFrame frame;
  ASSERT_EQ(wire::ParseTcpFrame(buffer->data, segment.size(), wire::kNoChecksumVerified, &frame),
            wire::FrameVerdict::kTcp);
  const uint64_t frames = world.frames();
  host.stack(2).InputStray(frame, buffer, 0, world.now());
  EXPECT_EQ(host.stack(2).counters().strays_lost, 1u);
  EXPECT_EQ(world.frames(), frames);
}

TEST(MovingTest, WhatIsOpeningOrClosedByItsUserStays) {
  Quiet session;
  Stack& stack = session.world().host(1).stack();
  Connection& connection = *session.server().connection();
  EXPECT_TRUE(stack.MayDepart(connection));
  stack.Shutdown(connection, session.world().now());
  EXPECT_TRUE(stack.MayDepart(connection));  // It still receives.
  stack.Close(connection, Seconds(1), session.world().now());
  EXPECT_FALSE(stack.MayDepart(connection));
}

}  // namespace
}  // namespace xtreme::tcp::testing
