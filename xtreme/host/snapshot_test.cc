// SPDX-License-Identifier: Apache-2.0
// What a snapshot answers without a kernel; that its routes are the kernel's is
// netlink_monitor_test's.

#include "xtreme/host/snapshot.h"

#include <linux/rtnetlink.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::host {
namespace {

using wire::Ipv4Address;

constexpr Ipv4Address kOwn(10, 0, 0, 1);
constexpr Ipv4Address kPeer(10, 0, 0, 2);

// lo, eth0 with 10.0.0.1/24 and a route for it, bond0 over eth1, and VLAN 42 on eth0.
KernelTables Host() {
  KernelTables tables;
  tables.interfaces = {
      {.ifindex = 5,
       .name = "eth0.42",
       .kind = "vlan",
       .mtu = 1500,
       .up = true,
       .parent_ifindex = 2,
       .vlan = Vlan{.id = 42}},
      {.ifindex = 1, .name = "lo", .mtu = 65'536, .up = true, .loopback = true},
      {.ifindex = 2, .name = "eth0", .mtu = 9'000, .up = true},
      {.ifindex = 3, .name = "eth1", .mtu = 1'500, .master_ifindex = 4},
      {.ifindex = 4, .name = "bond0", .kind = "bond", .mtu = 1'500},
  };
  tables.addresses = {
      {.ifindex = 2, .local = kOwn, .peer = kOwn, .prefix_length = 24, .scope = RT_SCOPE_UNIVERSE}};
  Route local{.table = RT_TABLE_LOCAL,
              .destination = {kOwn, 32},
              .type = RouteType::kLocal,
              .next_hops = {{.ifindex = 2}}};
  Route connected{.destination = {Ipv4Address(10, 0, 0, 0), 24},
                  .type = RouteType::kUnicast,
                  .scope = RT_SCOPE_LINK,
                  .mtu = 1'400,
                  .next_hops = {{.ifindex = 2}}};
  Route by_ipv6{.destination = {Ipv4Address(172, 16, 0, 0), 12},
                .type = RouteType::kUnicast,
                .next_hops = {{.ifindex = 2, .foreign_gateway = true}}};
  Route gone{.destination = {Ipv4Address(192, 0, 2, 0), 24},
             .type = RouteType::kUnicast,
             .next_hops = {{.ifindex = 77}}};
  tables.fib = std::make_shared<Fib>(std::vector<Route>{local, connected, by_ipv6, gone},
                                     std::vector<RoutingRule>{});
  tables.neighbours = {{.ifindex = 2, .address = kPeer, .state = NUD_REACHABLE},
                       {.ifindex = 1, .address = kPeer, .state = NUD_FAILED}};
  return tables;
}

TEST(SnapshotTest, FindsInterfacesByIndexNameAndAddress) {
  const Snapshot snapshot(1, Host());
  ASSERT_NE(snapshot.FindInterface(2u), nullptr);
  EXPECT_EQ(snapshot.FindInterface(2u)->name, "eth0");
  EXPECT_EQ(snapshot.FindInterface(6u), nullptr);
  ASSERT_NE(snapshot.FindInterface("bond0"), nullptr);
  EXPECT_EQ(snapshot.FindInterface("bond0")->ifindex, 4u);
  EXPECT_EQ(snapshot.FindInterface("eth"), nullptr);
  EXPECT_EQ(snapshot.FindInterfaceOf(kOwn), snapshot.FindInterface(2u));
  EXPECT_EQ(snapshot.FindInterfaceOf(kPeer), nullptr);
}

TEST(SnapshotTest, FindsTheVlanAboveAnInterface) {
  const Snapshot snapshot(1, Host());
  EXPECT_EQ(snapshot.FindVlan(2, 42), snapshot.FindInterface("eth0.42"));
  EXPECT_EQ(snapshot.FindVlan(2, 43), nullptr);
  EXPECT_EQ(snapshot.FindVlan(3, 42), nullptr);
}

TEST(SnapshotTest, FindsTheBondOfAPort) {
  const Snapshot snapshot(1, Host());
  EXPECT_EQ(snapshot.FindBondOf(3), snapshot.FindInterface("bond0"));
  EXPECT_EQ(snapshot.FindBondOf(2), nullptr);
}

TEST(SnapshotTest, NeighboursBelongToAnInterface) {
  const Snapshot snapshot(1, Host());
  ASSERT_NE(snapshot.FindNeighbour(2, kPeer), nullptr);
  EXPECT_TRUE(snapshot.FindNeighbour(2, kPeer)->usable());
  EXPECT_FALSE(snapshot.FindNeighbour(1, kPeer)->usable());
  EXPECT_EQ(snapshot.FindNeighbour(3, kPeer), nullptr);
}

TEST(SnapshotTest, TheRoutesMtuLimitsTheInterfaces) {
  const RouteResult result = Snapshot(1, Host()).RouteTo(kPeer);
  EXPECT_EQ(result, (RouteResult{.kind = RouteKind::kUnicast,
                                 .ifindex = 2,
                                 .next_hop = kPeer,
                                 .source = kOwn,
                                 .mtu = 1'400}));
}

TEST(SnapshotTest, TheMtuIsNoLargerThanADatagram) {
  EXPECT_EQ(Snapshot(1, Host()).RouteTo(kOwn).mtu, 65'535u);
}

TEST(SnapshotTest, AGatewayOfAnotherFamilyIsNamedAsTheReason) {
  EXPECT_EQ(Snapshot(1, Host()).RouteTo(Ipv4Address(172, 16, 0, 1)).reason,
            UnreachableReason::kForeignGateway);
}

TEST(SnapshotTest, ARouteOfAnInterfaceThatIsGoneIsUnreachable) {
  EXPECT_EQ(Snapshot(1, Host()).RouteTo(Ipv4Address(192, 0, 2, 1)).reason,
            UnreachableReason::kUnknownInterface);
}

TEST(SnapshotTest, EveryReasonHasItsOwnWords) {
  std::set<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(UnreachableReason::kForeignGateway); ++i) {
    words.insert(Describe(static_cast<UnreachableReason>(i)));
  }
  EXPECT_EQ(words.size(), static_cast<size_t>(UnreachableReason::kForeignGateway) + 1);
  EXPECT_EQ(words.count("unknown"), 0u);
}

}  // namespace
}  // namespace xtreme::host
