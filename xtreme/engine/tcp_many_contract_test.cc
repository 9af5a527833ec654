// SPDX-License-Identifier: Apache-2.0
//
// What happens to many connections at once: no poll, and no operation of the control thread, does
// the work of all of them.

#include <gtest/gtest.h>
#include <linux/neighbour.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "stack/wire/address.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr int kMany = 100;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint16_t kPortOfOthers = 7001;

class TcpManyContractTest : public TcpPairTest {
 protected:
  // From a to b, established.
  void OpenMany(const TcpSettings& server_settings = {}) {
    options.tcp_ports_log2 = 8;
    Open();
    listener = b->Listen(kPort, server_settings);
    for (int i = 0; i < kMany; ++i) {
      a->Connect({kB, kPort});
      Run(/*for_ns=*/400'000);
    }
    for (const Completion& accepted : b->Of(Kind::kAccepted)) servers.push_back(accepted.socket);
    ASSERT_EQ(servers.size(), size_t{kMany});
    a->Clear();
    b->Clear();
  }
  // One call, which hands out what it finds.
  uint32_t PollOnce(TcpEnd& end) {
    std::array<Completion, 64> out;
    const uint32_t count = end.ring->Poll(out.data(), out.size(), sizeof(Completion));
    end.got.insert(end.got.end(), out.begin(), out.begin() + count);
    return count;
  }
  // Connections of b whose frames go to `mac`.
  int GoTo(wire::MacAddress mac) {
    int count = 0;
    b->tcp().table()->ForEach([&](const TcpSocket& socket) {
      if (socket.connection == nullptr) return;
      count += wire::MacAddress::Load(socket.connection->headers().data()) == mac;
    });
    return count;
  }

  std::vector<Handle> servers;
};

TEST_F(TcpManyContractTest, TimersThatAreDueTogetherFireSomeWithEachPoll) {
  TcpSettings settings;
  settings.keepalive_idle = base::Seconds(10);
  OpenMany(settings);
  now += 11 * kSecond;
  const uint32_t before = b->queue().visible();
  uint32_t most = 0;
  for (int poll = 0; poll < kMany; ++poll) {
    const uint32_t sent = b->queue().visible();
    PollOnce(*b);
    most = std::max(most, b->queue().visible() - sent);
    Carry(*b, *a);  // Which completes what was sent.
  }
  EXPECT_EQ(b->queue().visible() - before, uint32_t{kMany});
  EXPECT_EQ(most, tcp::Stack::kMostTimers);
}

TEST_F(TcpManyContractTest, WhenTheWorldChangesPathsAreLookedAtSomeWithEachPoll) {
  OpenMany();
  const wire::MacAddress moved({2, 0, 0, 0, 0, 77});
  for (host::Neighbour& neighbour : b->kernel->tables().neighbours) {
    if (neighbour.address == kA) neighbour.mac = moved;
  }
  b->kernel->Publish();
  b->engine->control().RunAndWait([] {});
  PollOnce(*b);
  // Who sends goes the new way at once, and alone.
  const Handle last = servers.back();
  ASSERT_EQ(b->Send(last, "order"), SendResult::kSent);
  const auto& frame = b->queue().sent().back().bytes;
  EXPECT_EQ(wire::MacAddress::Load(frame.data()), moved);
  EXPECT_EQ(GoTo(moved), 1);
  PollOnce(*b);
  EXPECT_GT(GoTo(moved), 1);
  EXPECT_LT(GoTo(moved), kMany);
  EXPECT_TRUE(b->ring->More());
  for (int poll = 0; poll < 4; ++poll) PollOnce(*b);
  EXPECT_EQ(GoTo(moved), kMany);
  EXPECT_FALSE(b->ring->More());
}

TEST_F(TcpManyContractTest, NoticesThatTellNothingAreTakenSomeWithEachPoll) {
  Open();
  int taken = 0;
  for (int i = 0; i < kMany; ++i) {
    b->ring->core().host.mailbox->Push(MakeNotice([&taken](Ring&) { ++taken; }));
  }
  PollOnce(*b);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kMany);
  EXPECT_TRUE(b->ring->More());
  PollOnce(*b);
  EXPECT_EQ(taken, kMany);
}

// Another ring's port, a link that went down: none of it waits for a listener with very many.
TEST_F(TcpManyContractTest, WhatTheControlThreadIsAskedMeanwhileIsDoneBetweenTheRulesOfHeirs) {
  OpenMany();
  b->kernel->KeepListening();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  std::atomic<size_t> rules_seen{0};
  b->engine->control().RunAndWait([&] { rules_seen = b->nic->rules().size(); });
  EXPECT_LT(rules_seen, size_t{kMany} / 2);
  for (int i = 0; i < kMany / 4; ++i) b->Settle();
  // Each has its own, and the port's is gone.
  EXPECT_EQ(b->nic->rules().size(), size_t{kMany});
  for (const Handle server : servers) ASSERT_TRUE(b->tcp().Abort(server).ok());
  for (int i = 0; i < kMany / 4; ++i) b->Settle();
  EXPECT_EQ(b->nic->rules().size(), 0u);
}

TEST_F(TcpManyContractTest, ARingThatClosesAmidstAHandOverLeavesNoRule) {
  OpenMany();
  ASSERT_TRUE(b->tcp().DetachListener(listener).ok());
  b->ring.reset();
  for (int i = 0; i < kMany / 4; ++i) b->engine->control().RunAndWait([] {});
  EXPECT_EQ(b->nic->rules().size(), 0u);
  EXPECT_EQ(b->kernel->ports(), 0u);
}

TEST(TcpPortsTest, PortsOfOneConnectionAreNotLookedForAmongThoseThatAreLeased) {
  constexpr wire::Endpoint kHere{wire::Ipv4Address(10, 0, 0, 1), kPortOfOthers};
  TcpPorts ports(/*count_log2=*/0);
  const TcpPort* const first = ports.AddOfOne(kHere);
  EXPECT_EQ(ports.Find(kHere), nullptr);
  TcpPort* const leased = ports.Add(kHere);
  TcpPort* const any = ports.Add({{}, kPortOfOthers});
  const TcpPort* const second = ports.AddOfOne(kHere);
  EXPECT_EQ(ports.Find(kHere), leased);
  EXPECT_EQ(ports.Find({{}, kPortOfOthers}), any);
  EXPECT_EQ(ports.FindBy(leased->key), leased);
  const TcpPortKey gone = leased->key;
  ports.Remove(*leased);
  EXPECT_EQ(ports.FindBy(gone), nullptr);
  EXPECT_EQ(ports.Find(kHere), nullptr);
  ports.OnReleased(kPortOfOthers);
  EXPECT_TRUE(ports.ours.test(kPortOfOthers));  // As long as it is leased for any address.
  ports.Remove(*any);
  ports.OnReleased(kPortOfOthers);
  EXPECT_FALSE(ports.ours.test(kPortOfOthers));
  ports.Remove(*first);
  ports.Remove(*second);
  EXPECT_TRUE(ports.single.empty());
}

}  // namespace
}  // namespace xtreme::engine::testing
