// SPDX-License-Identifier: Apache-2.0
//
// The completion contract, the life of sockets.

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

using UdpSocketTest = RingTest;

TEST_F(UdpSocketTest, OpenEndsAsOpDoneWithRuleAndPortInPlace) {
  Open();
  Handle handle = 0;
  const size_t stock = kernel->ports();
  ASSERT_TRUE(ring->udp().Open({.local = {kOwn, 7000}, .user_data = 3}, &handle).ok());
  const auto done = Settle();
  ASSERT_EQ(Kinds(done), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(done[0].socket, handle);
  EXPECT_EQ(done[0].cookie, 0u);
  EXPECT_EQ(done[0].status, 0);
  EXPECT_EQ(done[0].user_data, 3u);
  EXPECT_EQ(kernel->ports(), stock + 1);
  const auto rules = nic->rules();
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].match.destination_mac, nic->mac());
  EXPECT_EQ(rules[0].match.destination_ip, kOwn);
  EXPECT_EQ(rules[0].match.destination_port, 7000);
  EXPECT_EQ(rules[0].match.protocol, 17);
  EXPECT_EQ(rules[0].tag, PlaceOf(handle) + 1);
}

TEST_F(UdpSocketTest, SharedPortsAndGroupsHaveCanonicalRulesWithoutATag) {
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}, .reuse = true});
  Join(socket, kGroup);
  const auto rules = nic->rules();
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].tag, 0u);
  EXPECT_EQ(rules[1].tag, 0u);
  nic::FlowMatch group;
  group.destination_mac = wire::MulticastMac(kGroup);
  group.destination_ip = kGroup;
  group.protocol = 17;
  group.destination_port = 7000;
  EXPECT_EQ(rules[1].match, group);
}

TEST_F(UdpSocketTest, ATagOfTheProgramsStandsInEveryRuleOfItsSocket) {
  constexpr uint32_t kTag = 2;
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .broadcast = true, .flow_tag = kTag});
  Join(socket, kGroup);
  const auto rules = nic->rules();
  ASSERT_EQ(rules.size(), 3u);
  for (const nic::FlowRule& rule : rules) EXPECT_EQ(rule.tag, kTag);
  // As a hint it would name this one.
  EXPECT_EQ(PlaceOf(OpenSocket(7001)) + 1, kTag);
  ASSERT_TRUE(queue().Inject(MakeFrame({.destination = {kOwn, 7000}}), kTag));
  const auto got = PollAll();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket});
  EXPECT_EQ(got[0].socket, socket);
  Release(got);
}

TEST_F(UdpSocketTest, AGroupThatIsJoinedWithAnotherTagIsJoinedAsItIs) {
  Open();
  const Handle first = OpenSocket({.local = {kOwn, 7000}, .reuse = true, .flow_tag = 1});
  const Handle second = OpenSocket({.local = {{}, 7000}, .reuse = true, .flow_tag = 2});
  Join(first, kGroup);
  Join(second, kGroup);
  const auto rules = nic->rules();
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].tag, 1u);
  EXPECT_EQ(rules[1].tag, 1u);
}

TEST_F(UdpSocketTest, ATagBeyondTheDevicesBitsIsRefused) {
  Open();
  Handle handle = 0;
  EXPECT_EQ(ring->udp().Open({.flow_tag = kMostFlowTag + 1}, &handle).error, EINVAL);
}

TEST_F(UdpSocketTest, WhatIsKnownAtOnceIsRefusedAtOnce) {
  options.max_sockets = 2;
  Open();
  OpenSocket({.local = {kOwn, 7000}});
  Handle handle = 0;
  EXPECT_EQ(ring->udp().Open({.local = {kOwn, 7000}}, &handle).error, EADDRINUSE);
  EXPECT_EQ(ring->udp().Open({.local = {{10, 9, 9, 9}, 7000}}, &handle).error, EADDRNOTAVAIL);
  OpenSocket(7001);
  EXPECT_EQ(ring->udp().Open({.local = {{}, 7002}}, &handle).error, EMFILE);
}

TEST_F(UdpSocketTest, APortIsTakenHoweverTheSocketThereStands) {
  constexpr wire::Ipv4Address kBroadcast(255, 255, 255, 255);
  Open();
  Handle handle = 0;
  const auto refuses = [&](wire::Ipv4Address address, uint16_t port) {
    return ring->udp().Open({.local = {address, port}}, &handle).error == EADDRINUSE;
  };
  OpenSocket({.local = {kBroadcast, 7000}});
  EXPECT_TRUE(refuses(kBroadcast, 7000));
  EXPECT_TRUE(refuses({}, 7000)) << "any address gets broadcasts too";
  OpenSocket(7001);
  EXPECT_TRUE(refuses({}, 7001));
  const Handle member = OpenSocket(7002);
  Join(member, kGroup);
  EXPECT_TRUE(refuses(kGroup, 7002));
  const Handle connected = OpenSocket({.local = {kOwn, 7003}, .reuse = true});
  const Handle other = OpenSocket({.local = {kOwn, 7003}, .reuse = true});
  Connect(connected, kPeer);
  Connect(other, {kPeer.address, 5001});
  EXPECT_TRUE(refuses(kOwn, 7003));
  ASSERT_TRUE(ring->udp().Close(connected, false).ok());
  EXPECT_TRUE(refuses(kOwn, 7003)) << "the other one still is";
  ASSERT_TRUE(ring->udp().Close(other, false).ok());
  Settle();
  EXPECT_FALSE(refuses(kOwn, 7003));
}

TEST_F(UdpSocketTest, AsManyHearBroadcastsAsTheFifoHasRoomForAndOfOneAddressAnyNumber) {
  options.completions = 64;
  Open();
  Handle handle = 0;
  for (int i = 0; i < 63; ++i) OpenSocket({.local = {{}, 7000}, .reuse = true});
  EXPECT_EQ(ring->udp().Open({.local = {{}, 7000}, .reuse = true}, &handle).error, ENOBUFS);
  for (int i = 0; i < 99; ++i) OpenSocket({.local = {kOwn, 7001}, .reuse = true});
  const Handle last = OpenSocket({.local = {kOwn, 7001}, .reuse = true});
  ASSERT_TRUE(Inject({.destination = {kOwn, 7001}}));
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].socket, last);
  Release(got);
}

TEST_F(UdpSocketTest, WhatTheKernelRefusesComesAsOpDone) {
  Open();
  kernel->TakePort(7000);
  Handle handle = 0;
  ASSERT_TRUE(ring->udp().Open({.local = {kOwn, 7000}}, &handle).ok());
  const auto done = Settle();
  ASSERT_EQ(Kinds(done), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(done[0].status, EADDRINUSE);
  EXPECT_STREQ(done[0].text, "lease port: it is in use");
}

TEST_F(UdpSocketTest, PortZeroIsLeasedAheadWithoutWaiting) {
  Open();
  std::vector<uint16_t> ports;
  for (int i = 0; i < 6; ++i) {
    const Handle socket = OpenSocket({.local = {{}, 0}});
    ports.push_back(ring->udp().Find(socket)->local().port);
    EXPECT_NE(ports.back(), 0);
  }
  std::sort(ports.begin(), ports.end());
  EXPECT_EQ(std::unique(ports.begin(), ports.end()), ports.end());
}

TEST_F(UdpSocketTest, TerminatedIsLastAndExactlyOnce) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const size_t ports = kernel->ports();
  Send(socket, "x", {.flags = kSendWantDone | kSendWantWire, .cookie = 9});
  ASSERT_TRUE(ring->udp().Close(socket, false).ok());
  // The send is not done: nothing may come yet.
  EXPECT_TRUE(Settle().empty());
  queue().CompleteSends();
  const auto end = PollAll();
  ASSERT_EQ(Kinds(end), (std::vector<Kind>{Kind::kTxDone, Kind::kTerminated}));
  EXPECT_EQ(end[0].cookie, 9u);
  EXPECT_EQ(end[1].socket, socket);
  EXPECT_EQ(end[1].status, 0);
  EXPECT_TRUE(Settle().empty());
  EXPECT_TRUE(nic->rules().empty());
  EXPECT_EQ(kernel->ports(), ports - 1);
}

TEST_F(UdpSocketTest, DetachTellsNothingMore) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  Send(socket, "x", {.flags = kSendWantDone, .cookie = 9});
  ASSERT_TRUE(ring->udp().Close(socket, true).ok());
  queue().CompleteSends();
  EXPECT_TRUE(Settle().empty());
  EXPECT_TRUE(nic->rules().empty());
}

TEST_F(UdpSocketTest, AfterCloseNoOpDoneComes) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Join(socket, {kGroup, 0}, std::nullopt, 0, 1).ok());
  ASSERT_TRUE(ring->udp().Close(socket, false).ok());
  EXPECT_EQ(Kinds(Settle()), std::vector<Kind>{Kind::kTerminated});
  EXPECT_TRUE(nic->rules().empty());
  EXPECT_TRUE(kernel->memberships().empty());
}

TEST_F(UdpSocketTest, StaleHandleIsRefused) {
  Open();
  const Handle old = OpenSocket(7000);
  ring->udp().Close(old, false);
  Settle();
  const Handle young = OpenSocket(7000);
  EXPECT_EQ(PlaceOf(old), PlaceOf(young));
  EXPECT_NE(old, young);
  EXPECT_EQ(ring->udp().Close(old, false).error, EBADF);
  EXPECT_EQ(ring->udp().Join(old, {kGroup, 0}, std::nullopt, 0, 0).error, EBADF);
  EXPECT_EQ(ring->udp().Connect(old, kPeer, 0).error, EBADF);
  EXPECT_EQ(ring->udp().SetUserData(old, 1).error, EBADF);
  EXPECT_EQ(ring->udp().Find(old), nullptr);
  EXPECT_NE(ring->udp().Find(young), nullptr);
}

TEST_F(UdpSocketTest, ManySocketsMayEndAtOnce) {
  options.max_sockets = 2'000;
  options.completions = 64;
  Open();
  std::vector<Handle> sockets(1'000);
  for (size_t i = 0; i < sockets.size(); ++i) {
    const auto port = static_cast<uint16_t>(10'000 + i);
    ASSERT_TRUE(ring->udp().Open({.local = {{}, port}}, &sockets[i]).ok());
  }
  EXPECT_EQ(Settle().size(), 1'000u);
  for (Handle socket : sockets) ring->udp().Close(socket, false);
  const auto end = Settle();
  EXPECT_EQ(end.size(), 1'000u);
  for (const Completion& completion : end) EXPECT_EQ(completion.kind, Kind::kTerminated);
}

TEST_F(UdpSocketTest, AFailedJoinLeavesNothingBehind) {
  Open();
  const Handle socket = OpenSocket(7000);
  kernel->FailJoins(absl::ResourceExhaustedError("join: no memory for options"));
  ASSERT_TRUE(ring->udp().Join(socket, {kGroup, 0}, std::nullopt, 0, 7).ok());
  const auto done = Settle();
  ASSERT_EQ(Kinds(done), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(done[0].cookie, 7u);
  EXPECT_EQ(done[0].status, ENOSPC);
  EXPECT_EQ(nic->rules().size(), 1u);
  EXPECT_TRUE(ring->udp().Find(socket)->memberships().empty());
}

TEST_F(UdpSocketTest, LeaveUndoesWhatWasJoinedWithTheSameArguments) {
  Open();
  const Handle socket = OpenSocket(7000);
  const wire::Ipv4Address a(10, 0, 0, 2);
  const wire::Ipv4Address b(10, 0, 0, 3);
  ring->udp().Join(socket, {kGroup, 0}, a, 0, 1);
  ring->udp().Join(socket, {kGroup, 0}, b, 0, 2);
  EXPECT_EQ(ring->udp().Join(socket, {kGroup, 0}, std::nullopt, 0, 3).error, EINVAL);
  Settle();
  EXPECT_EQ(kernel->memberships().at(kGroup).sources.size(), 2u);
  EXPECT_EQ(ring->udp().Leave(socket, {kGroup, 0}, std::nullopt, 4).error, EADDRNOTAVAIL);
  EXPECT_TRUE(ring->udp().Leave(socket, {kGroup, 0}, a, 5).ok());
  Settle();
  EXPECT_EQ(kernel->memberships().at(kGroup).sources, std::vector<wire::Ipv4Address>{b});
  EXPECT_TRUE(ring->udp().Leave(socket, {kGroup, 0}, b, 6).ok());
  const auto done = Settle();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].cookie, 6u);
  EXPECT_TRUE(kernel->memberships().empty());
  EXPECT_EQ(nic->rules().size(), 1u);
}

TEST_F(UdpSocketTest, MaxGroupsBoundsTheMembershipsOfAllSockets) {
  options.max_groups = 1;
  Open();
  const Handle socket = OpenSocket(7000);
  Join(socket, kGroup);
  EXPECT_EQ(ring->udp().Join(socket, {{239, 9, 9, 9}, 0}, std::nullopt, 0, 1).error, ENOBUFS);
}

TEST_F(UdpSocketTest, AFullTableOfRulesFallsBackToASharedRule) {
  nic_options.max_rules = 2;
  Open();
  const Handle a = OpenSocket({.local = {kOwn, 7000}});
  const Handle b = OpenSocket({.local = {kOwn, 7001}});
  Handle c = 0;
  ASSERT_TRUE(ring->udp().Open({.local = {kOwn, 7002}}, &c).ok());
  const auto done = Settle();
  ASSERT_EQ(Kinds(done), (std::vector<Kind>{Kind::kRing, Kind::kOpDone}));
  EXPECT_EQ(done[0].event, RingEvent::kRuleFallback);
  EXPECT_EQ(done[1].status, 0);
  // All three are still reached.
  for (const uint16_t port : {7000, 7001, 7002}) {
    EXPECT_EQ(nic->Deliver(MakeFrame({.destination = {kOwn, port}})), 1) << port;
  }
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].socket, a);
  EXPECT_EQ(got[1].socket, b);
  EXPECT_EQ(got[2].socket, c);
  Release(got);
}

TEST_F(UdpSocketTest, ShareWithKernelIsDroppedWhereTheDeviceRefusesIt) {
  nic_options.share_with_kernel = false;
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Join(socket, {kGroup, 0}, std::nullopt, kShareWithKernel, 1).ok());
  const auto done = Settle();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, 0);
  ASSERT_NE(done[0].text, nullptr);
  EXPECT_NE(std::string(done[0].text).find("the kernel's listeners get none"), std::string::npos);
  EXPECT_FALSE(nic->rules().back().share_with_kernel);
}

TEST_F(UdpSocketTest, IcmpErrorsComeAsErrorWithTheOffendingDestination) {
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}});
  kernel->Push(7000, {.destination = kStranger, .error = ECONNREFUSED}, "");
  std::vector<Completion> got;
  while (got.empty()) got = Settle();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kError});
  EXPECT_EQ(got[0].socket, socket);
  EXPECT_EQ(got[0].status, ECONNREFUSED);
  EXPECT_EQ(got[0].destination_ip[15], 77);
  EXPECT_EQ(got[0].destination_port, kStranger.port);
}

TEST_F(UdpSocketTest, RingCloseAbortsItsSocketsAndGivesEverythingBack) {
  Open();
  const Handle socket = OpenSocket(7000);
  Join(socket, kGroup);
  ring->udp().Join(socket, {{239, 4, 4, 4}, 0}, std::nullopt, 0, 1);
  ring.reset();
  engine->control().RunAndWait([] {});
  EXPECT_TRUE(nic->rules().empty());
  EXPECT_TRUE(kernel->memberships().empty());
  EXPECT_EQ(kernel->ports(), 0u);
}

}  // namespace
}  // namespace xtreme::engine::testing
