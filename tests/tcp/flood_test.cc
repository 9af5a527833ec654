// SPDX-License-Identifier: Apache-2.0
//
// A million SYNs from random sources beside a connection that trades: it does not notice, memory
// does not grow, and who means it still gets in.

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_frame.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

constexpr int kSyns = 1'000'000;
constexpr uint64_t kTraded = 10'000'000;

class Flood : public ::testing::Test {
 protected:
  Flood() : Flood({.connections = 8, .syn_queue = 64, .answer_strangers = false}) {}
  explicit Flood(const Stack::Options& stack) : world_({.stack = stack}) {
    // What the flood's sources get back is lost on the way: only answers of host 1 to host 0 count.
    world_.host(1).on_event = [this](const Stack::Event& event) {
      const bool first = event.connection->flow_key().remote().port == 40'000;
      Party& party = first ? exchange_ : other_;
      if (event.kind == Stack::Event::Kind::kAccepted) party.Attach(event.connection);
      party.OnEvent(event);
    };
    world_.host(0).on_event = [this](const Stack::Event& event) {
      const bool first = event.connection->flow_key().local().port == 40'000;
      (first ? trader_ : late_).OnEvent(event);
    };
    options_.receive_window = 16'000;  // with the delay of credit: trading lasts as long
    Listen(80);
  }

  void Listen(uint16_t port, uint32_t syns_per_second = 0) {
    world_.host(1).stack().OpenListener({.local = world_.host(1).At(port),
                                         .options = &options_,
                                         .backlog = 16,
                                         .syns_per_second = syns_per_second});
  }

  void Connect(Party& party, uint16_t port) {
    const Stack::Opened opened = world_.host(0).stack().Open({.local = world_.host(0).At(port),
                                                              .remote = world_.host(1).At(80),
                                                              .options = &options_,
                                                              .path = world_.host(0).path()},
                                                             world_.now());
    ASSERT_NE(opened.connection, nullptr);
    party.Attach(opened.connection);
  }

  // From a source of its own each.
  void Syn(uint16_t port = 80) {
    Syn(wire::Ipv4Address(static_cast<uint32_t>(random_()) >> 2 | 1u << 31), port);
  }
  void Syn(wire::Ipv4Address source, uint16_t port = 80) { Arrive(SynFrom(source, port)); }
  wire::TcpFrame SynFrom(wire::Ipv4Address source, uint16_t port) {
    wire::TcpFrame frame;
    frame.flow = {.destination = world_.host(1).At(port).address,
                  .source = source,
                  .destination_port = port,
                  .source_port = static_cast<uint16_t>(random_()),
                  .vlan_id = 0};
    frame.segment.sequence = static_cast<uint32_t>(random_());
    frame.segment.flags = wire::kTcpSyn;
    frame.segment.window = 1000;
    frame.segment.options.mss = 1460;
    frame.payload_offset = 54;
    return frame;
  }
  void Arrive(const wire::TcpFrame& frame) {
    packet::Buffer* const buffer = world_.host(1).buffers().Acquire();
    buffer->length = 54;
    world_.host(1).stack().Input(frame, buffer, 0, world_.now());
  }

  std::mt19937_64 random_{7};
  PcbOptions options_;
  World world_;
  Party trader_{
      world_,
      0,
      {.stream = 1, .peer_stream = 2, .to_send = kTraded, .credit_delay = base::Milliseconds(1)}};
  Party exchange_{
      world_,
      1,
      {.stream = 2, .peer_stream = 1, .to_send = kTraded, .credit_delay = base::Milliseconds(1)}};
  Party late_{world_, 0, {.stream = 3, .peer_stream = 4, .to_send = 1000}};
  Party other_{world_, 1, {.stream = 4, .peer_stream = 3, .to_send = 1000}};
};

TEST_F(Flood, AMillionSynsDisturbNobody) {
  Connect(trader_, 40'000);
  world_.RunUntil([this] { return trader_.established && exchange_.established; },
                  world_.now() + base::Seconds(1));
  const size_t memory = world_.host(1).stack().memory_bytes();
  const uint32_t buffers = world_.host(1).buffers().free_count();
  for (int i = 0; i < kSyns; ++i) {
    Syn();
    if (i == kSyns / 2) Connect(late_, 40'001);
    if (i % 100 != 99) continue;
    const base::Nanoseconds end = world_.now() + base::Microseconds(100);
    world_.RunUntil([] { return false; }, end);
  }
  world_.RunUntil([this] { return trader_.terminated && exchange_.terminated; },
                  world_.now() + base::Seconds(100));
  EXPECT_EQ(trader_.received, kTraded);
  EXPECT_EQ(exchange_.received, kTraded);
  EXPECT_EQ(trader_.wrong_bytes + exchange_.wrong_bytes, 0u);
  EXPECT_EQ(world_.host(0).stack().pcb_counters().retransmits, 0u);
  EXPECT_EQ(late_.received, 1000u) << "a newcomer did not get in";
  EXPECT_EQ(other_.received, 1000u);
  const StackCounters& counters = world_.host(1).stack().counters();
  EXPECT_GT(counters.cookies_sent, 900'000u);
  EXPECT_GE(counters.cookies_accepted, 1u);
  EXPECT_EQ(world_.host(1).stack().memory_bytes(), memory);
  EXPECT_GE(world_.host(1).buffers().free_count(), buffers);
}

// Nor do they take places of the SYN queue, whose 64 would be gone.
TEST_F(Flood, SynsFromSourcesThatNoHostHasAreNotAnswered) {
  using wire::Ipv4Address;
  for (const Ipv4Address source :
       {Ipv4Address::Any(), Ipv4Address::LimitedBroadcast(), Ipv4Address(224, 0, 0, 1),
        Ipv4Address(240, 0, 0, 1), Ipv4Address(127, 0, 0, 1), world_.host(1).At(80).address}) {
    for (int i = 0; i < 65; ++i) Syn(source);
  }
  const StackCounters& counters = world_.host(1).stack().counters();
  EXPECT_EQ(counters.bad_sources, 6u * 65);
  EXPECT_EQ(counters.cookies_sent, 0u);
  Connect(late_, 40'001);
  world_.RunUntil([this] { return late_.terminated && other_.terminated; },
                  world_.now() + base::Seconds(100));
  EXPECT_EQ(late_.received, 1000u);
  EXPECT_EQ(counters.cookies_sent, 0u);
}

// Who floods one listener within its limit takes nothing from another.
TEST_F(Flood, AListenerAnswersNoMoreSynsInASecondThanItsLimit) {
  constexpr uint32_t kLimit = 10;
  constexpr uint16_t kLimited = 81;
  Listen(kLimited, kLimit);
  const StackCounters& counters = world_.host(1).stack().counters();
  for (uint32_t i = 0; i < 3 * kLimit; ++i) Syn(kLimited);
  EXPECT_EQ(counters.syns_withheld, 2 * kLimit);
  for (uint32_t i = 0; i < 3 * kLimit; ++i) Syn();
  EXPECT_EQ(counters.syns_withheld, 2 * kLimit) << "the other one has no limit";
  world_.RunUntil([] { return false; }, world_.now() + base::Seconds(1));
  for (uint32_t i = 0; i < kLimit; ++i) Syn(kLimited);
  EXPECT_EQ(counters.syns_withheld, 2 * kLimit) << "a second later as many again";
  Syn(kLimited);
  EXPECT_EQ(counters.syns_withheld, 2 * kLimit + 1);
}

TEST_F(Flood, ASynThatComesAgainIsAnsweredOrCounted) {
  constexpr uint64_t kAtOnce = 101;  // Of 1,000 a second.
  const wire::TcpFrame syn = SynFrom(wire::Ipv4Address(10, 9, 9, 9), 80);
  for (uint64_t i = 0; i < 1 + kAtOnce; ++i) Arrive(syn);
  const StackCounters& counters = world_.host(1).stack().counters();
  EXPECT_EQ(counters.answers_withheld, 0u);
  for (int i = 0; i < 10; ++i) Arrive(syn);
  EXPECT_EQ(counters.answers_withheld, 10u);
}

// A queue of one, which a stranger fills and leaves.
class CookieForOne : public Flood {
 protected:
  CookieForOne() : Flood({.connections = 8, .syn_queue = 1}) {
    world_.host(1).on_frame = [this](const std::vector<uint8_t>& frame) {
      constexpr size_t kSequence = 14 + 20 + 4;
      answers_.push_back(base::LoadBe32(&frame[kSequence]));
    };
  }
  const StackCounters& counters() { return world_.host(1).stack().counters(); }

  std::vector<uint32_t> answers_;  // Their sequence numbers.
};

// RFC 4987 section 3.6. The answer was long on its way, and the SYN came again when there was room.
TEST_F(CookieForOne, TheAnswerToACookieStandsThoughTheSynCameAgainAndWasQueued) {
  wire::TcpFrame stranger = SynFrom(wire::Ipv4Address(10, 9, 9, 8), 80);
  Arrive(stranger);
  wire::TcpFrame frame = SynFrom(wire::Ipv4Address(10, 9, 9, 9), 80);
  Arrive(frame);
  ASSERT_EQ(counters().cookies_sent, 1u);
  stranger.segment.flags = wire::kTcpRst;
  ++stranger.segment.sequence;
  Arrive(stranger);
  Arrive(frame);
  ASSERT_EQ(counters().cookies_sent, 1u) << "it is queued";
  ASSERT_EQ(answers_.size(), 3u);
  ASSERT_NE(answers_[1], answers_[2]);
  frame.segment.flags = wire::kTcpAck;
  ++frame.segment.sequence;
  frame.segment.acknowledgement = answers_[1] + 1;
  Arrive(frame);
  EXPECT_EQ(counters().resets_to_strangers, 0u);
  EXPECT_EQ(counters().cookies_accepted, 1u);
  EXPECT_EQ(counters().accepted, 1u);
  EXPECT_EQ(world_.host(1).stack().tables().syns.size(), 0u);
}

// What all listeners answer together (RFC 4987 section 3.7).
class LimitedStack : public Flood {
 protected:
  static constexpr uint32_t kPerSecond = 100;
  LimitedStack() : Flood({.connections = 8, .syn_queue = 64, .syns_per_second = kPerSecond}) {}
};

TEST_F(LimitedStack, AnswersNoMoreSynsThanItsLimit) {
  for (uint32_t i = 0; i < kPerSecond; ++i) Syn();
  const uint64_t withheld = world_.host(1).stack().counters().syns_withheld;
  EXPECT_EQ(withheld, kPerSecond - (kPerSecond / 10 + 1)) << "a tenth of a second's at once";
  world_.RunUntil([] { return false; }, world_.now() + base::Seconds(1));
  Syn();
  EXPECT_EQ(world_.host(1).stack().counters().syns_withheld, withheld);
}

}  // namespace
}  // namespace xtreme::tcp::testing
