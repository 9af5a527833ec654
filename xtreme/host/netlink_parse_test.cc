// SPDX-License-Identifier: Apache-2.0
// The parsers against messages built by libnl-route, which is not what they are written with.

#include "xtreme/host/netlink_parse.h"

#include <linux/fib_rules.h>
#include <linux/if_ether.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/msg.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/vlan.h>
#include <netlink/route/neighbour.h>
#include <netlink/route/nexthop.h>
#include <netlink/route/route.h>
#include <netlink/route/rule.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::host {
namespace {

using wire::Ipv4Address;
using wire::MacAddress;
using Bytes = std::vector<uint8_t>;

template <typename Object, void (*kPut)(Object*)>
std::unique_ptr<Object, void (*)(Object*)> Own(Object* object) {
  return {object, kPut};
}

std::unique_ptr<nl_addr, void (*)(nl_addr*)> Address(const std::string& text, int family) {
  nl_addr* address = nullptr;
  EXPECT_EQ(nl_addr_parse(text.c_str(), family, &address), 0) << text;
  return Own<nl_addr, nl_addr_put>(address);
}

Bytes Take(nl_msg* message) {
  const nlmsghdr* header = nlmsg_hdr(message);
  const auto* first = reinterpret_cast<const uint8_t*>(header);
  Bytes bytes(first, first + header->nlmsg_len);
  nlmsg_free(message);
  return bytes;
}

// The message in memory of exactly its length, so that a sanitizer sees any read past it.
template <typename Row>
std::optional<Row> Parse(std::optional<Row> (*parse)(const nlmsghdr&), const Bytes& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  std::memcpy(exact.get(), bytes.data(), bytes.size());
  auto* header = reinterpret_cast<nlmsghdr*>(exact.get());
  header->nlmsg_len = static_cast<uint32_t>(bytes.size());
  return parse(*header);
}

Bytes VlanMessage(uint16_t id) {
  auto link = Own<rtnl_link, rtnl_link_put>(rtnl_link_vlan_alloc());
  rtnl_link_set_ifindex(link.get(), 7);
  rtnl_link_set_name(link.get(), "eth0.42");
  rtnl_link_set_link(link.get(), 3);
  rtnl_link_set_mtu(link.get(), 9'000);
  rtnl_link_set_flags(link.get(), IFF_UP | IFF_RUNNING | IFF_MULTICAST);
  rtnl_link_set_addr(link.get(), Address("02:00:00:00:00:07", AF_LLC).get());
  EXPECT_EQ(rtnl_link_vlan_set_id(link.get(), id), 0);
  EXPECT_EQ(rtnl_link_vlan_set_protocol(link.get(), htons(ETH_P_8021Q)), 0);
  nl_msg* message = nullptr;
  EXPECT_EQ(rtnl_link_build_add_request(link.get(), 0, &message), 0);
  return Take(message);
}

Bytes RouteMessage() {
  auto route = Own<rtnl_route, rtnl_route_put>(rtnl_route_alloc());
  rtnl_route_set_family(route.get(), AF_INET);
  rtnl_route_set_table(route.get(), 1'000);
  rtnl_route_set_dst(route.get(), Address("10.1.0.0/16", AF_INET).get());
  rtnl_route_set_pref_src(route.get(), Address("10.9.9.9", AF_INET).get());
  rtnl_route_set_priority(route.get(), 50);
  rtnl_route_set_scope(route.get(), RT_SCOPE_UNIVERSE);
  rtnl_route_set_type(route.get(), RTN_UNICAST);
  rtnl_route_set_metric(route.get(), RTAX_MTU, 1'400);
  for (const auto& [ifindex, gateway] : {std::pair{2, "10.0.0.1"}, std::pair{3, "10.0.1.1"}}) {
    rtnl_nexthop* hop = rtnl_route_nh_alloc();
    rtnl_route_nh_set_ifindex(hop, ifindex);
    rtnl_route_nh_set_gateway(hop, Address(gateway, AF_INET).get());
    rtnl_route_add_nexthop(route.get(), hop);
  }
  nl_msg* message = nullptr;
  EXPECT_EQ(rtnl_route_build_add_request(route.get(), 0, &message), 0);
  return Take(message);
}

Bytes NeighbourMessage() {
  auto neighbour = Own<rtnl_neigh, rtnl_neigh_put>(rtnl_neigh_alloc());
  rtnl_neigh_set_ifindex(neighbour.get(), 4);
  rtnl_neigh_set_dst(neighbour.get(), Address("10.0.0.2", AF_INET).get());
  rtnl_neigh_set_lladdr(neighbour.get(), Address("02:00:00:00:00:02", AF_LLC).get());
  rtnl_neigh_set_state(neighbour.get(), NUD_STALE);
  nl_msg* message = nullptr;
  EXPECT_EQ(rtnl_neigh_build_add_request(neighbour.get(), 0, &message), 0);
  return Take(message);
}

Bytes AddressMessage() {
  auto address = Own<rtnl_addr, rtnl_addr_put>(rtnl_addr_alloc());
  rtnl_addr_set_ifindex(address.get(), 5);
  rtnl_addr_set_family(address.get(), AF_INET);
  rtnl_addr_set_local(address.get(), Address("10.0.0.3/24", AF_INET).get());
  rtnl_addr_set_broadcast(address.get(), Address("10.0.0.255", AF_INET).get());
  rtnl_addr_set_flags(address.get(), IFA_F_SECONDARY);
  nl_msg* message = nullptr;
  EXPECT_EQ(rtnl_addr_build_add_request(address.get(), 0, &message), 0);
  return Take(message);
}

Bytes RuleMessage() {
  auto rule = Own<rtnl_rule, rtnl_rule_put>(rtnl_rule_alloc());
  rtnl_rule_set_family(rule.get(), AF_INET);
  rtnl_rule_set_prio(rule.get(), 100);
  rtnl_rule_set_src(rule.get(), Address("10.1.1.0/24", AF_INET).get());
  rtnl_rule_set_oif(rule.get(), "eth3");
  rtnl_rule_set_table(rule.get(), 1'234);
  rtnl_rule_set_action(rule.get(), FR_ACT_TO_TBL);
  nl_msg* message = nullptr;
  EXPECT_EQ(rtnl_rule_build_add_request(rule.get(), 0, &message), 0);
  return Take(message);
}

TEST(ParseInterfaceTest, ReadsAVlanWithItsParentAndIdentifier) {
  const auto interface = Parse(&ParseInterface, VlanMessage(42));
  ASSERT_TRUE(interface);
  EXPECT_EQ(*interface, (Interface{.ifindex = 7,
                                   .name = "eth0.42",
                                   .kind = "vlan",
                                   .mac = MacAddress({0x02, 0, 0, 0, 0, 0x07}),
                                   .mtu = 9'000,
                                   .up = true,
                                   .running = true,
                                   .multicast = true,
                                   .parent_ifindex = 3,
                                   .vlan = Vlan{.id = 42, .ethertype = 0x8100}}));
}

TEST(ParseInterfaceTest, ReadsTheBondOfAPort) {
  auto link = Own<rtnl_link, rtnl_link_put>(rtnl_link_alloc());
  rtnl_link_set_ifindex(link.get(), 3);
  rtnl_link_set_name(link.get(), "eth0");
  rtnl_link_set_master(link.get(), 9);
  nl_msg* message = nullptr;
  ASSERT_EQ(rtnl_link_build_add_request(link.get(), 0, &message), 0);
  const auto interface = Parse(&ParseInterface, Take(message));
  ASSERT_TRUE(interface);
  EXPECT_EQ(interface->master_ifindex, 9u);
}

TEST(ParseInterfaceTest, RefusesABridgesMessageAboutItsPort) {
  Bytes bytes = VlanMessage(1);
  bytes[NLMSG_HDRLEN] = AF_BRIDGE;
  EXPECT_FALSE(Parse(&ParseInterface, bytes));
}

TEST(ParseAddressTest, ReadsASecondaryAddress) {
  const auto address = Parse(&ParseAddress, AddressMessage());
  ASSERT_TRUE(address);
  EXPECT_EQ(*address, (InterfaceAddress{.ifindex = 5,
                                        .local = Ipv4Address(10, 0, 0, 3),
                                        .peer = Ipv4Address(10, 0, 0, 3),
                                        .broadcast = Ipv4Address(10, 0, 0, 255),
                                        .prefix_length = 24,
                                        .secondary = true}));
}

TEST(ParseRouteTest, ReadsEveryNextHopOfAMultipathRoute) {
  const auto route = Parse(&ParseRoute, RouteMessage());
  ASSERT_TRUE(route);
  EXPECT_EQ(*route, (Route{.table = 1'000,
                           .destination = {Ipv4Address(10, 1, 0, 0), 16},
                           .type = RouteType::kUnicast,
                           .metric = 50,
                           .preferred_source = Ipv4Address(10, 9, 9, 9),
                           .mtu = 1'400,
                           .next_hops = {{.ifindex = 2, .gateway = Ipv4Address(10, 0, 0, 1)},
                                         {.ifindex = 3, .gateway = Ipv4Address(10, 0, 1, 1)}}}));
}

TEST(ParseRuleTest, ReadsSelectorsAndTable) {
  const auto rule = Parse(&ParseRule, RuleMessage());
  ASSERT_TRUE(rule);
  EXPECT_EQ(*rule, (RoutingRule{.priority = 100,
                                .source = {Ipv4Address(10, 1, 1, 0), 24},
                                .output_interface = "eth3",
                                .action = FR_ACT_TO_TBL,
                                .table = 1'234}));
}

// FRA_DSCP, which newer kernels have.
TEST(ParseRuleTest, ARuleThatSelectsByWhatIsNotKnownHereNeverMatches) {
  constexpr uint16_t kDscp = 25;
  Bytes message = RuleMessage();
  nlattr attribute{.nla_len = NLA_HDRLEN + 1, .nla_type = kDscp};
  Bytes selector(NLA_ALIGN(attribute.nla_len));
  std::memcpy(selector.data(), &attribute, sizeof(attribute));
  selector[NLA_HDRLEN] = 10;
  message.insert(message.end(), selector.begin(), selector.end());
  const auto rule = Parse(&ParseRule, message);
  ASSERT_TRUE(rule);
  EXPECT_TRUE(rule->unsupported);
}

TEST(ParseNeighbourTest, ReadsStateAndMac) {
  const auto neighbour = Parse(&ParseNeighbour, NeighbourMessage());
  ASSERT_TRUE(neighbour);
  EXPECT_EQ(*neighbour, (Neighbour{.ifindex = 4,
                                   .address = Ipv4Address(10, 0, 0, 2),
                                   .mac = MacAddress({0x02, 0, 0, 0, 0, 0x02}),
                                   .state = NUD_STALE}));
  EXPECT_TRUE(neighbour->usable());
}

TEST(NeighbourTest, IsUsableExactlyInTheStatesTheKernelSendsIn) {
  for (const uint16_t state :
       {NUD_PERMANENT, NUD_NOARP, NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE}) {
    EXPECT_TRUE(Neighbour{.state = state}.usable()) << state;
  }
  for (const uint16_t state : {NUD_NONE, NUD_INCOMPLETE, NUD_FAILED}) {
    EXPECT_FALSE(Neighbour{.state = state}.usable()) << state;
  }
}

// Cut inside the fixed header there is no row; cut inside the attributes there may be one, of what
// was whole.
template <typename Row>
void ExpectTruncationsAreHarmless(std::optional<Row> (*parse)(const nlmsghdr&), const Bytes& whole,
                                  size_t header_bytes) {
  for (size_t length = NLMSG_HDRLEN; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const bool readable = Parse(parse, cut).has_value();
    EXPECT_FALSE(readable && length < NLMSG_HDRLEN + header_bytes) << length;
  }
}

TEST(NetlinkParseTest, TruncatedMessagesAreRefusedOrReadWithinTheirLength) {
  ExpectTruncationsAreHarmless(&ParseInterface, VlanMessage(42), sizeof(ifinfomsg));
  ExpectTruncationsAreHarmless(&ParseAddress, AddressMessage(), sizeof(ifaddrmsg));
  ExpectTruncationsAreHarmless(&ParseRoute, RouteMessage(), sizeof(rtmsg));
  ExpectTruncationsAreHarmless(&ParseRule, RuleMessage(), sizeof(fib_rule_hdr));
  ExpectTruncationsAreHarmless(&ParseNeighbour, NeighbourMessage(), sizeof(ndmsg));
}

TEST(NetlinkParseTest, AnotherFamilyIsRefused) {
  for (const auto& [name, bytes] :
       {std::pair{"address", AddressMessage()}, std::pair{"route", RouteMessage()},
        std::pair{"rule", RuleMessage()}, std::pair{"neighbour", NeighbourMessage()}}) {
    Bytes ipv6 = bytes;
    ipv6[NLMSG_HDRLEN] = AF_INET6;
    EXPECT_FALSE(Parse(&ParseAddress, ipv6)) << name;
    EXPECT_FALSE(Parse(&ParseRoute, ipv6)) << name;
    EXPECT_FALSE(Parse(&ParseRule, ipv6)) << name;
    EXPECT_FALSE(Parse(&ParseNeighbour, ipv6)) << name;
  }
}

}  // namespace
}  // namespace xtreme::host
