// SPDX-License-Identifier: Apache-2.0
//
// A connection between the two hosts of a World, from its SYN to both ends' TERMINATED, and what
// has to be true then: every byte arrived once and in order, the contract of events held, nothing
// leaked.

#ifndef XTREME_TESTS_TCP_SESSION_H_
#define XTREME_TESTS_TCP_SESSION_H_

#include <array>
#include <cstdint>

#include "gtest/gtest.h"
#include "stack/base/time.h"
#include "tests/tcp/world.h"

namespace xtreme::tcp::testing {

struct Scenario {
  // As RFC 9293 section 3.4.2 has it: longer than any retransmission of the peer backs off.
  Scenario() { world.stack.time_wait_duration = base::Seconds(240); }

  World::Options world;
  PcbOptions client;
  PcbOptions server;
  Party::Plan client_plan{.stream = 1, .peer_stream = 2, .to_send = 100'000};
  Party::Plan server_plan{.stream = 2, .peer_stream = 1, .to_send = 100'000};
  base::Nanoseconds limit = base::Seconds(3600);
};

// Host 0 is the client. The server has so many stacks.
class Session {
 public:
  explicit Session(const Scenario& run, size_t server_stacks = 1)
      : run_(run),
        server_stacks_(server_stacks),
        world_(run.world),
        client_(world_, 0, run.client_plan),
        server_(world_, 1, run.server_plan) {
    for (size_t i = 1; i < server_stacks; ++i) world_.host(1).AddStack(2048);
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
  void RunToTheEnd() {
    world_.RunUntil([this] { return client_.terminated && server_.terminated; },
                    world_.now() + run_.limit);
  }
  void Go() {
    Connect();
    RunToTheEnd();
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
    // Late duplicates and the WQEs under way.
    world_.RunUntil([] { return false; }, world_.now() + base::Seconds(200));
    EXPECT_TRUE(world_.host(0).stack().Quiescent());
    for (size_t i = 0; i < server_stacks_; ++i) {
      EXPECT_TRUE(world_.host(1).stack(i).Quiescent()) << i;
    }
    for (int i : {0, 1}) {
      EXPECT_EQ(world_.host(i).free_buffers(), free_buffers_[i]) << "buffers leaked";
    }
  }

  World& world() { return world_; }
  Party& client() { return client_; }
  Party& server() { return server_; }

 private:
  const Scenario run_;
  const size_t server_stacks_;
  World world_;
  Party client_;
  Party server_;
  std::array<uint32_t, 2> free_buffers_;
};

}  // namespace xtreme::tcp::testing

#endif  // XTREME_TESTS_TCP_SESSION_H_
