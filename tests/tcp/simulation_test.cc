// SPDX-License-Identifier: Apache-2.0
//
// Two stacks under virtual time: whatever the network does, both sides end with the same bytes, the
// contract of events holds, and nothing leaks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stack/tcp/connection.h"
#include "tests/tcp/session.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {
namespace {

void RunWhole(const Scenario& run) {
  SCOPED_TRACE("seed " + std::to_string(run.world.seed));
  Session session(run);
  session.Go();
  session.ExpectWholeAndClean();
}

TEST(Simulation, CleanLinkCarriesBothDirectionsAndCloses) {
  Scenario run;
  RunWhole(run);
}

TEST(Simulation, NothingIsRetransmittedOnACleanLink) {
  Session session({});
  session.Go();
  session.ExpectWholeAndClean();
  EXPECT_EQ(session.world().host(0).stack().pcb_counters().retransmits, 0u);
  EXPECT_EQ(session.world().host(1).stack().pcb_counters().retransmits, 0u);
}

struct Weather {
  const char* name;
  Impairments link;
};

class AnyWeather : public ::testing::TestWithParam<Weather> {};

TEST_P(AnyWeather, EveryByteArrivesOnceInOrderAndBothEnd) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Scenario run;
    run.world.seed = seed;
    run.world.link = GetParam().link;
    run.client.sack = run.server.sack = seed % 3 != 0;
    run.client.timestamps = seed % 4 != 0;
    run.client.nagle = seed % 2 == 0;
    run.client_plan.chunk = 1 + static_cast<uint32_t>(seed * 977 % 6000);
    run.client_plan.want_done = true;
    run.client_plan.closes_first = seed % 5 != 0;
    run.server_plan.closes_first = seed % 5 == 0 || seed % 2 == 0;
    RunWhole(run);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, AnyWeather,
    ::testing::Values(Weather{"lose1", {.lose = 100}}, Weather{"lose10", {.lose = 1000}},
                      Weather{"lose30", {.lose = 3000}}, Weather{"duplicate", {.duplicate = 2000}},
                      Weather{"reorder", {.reorder = 2000}}, Weather{"corrupt", {.corrupt = 500}},
                      Weather{"all",
                              {.lose = 300, .duplicate = 300, .reorder = 300, .corrupt = 300}},
                      Weather{"slow", {.bits_per_second = 10'000'000, .queue_frames = 20}}),
    [](const auto& info) { return std::string(info.param.name); });

// The device cuts what leaves; a payload is one run, or several, or begins and ends within one.
TEST_P(AnyWeather, EveryByteOfRunsArrivesOnceInOrderAndBothEnd) {
  uint64_t runs = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Scenario run;
    run.world.seed = seed;
    run.world.link = GetParam().link;
    run.world.run_bytes = seed % 4 == 0 ? 5000 : 64'000;
    run.client.sack = run.server.sack = seed % 3 != 0;
    run.client.timestamps = seed % 4 != 1;
    run.client.nagle = seed % 2 == 0;
    run.client_plan.chunk = 1 + static_cast<uint32_t>(seed * 9779 % 60'000);
    run.client_plan.in_place = seed % 2 != 0;
    run.server_plan.chunk = 20'000;
    run.client_plan.want_done = run.server_plan.want_done = true;
    Session session(run);
    session.Go();
    session.ExpectWholeAndClean();
    runs += session.world().host(0).runs();
    if (HasFailure()) return;
  }
  EXPECT_GT(runs, 20u);
}

// Nothing ever happens to it by itself.
TEST(Simulation, RefusedForMemoryThatAnotherConnectionHoldsIsToldWhenItIsBack) {
  World::Options options;
  options.stack.segments = 4;
  World world(options);
  const PcbOptions pcb_options;
  Host& host = world.host(0);
  world.host(1).on_event = [](const Stack::Event& event) {
    packet::BufferPool::ReleaseChain(event.chain);
  };
  world.host(1).stack().OpenListener({.local = world.host(1).At(80), .options = &pcb_options});
  std::vector<Connection*> told;
  int established = 0;
  host.on_event = [&](const Stack::Event& event) {
    established += event.kind == Stack::Event::Kind::kEstablished;
    if (event.kind == Stack::Event::Kind::kSendSpace) told.push_back(event.connection);
  };
  Connection* connections[2];
  for (uint16_t i : {0, 1}) {
    const Stack::Connect connect{.local = host.At(static_cast<uint16_t>(40'000 + i)),
                                 .remote = world.host(1).At(80),
                                 .options = &pcb_options,
                                 .path = host.path()};
    connections[i] = host.stack().Open(connect, world.now()).connection;
  }
  world.RunUntil([] { return false; }, world.now() + base::Seconds(1));
  ASSERT_EQ(established, 2);
  const std::vector<uint8_t> bytes(10);
  for (int i = 0; i < 4; ++i) {
    ASSERT_FALSE(IsRefused(host.stack().SendCopy(*connections[0], bytes, {}, world.now())));
  }
  ASSERT_EQ(host.stack().SendCopy(*connections[1], bytes, {}, world.now()), SendResult::kBuffers);
  world.RunUntil([] { return false; }, world.now() + base::Seconds(1));
  EXPECT_EQ(told, std::vector<Connection*>{connections[1]});
  EXPECT_EQ(host.stack().SendCopy(*connections[1], bytes, {}, world.now()), SendResult::kSent);
}

TEST(Simulation, OnACleanLinkRunsBringWhatSegmentsBring) {
  for (const bool in_place : {false, true}) {
    uint64_t frames[2];
    for (const bool runs : {false, true}) {
      Scenario run;
      run.world.run_bytes = runs ? 64'000 : 0;
      run.client_plan = {.to_send = 1'000'000, .chunk = 100'000, .in_place = in_place};
      run.server_plan.to_send = 0;
      Session session(run);
      session.Go();
      session.ExpectWholeAndClean();
      const PcbCounters& counters = session.world().host(0).stack().pcb_counters();
      EXPECT_EQ(counters.retransmits, 0u);
      EXPECT_EQ(counters.runs, session.world().host(0).runs());
      EXPECT_EQ(counters.runs != 0, runs);
      frames[runs] = counters.segments_out;
      // Many of two segments, which is what an acknowledgement lets go.
      EXPECT_LT(5 * counters.runs, 2 * counters.segments_out);
    }
    EXPECT_NEAR(static_cast<double>(frames[1]), static_cast<double>(frames[0]), 30);
  }
}

// A tail of several segments that is lost is probed by one of them, and repaired.
TEST(Simulation, ALostRunIsProbedByASegment) {
  Scenario run;
  run.world.run_bytes = 64'000;
  run.client_plan = {.to_send = 8 * 1448, .chunk = 8 * 1448, .closes_first = false,
                     .in_place = true};
  run.server_plan.to_send = 0;
  run.server_plan.closes_first = false;
  run.limit = base::Seconds(5);
  Session session(run);
  uint32_t data = 0, longest = 0;
  session.world().host(0).on_frame = [&](const std::vector<uint8_t>& frame) {
    data += frame.size() > 200;
    longest = std::max(longest, static_cast<uint32_t>(frame.size()));
    session.world().link().lose = data >= 3 && data <= 8 ? 10'000 : 0;
  };
  session.Go();
  EXPECT_EQ(session.server().received, 8u * 1448);
  EXPECT_GT(session.world().host(0).runs(), 0u);
  EXPECT_GT(session.world().host(0).stack().pcb_counters().tail_probes, 0u);
  EXPECT_LE(longest, 1514u);
}

TEST(Simulation, TinyWindowsAndSlowReaders) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario run;
    run.world.seed = seed;
    run.world.link.lose = 200;
    run.client.receive_window = 100 + static_cast<uint32_t>(seed * 397);
    run.server.receive_window = 1 + static_cast<uint32_t>(seed * seed * 41);
    run.client_plan.to_send = run.server_plan.to_send = 8000;
    run.server_plan.credit_delay = base::Milliseconds(3);
    RunWhole(run);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Simulation, SequenceNumbersAndTimestampsWrap) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Scenario run;
    run.world.seed = seed;
    run.world.link.lose = 200;
    run.world.link.reorder = 500;
    // The timestamp clock wraps in a moment.
    run.client.timestamp_clock.offset = 0xFFFFFFF0 - 1'000'000;
    run.server.timestamp_clock.offset = 0xFFFFFFFA - 1'000'000;
    // With the initial numbers of 4 us and these starts, sequence numbers pass 2^32 in some runs.
    run.world.start = base::Seconds(1000 + static_cast<int64_t>(seed) * 4400);
    run.client.timestamp_clock.offset -= static_cast<uint32_t>(seed) * 4'400'000;
    run.server.timestamp_clock.offset -= static_cast<uint32_t>(seed) * 4'400'000;
    RunWhole(run);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Simulation, AFullSendQueueHoldsBackAndLosesNothing) {
  Scenario run;
  run.world.send_queue = 3;
  run.client_plan.want_done = run.server_plan.want_done = true;
  RunWhole(run);
}

TEST(Simulation, DoneWaitsForTheWqeThatRefersToTheBytes) {
  Scenario run;
  run.client_plan.want_done = true;
  run.client_plan.to_send = 5000;
  run.world.wqe_delay = base::Milliseconds(400);  // acknowledgements come long before
  RunWhole(run);
}

TEST(Simulation, TheCongestionWindowBeginsAgainAfterSilence) {
  Scenario run;
  run.client_plan = {.to_send = 1'000'000, .closes_first = false};
  run.server_plan = {.stream = 2, .peer_stream = 1, .closes_first = false};
  run.limit = base::Seconds(5);
  Session session(run);
  session.Go();
  Connection& client = *session.client().connection();
  const base::Nanoseconds now = session.world().now();
  ASSERT_EQ(session.server().received, 1'000'000u);
  EXPECT_GT(client.Report(now).congestion_window, 20'000u);
  const uint8_t byte = 0;
  session.world().host(0).stack().SendCopy(client, {&byte, 1}, {}, now);
  EXPECT_LE(client.Report(now).congestion_window, 14'600u);
}

// Without SACK a time-out marks everything lost. What the repair itself loses then, by a slow start
// into a short queue, lowers the threshold again: else each time-out would be followed by another.
TEST(Simulation, ATimeoutAmidTheRepairOfAnotherEndsItsSlowStartSooner) {
  for (const CongestionAlgorithm algorithm :
       {CongestionAlgorithm::kCubic, CongestionAlgorithm::kNewReno}) {
    Scenario run;
    run.world.link = {.delay = base::Microseconds(50),
                      .bits_per_second = 10'000'000'000,
                      .queue_frames = 100};
    run.world.send_queue = 8192;
    run.client.sack = false;
    run.client.congestion = algorithm;
    run.client.send_queue = run.server.receive_window = 4 << 20;
    run.client_plan = {.to_send = 20'000'000, .chunk = 14'480};
    run.server_plan.to_send = 0;
    Session session(run);
    session.Go();
    session.ExpectWholeAndClean();
    EXPECT_LE(session.world().host(0).stack().pcb_counters().timeouts, 8u);
  }
}

}  // namespace
}  // namespace xtreme::tcp::testing
