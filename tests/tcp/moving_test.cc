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

#include "stack/base/byte_order.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/departure.h"
#include "stack/wire/tcp_frame.h"
#include "tests/tcp/session.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

using base::Microseconds;
using base::Milliseconds;
using base::Seconds;

// A server whose connection goes round its three stacks.
class MovingSession : public Session {
 public:
  static constexpr size_t kStacks = 3;
  static constexpr base::Nanoseconds kBetween = Milliseconds(3);
  static constexpr base::Nanoseconds kWay = Microseconds(20);  // from stack to stack
  static constexpr base::Nanoseconds kSteering = Microseconds(200);

  // What both ends send, and that they are told when it is done.
  static Scenario Plan() {
    Scenario run;
    for (Party::Plan* plan : {&run.client_plan, &run.server_plan}) {
      plan->to_send = 200'000;
      plan->want_done = true;
    }
    return run;
  }
  explicit MovingSession(const Scenario& run) : Session(run, kStacks) {}

  void Move() {
    Host& host = world().host(1);
    if (server().connection() == nullptr) return;
    if (!host.stack().MayDepart(*server().connection())) return;
    ++moves;
    Connection& connection = *server().connection();
    server().Attach(nullptr);
    host.Move(connection, moves % kStacks, kWay, kSteering, [this](Connection* admitted) {
      ASSERT_NE(admitted, nullptr);
      server().Attach(admitted);
      server().Pump();
    });
  }

  void MoveAgainAndAgain() {
    world().At(world().now() + kBetween, [this] {
      Move();
      if (!server().terminated) MoveAgainAndAgain();
    });
  }

  void ExpectWholeAndClean() {
    Session::ExpectWholeAndClean();
    uint64_t admitted = 0;
    for (size_t i = 0; i < kStacks; ++i) admitted += world().host(1).stack(i).counters().admitted;
    EXPECT_EQ(admitted, moves);
  }

  uint64_t moves = 0;
};

struct Weather {
  const char* name;
  Impairments link;
};

class Moving : public ::testing::TestWithParam<Weather> {};

TEST_P(Moving, EveryByteArrivesOnceInOrderAndEverySendIsDoneOnce) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario run = MovingSession::Plan();
    run.world.seed = seed;
    run.world.link = GetParam().link;
    run.world.link.bits_per_second = 100'000'000;
    run.client.sack = run.server.sack = seed % 3 != 0;
    run.client.timestamps = seed % 4 != 0;
    run.client_plan.closes_first = seed % 2 == 0;
    run.server_plan.closes_first = seed % 2 != 0;
    run.client_plan.chunk = run.server_plan.chunk = 100 + static_cast<uint32_t>(seed * 601);
    run.server_plan.credit_delay = Microseconds(static_cast<int64_t>(seed) * 100);
    MovingSession session(run);
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
class Quiet : public MovingSession {
 public:
  static Scenario Plan() {
    Scenario run;
    run.client_plan = {.stream = 1, .peer_stream = 2, .closes_first = false};
    run.server_plan = {.stream = 2, .peer_stream = 1, .closes_first = false};
    return run;
  }
  explicit Quiet(const Scenario& run = Plan()) : MovingSession(run) {
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

// Where nobody takes what comes.
struct Nowhere : Onward {
  void PassOn(const wire::TcpFrame&, packet::Buffer* buffer, uint64_t) override {
    packet::BufferPool::Release(buffer);
  }
};

// A ring that moves to another port meanwhile has another address.
TEST(MovingTest, AResetThatIsOwedComesFromTheDeviceThatSendsIt) {
  Quiet session;
  Host& host = session.world().host(1);
  std::vector<uint8_t> reset;
  host.on_frame = [&reset](const std::vector<uint8_t>& frame) { reset = frame; };
  host.deaf = true;
  host.stack().Abort(*session.server().connection(), session.world().now());
  EXPECT_TRUE(reset.empty());
  const wire::MacAddress other({2, 0, 0, 0, 0, 9});
  host.stack().SetOwedSource(other);
  host.deaf = false;
  host.stack().OnRoom(session.world().now());
  ASSERT_GE(reset.size(), 12u);
  EXPECT_EQ(wire::MacAddress::Load(reset.data()), host.path().peer);
  EXPECT_EQ(wire::MacAddress::Load(reset.data() + 6), other);
}

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
  Nowhere nowhere;
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

// RFC 2018 section 4: the first block has what came last, whatever its numbers.
TEST(MovingTest, OrderOfTheSelectiveAcknowledgementsGoesAlong) {
  Quiet session;
  World& world = session.world();
  std::vector<wire::SackBlock> told;  // Beside the server's last segment.
  world.host(1).on_frame = [&](const std::vector<uint8_t>& bytes) {
    wire::TcpFrame frame;
    ASSERT_EQ(wire::ParseTcpFrame(bytes.data(), bytes.size(), wire::kNoChecksumVerified, &frame),
              wire::FrameVerdict::kTcp);
    const auto blocks = frame.segment.options.sack();
    told.assign(blocks.begin(), blocks.end());
  };
  // Of five the first and the fourth are lost, and the third comes after the last.
  const base::Nanoseconds delay = world.link().delay;
  int sent = 0;
  world.host(0).on_frame = [&](const std::vector<uint8_t>&) {
    const int segment = sent++;
    world.link().lose = segment == 0 || segment == 3 ? 10'000 : 0;
    world.link().delay = segment == 2 ? delay + Microseconds(20) : delay;
  };
  session.Send(0, 5 * 1448);
  session.For(delay + Microseconds(30));  // Nothing is repaired yet.
  session.Send(1, 10);
  const std::vector<wire::SackBlock> before = told;
  ASSERT_EQ(before.size(), 2u);
  ASSERT_LT(before[0].left, before[1].left);
  session.Move();
  session.For(MovingSession::kWay + Microseconds(5));
  ASSERT_EQ(session.server().received, 0u);
  told.clear();
  session.Send(1, 10);
  EXPECT_EQ(told, before);
}

TEST(MovingTest, RoomThatNobodyWasToldOfIsToldWhereItGoes) {
  Scenario run = Quiet::Plan();
  run.server.send_queue = 4'000;
  Quiet session(run);
  World& world = session.world();
  Host& host = world.host(1);
  session.Send(1, 4'000);
  const std::vector<uint8_t> more(3'000);
  ASSERT_TRUE(IsRefused(
      host.stack().SendCopy(*session.server().connection(), more, {}, world.now())));
  // What acknowledges brings a byte, which is told first; then it moves.
  std::vector<const Connection*> told;
  host.on_event = [&, before = host.on_event](const Stack::Event& event) {
    if (event.kind == Stack::Event::Kind::kData && session.moves == 0) session.Move();
    if (event.kind == Stack::Event::Kind::kSendSpace) told.push_back(event.connection);
    before(event);
  };
  world.link().lose = 10'000;
  session.For(Milliseconds(1));
  world.link().lose = 0;
  session.Send(0, 1);
  session.For(Milliseconds(1));
  EXPECT_EQ(session.moves, 1u);
  EXPECT_EQ(told, std::vector<const Connection*>{session.server().connection()});
}

TEST(MovingTest, AStackWithoutBuffersRefusesAllOfItAndThePeerIsReset) {
  Quiet session;
  World& world = session.world();
  Host& host = world.host(1);
  host.AddStack(/*buffers=*/4);
  session.Send(1, 10'000);  // Nothing of it is acknowledged yet.
  Nowhere nowhere;
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

// As of one that is aborted: RFC 9293 section 3.8.6.
TEST(MovingTest, TheResetOfOneThatIsRefusedLiesWithinAWindowTakenBack) {
  Quiet session;
  World& world = session.world();
  Host& host = world.host(1);
  const auto parse = [](const std::vector<uint8_t>& bytes) {
    wire::TcpFrame frame;
    EXPECT_EQ(wire::ParseTcpFrame(bytes.data(), bytes.size(), wire::kAllChecksumsVerified, &frame),
              wire::FrameVerdict::kTcp);
    return frame;
  };
  std::vector<std::vector<uint8_t>> from_client, from_server;
  const auto keep = [](auto* frames) {
    return [frames](const std::vector<uint8_t>& frame) { frames->push_back(frame); };
  };
  world.host(0).on_frame = keep(&from_client);
  world.host(1).on_frame = keep(&from_server);
  world.link().lose = 10'000;
  session.Send(1, 10'000);
  session.Send(0, 10);
  ASSERT_FALSE(from_client.empty() || from_server.empty());
  std::vector<uint8_t> less = from_client.front();
  constexpr size_t kIpAt = 14, kTcpAt = kIpAt + 20;
  base::StoreBe16(&less[kTcpAt + 14], 1);
  less.resize(less.size() - 10);
  base::StoreBe16(&less[kIpAt + 2], static_cast<uint16_t>(less.size() - kIpAt));
  packet::Buffer* const buffer = host.buffers().Acquire();
  std::copy(less.begin(), less.end(), buffer->data);
  buffer->length = static_cast<uint32_t>(less.size());
  host.stack(0).Input(parse(less), buffer, 0, world.now());
  Connection& connection = *session.server().connection();
  const uint32_t window = connection.Report(world.now()).send_window;
  ASSERT_LT(window, 10'000u);
  Nowhere nowhere;
  const auto departure = host.stack(0).Depart(connection, nowhere, world.now());
  session.server().Attach(nullptr);
  host.stack(1).Refuse(*departure, world.now());
  const wire::TcpSegment reset = parse(from_server.back()).segment;
  EXPECT_TRUE(reset.Has(wire::kTcpRst));
  EXPECT_EQ(Seq(reset.sequence), Seq(parse(from_server.front()).segment.sequence) + window);
  session.For(Milliseconds(1));  // The device is done with what it was to send.
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
