// SPDX-License-Identifier: Apache-2.0
#include "stack/udp/demux.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

namespace xtreme::udp {
namespace {

using wire::Ipv4Address;

constexpr Ipv4Address kOurs(192, 0, 2, 1);
constexpr Ipv4Address kOursToo(198, 51, 100, 1);
constexpr Ipv4Address kPeer(192, 0, 2, 9);
constexpr Ipv4Address kStranger(192, 0, 2, 10);
constexpr Ipv4Address kGroup(233, 54, 12, 111);
constexpr Ipv4Address kOtherGroup(233, 54, 12, 112);
constexpr Ipv4Address kSubnetBroadcast(192, 0, 2, 255);
constexpr uint16_t kPort = 26477;
constexpr uint16_t kPeerPort = 4242;

wire::UdpFlow To(Ipv4Address destination, Ipv4Address source = kPeer, uint16_t vlan_id = 0) {
  return {.destination = destination,
          .source = source,
          .destination_port = kPort,
          .source_port = kPeerPort,
          .vlan_id = vlan_id};
}

Endpoint::Options BoundTo(Ipv4Address address) {
  return {.local = {address, kPort},
          .vlan_id = address.IsAny() ? kAnyVlan : static_cast<uint16_t>(0)};
}

Endpoint::Options ConnectedTo(Ipv4Address peer, Ipv4Address local = kOurs) {
  return {.local = {local, kPort}, .remote = {peer, kPeerPort}};
}

SourceFilter Only(Ipv4Address source) {
  return SourceFilter(SourceFilter::Mode::kInclude, std::array{source});
}
SourceFilter AllBut(Ipv4Address source) {
  return SourceFilter(SourceFilter::Mode::kExclude, std::array{source});
}

class DemuxTest : public ::testing::Test {
 protected:
  DemuxTest() {
    const std::array<Demux::LocalAddress, 2> ours = {{{{kOurs, 24}}, {{kOursToo, 24}}}};
    demux_.SetLocalAddresses(ours);
  }
  ~DemuxTest() override {
    for (const auto& endpoint : endpoints_) {
      if (endpoint->attached()) demux_.Detach(*endpoint);
    }
  }

  Endpoint& Attached(const Endpoint::Options& options) {
    Endpoint& endpoint = *endpoints_.emplace_back(std::make_unique<Endpoint>(options));
    demux_.Attach(endpoint);
    return endpoint;
  }
  Endpoint& Member(Ipv4Address group, SourceFilter filter = {}, uint16_t vlan_id = 0) {
    Endpoint& endpoint = Attached(BoundTo(Ipv4Address::Any()));
    EXPECT_EQ(demux_.Join(endpoint, group, vlan_id, std::move(filter)), JoinResult::kOk);
    return endpoint;
  }

  // Everybody who gets the datagram. Any hint gives the same.
  std::set<const Endpoint*> Receivers(const wire::UdpFlow& flow) {
    const std::set<const Endpoint*> receivers = ReceiversWith(flow, nullptr);
    for (const auto& endpoint : endpoints_) {
      EXPECT_EQ(ReceiversWith(flow, &endpoint->binding()), receivers);
      for (const auto& membership : endpoint->memberships()) {
        EXPECT_EQ(ReceiversWith(flow, membership.get()), receivers);
      }
    }
    return receivers;
  }
  std::set<const Endpoint*> ReceiversWith(const wire::UdpFlow& flow, const Binding* hint) {
    std::set<const Endpoint*> receivers;
    for (const Binding* b = demux_.First(flow, hint); b != nullptr; b = demux_.Next(b, flow)) {
      EXPECT_TRUE(receivers.insert(b->endpoint).second) << "served twice";
    }
    return receivers;
  }
  uint64_t CountOf(Misaddressed reason, const wire::UdpFlow& flow) {
    const uint64_t before = demux_.misaddressed()[reason];
    const uint64_t total = demux_.misaddressed().Total();
    EXPECT_EQ(demux_.First(flow, nullptr), nullptr);
    EXPECT_EQ(demux_.misaddressed().Total(), total + 1);
    return demux_.misaddressed()[reason] - before;
  }

  using Set = std::set<const Endpoint*>;
  Demux demux_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

TEST_F(DemuxTest, TheConnectedSocketIsServedBeforeTheBoundBeforeTheWildcard) {
  Endpoint& wildcard = Attached(BoundTo(Ipv4Address::Any()));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&wildcard});
  Endpoint& bound = Attached(BoundTo(kOurs));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&bound});
  Endpoint& connected = Attached(ConnectedTo(kPeer));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&connected});
  EXPECT_EQ(Receivers(To(kOurs, kStranger)), Set{&bound});
  EXPECT_EQ(Receivers(To(kOursToo)), Set{&wildcard});
}

TEST_F(DemuxTest, AHintIsBelievedOnlyWhenItIsRight) {
  Endpoint& bound = Attached(BoundTo(kOurs));
  EXPECT_EQ(demux_.First(To(kOurs), &bound.binding()), &bound.binding());
  EXPECT_EQ(demux_.First(To(kOursToo), &bound.binding()), nullptr);
  wire::UdpFlow other_port = To(kOurs);
  ++other_port.destination_port;
  EXPECT_EQ(demux_.First(other_port, &bound.binding()), nullptr);
  EXPECT_EQ(demux_.First(To(kOurs, kPeer, 7), &bound.binding()), nullptr);
}

TEST_F(DemuxTest, OfEqualSocketsTheLastAttachedIsServedAndTheOtherFollowsIt) {
  Endpoint& first = Attached(BoundTo(kOurs));
  Endpoint& second = Attached(BoundTo(kOurs));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&second});
  demux_.Detach(second);
  EXPECT_EQ(Receivers(To(kOurs)), Set{&first});
  demux_.Attach(second);
  demux_.Detach(first);
  EXPECT_EQ(Receivers(To(kOurs)), Set{&second});
}

TEST_F(DemuxTest, EqualConnectedSocketsFollowEachOtherToo) {
  Endpoint& first = Attached(ConnectedTo(kPeer));
  Endpoint& second = Attached(ConnectedTo(kPeer));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&second});
  demux_.Detach(second);
  EXPECT_EQ(Receivers(To(kOurs)), Set{&first});
  demux_.Detach(first);
  EXPECT_EQ(CountOf(Misaddressed::kNoSocket, To(kOurs)), 1u);
}

TEST_F(DemuxTest, ConnectingAndDisconnectingMovesASocket) {
  Endpoint& socket = Attached(BoundTo(kOurs));
  demux_.Rebind(socket, ConnectedTo(kPeer));
  EXPECT_EQ(Receivers(To(kOurs)), Set{&socket});
  EXPECT_EQ(Receivers(To(kOurs, kStranger)), Set{});
  demux_.Rebind(socket, BoundTo(kOurs));
  EXPECT_EQ(Receivers(To(kOurs, kStranger)), Set{&socket});
}

TEST_F(DemuxTest, EveryMemberOfAGroupIsServed) {
  Endpoint& a = Member(kGroup);
  Endpoint& b = Member(kGroup);
  Endpoint& c = Member(kGroup);
  Member(kOtherGroup);
  Attached(BoundTo(Ipv4Address::Any()));
  EXPECT_EQ(Receivers(To(kGroup)), (Set{&a, &b, &c}));
}

TEST_F(DemuxTest, ASocketBoundToAGroupIsServedTheGroupsItJoined) {
  Endpoint& socket = Attached(BoundTo(kGroup));
  EXPECT_EQ(Receivers(To(kGroup)), Set{});
  EXPECT_EQ(demux_.Join(socket, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&socket});
  EXPECT_EQ(Receivers(To(kOtherGroup)), Set{});
  EXPECT_EQ(demux_.Join(socket, kOtherGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kOtherGroup)), Set{&socket});
  EXPECT_EQ(Receivers(To(kOurs)), Set{});
}

TEST_F(DemuxTest, ASocketBoundToAUnicastAddressIsNotServedAGroup) {
  Endpoint& socket = Attached(BoundTo(kOurs));
  EXPECT_EQ(demux_.Join(socket, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{});
}

TEST_F(DemuxTest, AGroupIsJoinedOnOneVlan) {
  Endpoint& socket = Member(kGroup, {}, 100);
  EXPECT_EQ(Receivers(To(kGroup, kPeer, 100)), Set{&socket});
  EXPECT_EQ(Receivers(To(kGroup)), Set{});
  EXPECT_EQ(demux_.Join(socket, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&socket});
}

TEST_F(DemuxTest, SourceFiltersDecidePerSocketAndAreCounted) {
  Endpoint& all = Member(kGroup);
  Endpoint& only = Member(kGroup, Only(kPeer));
  Endpoint& all_but = Member(kGroup, AllBut(kPeer));
  EXPECT_EQ(ReceiversWith(To(kGroup), nullptr), (Set{&all, &only}));
  EXPECT_EQ(all_but.group_counters().source_filtered, 1u);
  EXPECT_EQ(ReceiversWith(To(kGroup, kStranger), nullptr), (Set{&all, &all_but}));
  EXPECT_EQ(only.group_counters().source_filtered, 1u);
  EXPECT_EQ(Receivers(To(kGroup)), (Set{&all, &only}));
}

TEST_F(DemuxTest, AChangedFilterTakesEffect) {
  Endpoint& socket = Member(kGroup);
  EXPECT_EQ(demux_.SetFilter(socket, kGroup, 0, AllBut(kPeer)), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{});
  EXPECT_EQ(demux_.SetFilter(socket, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&socket});
}

TEST_F(DemuxTest, AConnectedMemberIsServedItsPeerOnly) {
  Endpoint& socket = Member(kGroup);
  Endpoint::Options connected = ConnectedTo(kPeer, Ipv4Address::Any());
  connected.vlan_id = kAnyVlan;
  demux_.Rebind(socket, connected);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&socket});
  EXPECT_EQ(CountOf(Misaddressed::kNoSocket, To(kGroup, kStranger)), 1u);
}

TEST_F(DemuxTest, LeavingEndsServiceAndMayBeFollowedByJoining) {
  Endpoint& a = Member(kGroup);
  Endpoint& b = Member(kGroup);
  EXPECT_EQ(demux_.Leave(b, kGroup, 0), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&a});
  EXPECT_EQ(demux_.Leave(a, kGroup, 0), JoinResult::kOk);
  EXPECT_EQ(CountOf(Misaddressed::kNotMember, To(kGroup)), 1u);
  EXPECT_EQ(demux_.Join(a, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&a});
}

TEST_F(DemuxTest, WrongOperationsOnMembershipsSaySo) {
  Endpoint& socket = Member(kGroup);
  EXPECT_EQ(demux_.Join(socket, kGroup, 0, {}), JoinResult::kAlreadyJoined);
  EXPECT_EQ(demux_.Join(socket, kOurs, 0, {}), JoinResult::kNotMulticast);
  EXPECT_EQ(demux_.Leave(socket, kOtherGroup, 0), JoinResult::kNotJoined);
  EXPECT_EQ(demux_.Leave(socket, kGroup, 5), JoinResult::kNotJoined);
  EXPECT_EQ(demux_.SetFilter(socket, kOtherGroup, 0, {}), JoinResult::kNotJoined);
}

TEST_F(DemuxTest, GroupsJoinedBeforeAttachingCount) {
  Endpoint& socket =
      *endpoints_.emplace_back(std::make_unique<Endpoint>(BoundTo(Ipv4Address::Any())));
  EXPECT_EQ(demux_.Join(socket, kGroup, 0, {}), JoinResult::kOk);
  EXPECT_EQ(Receivers(To(kGroup)), Set{});
  demux_.Attach(socket);
  EXPECT_EQ(Receivers(To(kGroup)), Set{&socket});
}

TEST_F(DemuxTest, ABroadcastIsForEveryWildcardAndEverybodyBoundToIt) {
  Endpoint& a = Attached(BoundTo(Ipv4Address::Any()));
  Endpoint& b = Attached(BoundTo(Ipv4Address::Any()));
  Endpoint& bound = Attached(BoundTo(kSubnetBroadcast));
  Endpoint& bound_too = Attached(BoundTo(kSubnetBroadcast));
  Attached(BoundTo(kOurs));
  EXPECT_EQ(Receivers(To(kSubnetBroadcast)), (Set{&a, &b, &bound, &bound_too}));
  EXPECT_EQ(Receivers(To(Ipv4Address::LimitedBroadcast())), (Set{&a, &b}));
}

TEST_F(DemuxTest, AWildcardOnOneVlanIsServedThereOnly) {
  Endpoint::Options options = BoundTo(Ipv4Address::Any());
  options.vlan_id = 7;
  Endpoint& socket = Attached(options);
  EXPECT_EQ(Receivers(To(kOurs, kPeer, 7)), Set{&socket});
  EXPECT_EQ(Receivers(To(kOurs)), Set{});
}

TEST_F(DemuxTest, EveryMisaddressedDatagramIsCountedByItsReason) {
  Attached(BoundTo(Ipv4Address::Any()));
  Member(kGroup, Only(kPeer));
  wire::UdpFlow other_port = To(kOurs);
  other_port.destination_port = 1;
  EXPECT_EQ(CountOf(Misaddressed::kNoSocket, other_port), 1u);
  EXPECT_EQ(CountOf(Misaddressed::kNotLocal, To(kStranger)), 1u);
  EXPECT_EQ(CountOf(Misaddressed::kNotMember, To(kOtherGroup)), 1u);
  EXPECT_EQ(CountOf(Misaddressed::kSourceFiltered, To(kGroup, kStranger)), 1u);
  for (Ipv4Address source : {kGroup, Ipv4Address(240, 0, 0, 1), Ipv4Address::LimitedBroadcast(),
                             Ipv4Address(127, 0, 0, 1)}) {
    EXPECT_EQ(CountOf(Misaddressed::kBadSource, To(kOurs, source)), 1u);
  }
}

TEST_F(DemuxTest, AHintDoesNotExcuseABadSource) {
  Endpoint& socket = Attached(BoundTo(kOurs));
  EXPECT_EQ(demux_.First(To(kOurs, kGroup), &socket.binding()), nullptr);
  EXPECT_EQ(demux_.misaddressed()[Misaddressed::kBadSource], 1u);
}

TEST_F(DemuxTest, ThousandsOfSocketsFindTheirOwn) {
  std::vector<Endpoint*> sockets;
  for (uint16_t port = 1; port <= 5000; ++port) {
    sockets.push_back(&Attached({.local = {kOurs, port}}));
  }
  for (uint16_t port = 1; port <= 5000; ++port) {
    wire::UdpFlow flow = To(kOurs);
    flow.destination_port = port;
    EXPECT_EQ(ReceiversWith(flow, nullptr), Set{sockets[port - 1u]});
  }
  EXPECT_LE(sizeof(Endpoint) + demux_.memory_bytes() / sockets.size(), 160u);
}

TEST(Endpoint, CountsWhatItReceived) {
  Endpoint endpoint({});
  endpoint.CountReceived(60);
  endpoint.CountReceived(40);
  EXPECT_EQ(endpoint.counters().datagrams, 2u);
  EXPECT_EQ(endpoint.counters().bytes, 100u);
}

}  // namespace
}  // namespace xtreme::udp
