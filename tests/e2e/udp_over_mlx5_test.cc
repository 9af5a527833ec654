// SPDX-License-Identifier: Apache-2.0
//
// UDP from one ring's send to another ring's completion, through libmlx5 and a software ConnectX.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "tests/e2e/two_rings.h"

namespace xtreme::engine::testing {
namespace {

using UdpOverMlx5Test = TwoRingsTest;

class ClosedRingTest : public TwoRingsTest {
 protected:
  ClosedRingTest() : TwoRingsTest({.send_patience = base::Seconds(30)}) {}
};

TEST_F(UdpOverMlx5Test, AMulticastDatagramIsACompletionAtTheOtherEnd) {
  const Handle sender = a->OpenSocket({.local = {{}, 6000}});
  const Handle listener = b->OpenSocket({.local = {{}, 7000}});
  ASSERT_TRUE(b->ring->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
  b->Settle();
  ASSERT_EQ(a->SendTo(sender, {kGroup, 7000}, "tick"), SendResult::kSent);
  rig->Step();
  const auto got = b->Poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].kind, Kind::kPacket);
  EXPECT_EQ(got[0].socket, listener);
  EXPECT_EQ(Text(got[0]), "tick");
  EXPECT_NE(got[0].flags & kMulticast, 0);
  EXPECT_EQ(got[0].source_port, 6000);
  Release(got);
}

TEST_F(UdpOverMlx5Test, AnEchoComesBackToItsSender) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  const Handle server = b->OpenSocket({.local = {kB, 7000}});
  for (int round = 0; round < 2'000; ++round) {
    const std::string payload = std::to_string(round);
    ASSERT_EQ(a->SendTo(client, {kB, 7000}, payload), SendResult::kSent) << round;
    rig->Step();
    const auto request = b->Poll();
    ASSERT_EQ(request.size(), 1u) << round;
    ASSERT_EQ(b->SendTo(server, {kA, request[0].source_port}, Text(request[0])),
              SendResult::kSent);
    Release(request);
    rig->Step();
    const auto reply = a->Poll();
    ASSERT_EQ(reply.size(), 1u) << round;
    ASSERT_EQ(Text(reply[0]), payload);
    Release(reply);
  }
}

TEST_F(UdpOverMlx5Test, EverySizeUpToTheMtuArrivesWhole) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  for (size_t size : {0u, 1u, 17u, 18u, 200u, 470u, 500u, 986u, 1'200u, 1'471u, 1'472u}) {
    const std::string payload(size, static_cast<char>('a' + size % 26));
    ASSERT_EQ(a->SendTo(client, {kB, 7000}, payload), SendResult::kSent) << size;
    rig->Step();
    const auto got = b->Poll();
    ASSERT_EQ(got.size(), 1u) << size;
    EXPECT_EQ(Text(got[0]), payload) << size;
    Release(got);
  }
}

TEST_F(UdpOverMlx5Test, ASendThatIsWatchedTellsWhenItLeftAndThatItIsDone) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  ASSERT_EQ(a->SendTo(client, {kB, 7000}, "x",
                      {.flags = kSendWantWire | kSendWantDone, .cookie = 77}),
            SendResult::kSent);
  rig->Step();
  const auto got = a->Poll();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].kind, Kind::kTxWire);
  EXPECT_EQ(got[1].kind, Kind::kTxDone);
  EXPECT_EQ(got[0].cookie, 77u);
  EXPECT_NE(got[0].hw_clock, 0u);
}

TEST_F(UdpOverMlx5Test, SendsWithoutADoorbellLeaveTogetherAtTheFlush) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(a->SendTo(client, {kB, 7000}, std::to_string(i), {.flags = kNoDoorbell}),
              SendResult::kSent);
  }
  rig->Step();
  EXPECT_TRUE(b->Poll().empty());
  a->ring->Flush();
  rig->Step();
  const auto got = b->Poll();
  ASSERT_EQ(got.size(), 16u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Text(got[i]), std::to_string(i));
  Release(got);
}

TEST_F(ClosedRingTest, WhatWasSentBeforeTheRingClosedArrives) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(a->SendTo(client, {kB, 7000}, std::to_string(i), {.flags = kNoDoorbell}),
              SendResult::kSent);
  }
  a->ring.reset();
  auto buried = std::async(std::launch::async, [&] { a->engine->control().RunAndWait([] {}); });
  // The control thread has the queue now, and waits for the device.
  while (buried.wait_for(std::chrono::seconds(0)) != std::future_status::ready) rig->Step();
  const auto got = b->Poll();
  ASSERT_EQ(got.size(), 16u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Text(got[i]), std::to_string(i));
  Release(got);
}

TEST_F(UdpOverMlx5Test, AWarmSendNeverArrives) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  ASSERT_EQ(a->SendTo(client, {kB, 7000}, "warm", {.flags = kWarm}), SendResult::kSent);
  rig->Step();
  EXPECT_TRUE(b->Poll().empty());
}

TEST_F(UdpOverMlx5Test, SeveralSocketsOnOneGroupEachGetTheDatagram) {
  const Handle sender = a->OpenSocket({.local = {{}, 6000}});
  std::vector<Handle> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(b->OpenSocket({.local = {{}, 7000}, .reuse = true}));
    ASSERT_TRUE(b->ring->udp().Join(listeners[i], {kGroup, 0}, std::nullopt, 0, 1).ok());
    b->Settle();
  }
  ASSERT_EQ(a->SendTo(sender, {kGroup, 7000}, "all"), SendResult::kSent);
  rig->Step();
  const auto got = b->Poll();
  ASSERT_EQ(got.size(), 3u);
  for (const Completion& packet : got) {
    EXPECT_NE(packet.flags & kShared, 0);
    EXPECT_EQ(Text(packet), "all");
  }
  Release(got);
}

class WholeAddressTest : public TwoRingsTest {
 protected:
  WholeAddressTest() : TwoRingsTest({.fragments = Fragments::kOwn}) {}
};

// Of rules of one priority the one that came first would take everything.
TEST_F(WholeAddressTest, OtherRingsHaveTheirPortsOfAnAddressThatOneTakesWhole) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  const Handle whole = b->OpenSocket({.local = {kB, 7000}});
  const wire::MacAddress mac_a(connectx::kMacA);
  const wire::MacAddress mac_b(connectx::kMacB);
  RingOptions options;
  options.interface_name = MemoryKernel::kInterface;
  options.rx_buffers = 2048;
  options.hugepages = Hugepages::kNever;
  RingEnd other("mlx5_1", {kB, mac_b, kA, mac_a}, &now, options, base::Nanoseconds{});
  ASSERT_TRUE(other.ring->Start().ok());
  const Handle port = other.OpenSocket({.local = {kB, 8000}});
  ASSERT_EQ(a->SendTo(client, {kB, 8000}, "by its port"), SendResult::kSent);
  ASSERT_EQ(a->SendTo(client, {kB, 7000}, "by its address"), SendResult::kSent);
  rig->Step();
  const auto by_port = other.Poll();
  ASSERT_EQ(by_port.size(), 1u);
  EXPECT_EQ(by_port[0].socket, port);
  EXPECT_EQ(Text(by_port[0]), "by its port");
  const auto by_address = b->Poll();
  ASSERT_EQ(by_address.size(), 1u);
  EXPECT_EQ(by_address[0].socket, whole);
  Release(by_port);
  Release(by_address);
}

class FewRulesTest : public TwoRingsTest {
 protected:
  FewRulesTest() : TwoRingsTest({.flow_rules = 4}) {}

  Handle Join(uint16_t port) {
    Handle listener = 0;
    EXPECT_TRUE(b->ring->udp().Open({.local = {{}, port}}, &listener).ok());
    EXPECT_TRUE(b->ring->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
    b->engine->control().RunAndWait([] {});
    for (const Completion& completion : b->Poll()) EXPECT_EQ(completion.status, 0);
    return listener;
  }
};

// The shared rule gives copies, and stands before the rules of the group's ports, whatever theirs.
TEST_F(FewRulesTest, WhereOneRuleStandsInForAGroupItsDatagramsComeOnce) {
  const Handle sender = a->OpenSocket({.local = {{}, 6000}});
  std::vector<Handle> listeners;
  for (uint16_t port = 7000; port < 7006; ++port) listeners.push_back(Join(port));
  for (uint16_t port = 7000; port < 7006; ++port) {
    ASSERT_EQ(a->SendTo(sender, {kGroup, port}, "once"), SendResult::kSent);
    rig->Step();
    const auto got = b->Poll();
    ASSERT_EQ(got.size(), 1u) << port;
    EXPECT_EQ(got[0].socket, listeners[port - 7000]);
    Release(got);
  }
}

TEST_F(UdpOverMlx5Test, AFeedOfManyPollsLosesNothing) {
  const Handle sender = a->OpenSocket({.local = {{}, 6000}});
  const Handle listener = b->OpenSocket({.local = {{}, 7000}});
  ASSERT_TRUE(b->ring->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
  b->Settle();
  int next = 0;
  for (int burst = 0; burst < 200; ++burst) {
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(a->SendTo(sender, {kGroup, 7000}, std::to_string(burst * 50 + i),
                          {.flags = kNoDoorbell}),
                SendResult::kSent);
    }
    a->Poll();
    rig->Step();
    for (std::vector<Completion> got; !(got = b->Poll(16)).empty(); Release(got)) {
      for (const Completion& packet : got) ASSERT_EQ(Text(packet), std::to_string(next++));
    }
  }
  EXPECT_EQ(next, 10'000);
}

}  // namespace
}  // namespace xtreme::engine::testing
