// SPDX-License-Identifier: Apache-2.0
//
// Groups and addresses: who gets what after joins, leaves and changes of the interface.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class MembershipTest : public RingTest {
 protected:
  static constexpr wire::Ipv4Address kOther{239, 9, 9, 9};

  // The errno of the OP_DONE that ends a join.
  int JoinWith(Handle socket, wire::Ipv4Address group, uint32_t flags,
               std::optional<wire::Ipv4Address> source = std::nullopt) {
    const Outcome joined = ring->udp().Join(socket, {group, 0}, source, flags, 1);
    EXPECT_TRUE(joined.ok()) << joined.text;
    const auto done = Settle();
    return done.size() == 1 && done[0].kind == Kind::kOpDone ? done[0].status : -1;
  }
  // Delivers by the NIC's rules; the handles that got it.
  std::vector<Handle> Deliver(const FrameFields& fields) {
    nic->Deliver(MakeFrame(fields));
    std::vector<Handle> handles;
    const auto got = PollAll();
    for (const Completion& completion : got) {
      if (completion.kind == Kind::kPacket) handles.push_back(completion.socket);
    }
    Release(got);
    std::sort(handles.begin(), handles.end());
    return handles;
  }
  std::vector<wire::Ipv4Address> RuleAddresses() {
    std::vector<wire::Ipv4Address> addresses;
    for (const nic::FlowRule& rule : nic->rules()) {
      addresses.push_back(rule.match.destination_ip.value_or(wire::Ipv4Address()));
    }
    std::sort(addresses.begin(), addresses.end());
    return addresses;
  }
  void SetAddresses(std::vector<wire::Ipv4Address> own) {
    auto& addresses = kernel->tables().addresses;
    const host::InterfaceAddress pattern = addresses.at(0);
    addresses.clear();
    for (const wire::Ipv4Address address : own) {
      addresses.push_back(pattern);
      addresses.back().local = addresses.back().peer = address;
    }
    kernel->Publish();
    PollAll();
    Settle();
  }
};

TEST_F(MembershipTest, ASocketBoundToAGroupMayJoinOthers) {
  Open();
  const Handle socket = OpenSocket({.local = {kGroup, 7000}});
  EXPECT_EQ(JoinWith(socket, kGroup, 0), 0);
  EXPECT_EQ(JoinWith(socket, kOther, 0), 0);
  EXPECT_EQ(Deliver({.destination = {kGroup, 7000}}), std::vector<Handle>{socket});
  EXPECT_EQ(Deliver({.destination = {kOther, 7000}}), std::vector<Handle>{socket});
  EXPECT_EQ(Deliver({.destination = {kOwn, 7000}}), std::vector<Handle>{});
}

TEST_F(MembershipTest, SeveralSocketsOnOneGroupEachGetThePacket) {
  Open();
  const Handle bound = OpenSocket({.local = {kGroup, 7000}, .reuse = true});
  const Handle any = OpenSocket({.local = {{}, 7000}, .reuse = true});
  const Handle outside = OpenSocket({.local = {{}, 7000}, .reuse = true});
  EXPECT_EQ(JoinWith(bound, kGroup, 0), 0);
  EXPECT_EQ(JoinWith(any, kGroup, 0), 0);
  EXPECT_EQ(JoinWith(outside, kOther, 0), 0);
  EXPECT_EQ(Deliver({.destination = {kGroup, 7000}}), (std::vector<Handle>{bound, any}));
  EXPECT_EQ(nic->rules().size(), 3u);  // One a group, however many joined; one of the address.
}

TEST_F(MembershipTest, AJoinThatSharesOtherwiseIsRefusedAndChangesNothing) {
  Open();
  const Handle first = OpenSocket({.local = {{}, 7000}, .reuse = true});
  const Handle second = OpenSocket({.local = {{}, 7000}, .reuse = true});
  EXPECT_EQ(JoinWith(first, kGroup, kShareWithKernel), 0);
  EXPECT_EQ(JoinWith(second, kGroup, 0), EADDRINUSE);
  EXPECT_EQ(Deliver({.destination = {kGroup, 7000}}), std::vector<Handle>{first});
  EXPECT_EQ(JoinWith(second, kGroup, kShareWithKernel), 0);
  EXPECT_EQ(Deliver({.destination = {kGroup, 7000}}), (std::vector<Handle>{first, second}));
}

TEST_F(MembershipTest, ARefusedSecondJoinOfASocketLeavesTheFirstFilterStanding) {
  Open();
  const Handle socket = OpenSocket(7000);
  const wire::Ipv4Address wanted = kPeer.address;
  const wire::Ipv4Address more = kStranger.address;
  EXPECT_EQ(JoinWith(socket, kGroup, 0, wanted), 0);
  EXPECT_EQ(JoinWith(socket, kGroup, kShareWithKernel, more), EADDRINUSE);
  EXPECT_EQ(kernel->memberships().at(kGroup).sources, std::vector<wire::Ipv4Address>{wanted});
  EXPECT_EQ(Deliver({.source = {more, 5000}, .destination = {kGroup, 7000}}),
            std::vector<Handle>{});
  EXPECT_EQ(Deliver({.source = {wanted, 5000}, .destination = {kGroup, 7000}}),
            std::vector<Handle>{socket});
}

// One socket has the group without sharing: of another's joins those that would share fail. The
// others, and the leaves, were started before that was heard.
class JoinsUnderWayTest : public MembershipTest {
 protected:
  static constexpr wire::Ipv4Address kS1{10, 0, 0, 11}, kS2{10, 0, 0, 12}, kS3{10, 0, 0, 13};
  using Source = std::optional<wire::Ipv4Address>;
  using Sources = std::vector<wire::Ipv4Address>;

  void SetUp() override {
    Open();
    const Handle other = OpenSocket({.local = {{}, 7000}, .reuse = true});
    EXPECT_EQ(JoinWith(other, kGroup, 0, kOwn), 0);
    socket_ = OpenSocket({.local = {{}, 7000}, .reuse = true});
  }
  void StartJoin(Source source, uint32_t flags = 0) {
    EXPECT_TRUE(ring->udp().Join(socket_, {kGroup, 0}, source, flags, 1).ok());
  }
  void StartLeave(Source source) {
    EXPECT_TRUE(ring->udp().Leave(socket_, {kGroup, 0}, source, 1).ok());
  }
  // What came of all that was started, in order.
  std::vector<int> Ends() {
    std::vector<int> ends;
    for (const Completion& done : Settle()) ends.push_back(done.status);
    return ends;
  }
  // From which of the three it gets the group's datagrams.
  Sources Heard() {
    Sources heard;
    for (const wire::Ipv4Address source : {kS1, kS2, kS3}) {
      const auto got = Deliver({.source = {source, 5000}, .destination = {kGroup, 7000}});
      if (got == std::vector<Handle>{socket_}) heard.push_back(source);
    }
    return heard;
  }
  // Which the kernel was asked for, for it; none: it has no membership there.
  std::optional<Sources> Asked() {
    if (kernel->joined_on().count(kGroup) == 1) return std::nullopt;
    return kernel->memberships().at(kGroup).sources;
  }

  Handle socket_ = 0;
};

TEST_F(JoinsUnderWayTest, OneBehindTheFirstThatFailsStands) {
  StartJoin(kS1, kShareWithKernel);
  StartJoin(kS2);
  EXPECT_EQ(Ends(), (std::vector<int>{EADDRINUSE, 0}));
  EXPECT_EQ(Heard(), Sources{kS2});
  EXPECT_EQ(Asked(), Sources{kS2});
  StartLeave(kS2);
  EXPECT_EQ(Ends(), std::vector<int>{0});
  EXPECT_EQ(Heard(), Sources{});
  EXPECT_EQ(Asked(), std::nullopt);
}

TEST_F(JoinsUnderWayTest, TwoThatFailBothLeaveNothing) {
  StartJoin(kS1);
  EXPECT_EQ(Ends(), std::vector<int>{0});
  StartJoin(kS2, kShareWithKernel);
  StartJoin(kS3, kShareWithKernel);
  EXPECT_EQ(Ends(), (std::vector<int>{EADDRINUSE, EADDRINUSE}));
  EXPECT_EQ(Heard(), Sources{kS1});
  EXPECT_EQ(Asked(), Sources{kS1});
}

TEST_F(JoinsUnderWayTest, ALeaveBehindOneThatFailsStands) {
  StartJoin(kS1);
  EXPECT_EQ(Ends(), std::vector<int>{0});
  StartJoin(kS2, kShareWithKernel);
  StartLeave(kS1);
  EXPECT_EQ(Ends(), (std::vector<int>{EADDRINUSE, 0}));
  EXPECT_EQ(Heard(), Sources{});
  EXPECT_EQ(Asked(), std::nullopt);
  StartJoin(kS3);
  EXPECT_EQ(Ends(), std::vector<int>{0});
  EXPECT_EQ(Heard(), Sources{kS3});
}

TEST_F(JoinsUnderWayTest, TheSameSourceAgainBehindOneThatFailsStands) {
  StartJoin(kS1, kShareWithKernel);
  StartLeave(kS1);
  StartJoin(kS1);
  EXPECT_EQ(Ends(), (std::vector<int>{EADDRINUSE, 0, 0}));
  EXPECT_EQ(Heard(), Sources{kS1});
  EXPECT_EQ(Asked(), Sources{kS1});
}

TEST_F(JoinsUnderWayTest, ASourceThatWasJoinedStaysWhenItsSecondJoinFails) {
  StartJoin(kS1);
  StartJoin(kS1, kShareWithKernel);
  EXPECT_EQ(Ends(), (std::vector<int>{0, EADDRINUSE}));
  EXPECT_EQ(Heard(), Sources{kS1});
  EXPECT_EQ(Asked(), Sources{kS1});
}

TEST_F(JoinsUnderWayTest, UnwantedSourcesOfJoinsThatFailAreNotLeftOut) {
  StartJoin(kS1, kShareWithKernel | kExcludeSource);
  StartJoin(kS2, kExcludeSource);
  EXPECT_EQ(Ends(), (std::vector<int>{EADDRINUSE, 0}));
  EXPECT_EQ(Heard(), (Sources{kS1, kS3}));
  EXPECT_EQ(Asked(), Sources{kS2});
  StartLeave(std::nullopt);
  StartJoin(kS1, kShareWithKernel | kExcludeSource);
  EXPECT_EQ(Ends(), (std::vector<int>{0, EADDRINUSE}));
  EXPECT_EQ(Heard(), Sources{}) << "without a join, not all but nobody";
  EXPECT_EQ(Asked(), std::nullopt);
}

TEST_F(MembershipTest, SocketsBoundToAnyAddressFollowTheInterfacesAddresses) {
  Open();
  const wire::Ipv4Address added(10, 0, 0, 9);
  const Handle socket = OpenSocket(7000);
  OpenSocket({.local = {kOwn, 8000}});
  EXPECT_EQ(RuleAddresses(), (std::vector<wire::Ipv4Address>{kOwn, kOwn}));
  SetAddresses({kOwn, added});
  EXPECT_EQ(RuleAddresses(), (std::vector<wire::Ipv4Address>{kOwn, kOwn, added}));
  EXPECT_EQ(Deliver({.destination = {added, 7000}}), std::vector<Handle>{socket});
  SetAddresses({added});
  EXPECT_EQ(RuleAddresses(), (std::vector<wire::Ipv4Address>{kOwn, added}));
  ring->udp().Close(socket, false);
  Settle();
  EXPECT_EQ(RuleAddresses(), std::vector<wire::Ipv4Address>{kOwn});
}

TEST_F(MembershipTest, TheKernelsGroupDatagramsReachOnlyWhoJoinedThemHere) {
  Open();
  const Handle socket = OpenSocket(7000);
  EXPECT_EQ(JoinWith(socket, kGroup, 0, kPeer.address), 0);
  const auto push = [&](wire::Endpoint source, wire::Ipv4Address group, uint32_t ifindex) {
    kernel->Push(7000, {.source = source, .destination = {group, 7000}, .ifindex = ifindex}, "f");
    kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, "last");
    std::vector<std::string> texts;
    while (texts.empty() || texts.back() != "last") {
      const auto got = Settle();
      for (const Completion& completion : got) texts.push_back(Text(completion));
      Release(got);
    }
    return texts.size() == 2;
  };
  EXPECT_TRUE(push(kPeer, kGroup, MemoryKernel::kIfindex));
  EXPECT_FALSE(push(kPeer, kGroup, MemoryKernel::kIfindex + 1));
  EXPECT_FALSE(push(kPeer, kOther, MemoryKernel::kIfindex));
  EXPECT_FALSE(push(kStranger, kGroup, MemoryKernel::kIfindex));
  EXPECT_EQ(Counter("drop", "slow_path_group"), 3u);
}

}  // namespace
}  // namespace xtreme::engine::testing
