// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/steering.h"

#include <arpa/inet.h>
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/receive_target.h"
#include "tools/connectx/device/test_frame.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kIpv4 = 0x0800;
constexpr MacAddress kOwnMac = {0x02, 0, 0, 0, 0, 0x01};
constexpr MacAddress kGroupMac = {0x01, 0, 0x5e, 1, 2, 3};
constexpr MacAddress kWholeMac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr uint32_t kOwnIp = 0x0a000001;
constexpr uint32_t kPeerIp = 0x0a000002;
constexpr uint32_t kGroupIp = 0xef010203;  // 239.1.2.3
// The addresses of MakeIpv6Frame: fd00::10.0.0.1 and .2.
constexpr Ipv6Address kOwnIpv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
constexpr Ipv6Address kPeerIpv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2};
constexpr Ipv6Address kWholeIpv6 = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// Rules by what they name, to read in a table.
struct Match {
  FlowRequest request;

  Match& Mac(const MacAddress& mac, const MacAddress& mask = kWholeMac) {
    request.value.destination_mac = mac;
    request.mask.destination_mac = mask;
    return *this;
  }
  Match& From(const MacAddress& mac) {
    request.value.source_mac = mac;
    request.mask.source_mac = kWholeMac;
    return *this;
  }
  Match& Type(uint16_t ether_type) {
    request.value.ether_type = ether_type;
    request.mask.ether_type = 0xffff;
    return *this;
  }
  Match& Vlan(uint16_t id) {
    request.value.vlan_tci = id;
    request.mask.vlan_tci = 0xfff;
    return *this;
  }
  Match& To(uint32_t ip, uint32_t mask = 0xffffffff) {
    request.value.destination_ip = ip;
    request.mask.destination_ip = mask;
    return *this;
  }
  Match& ToIpv6(const Ipv6Address& ip, const Ipv6Address& mask) {
    request.value.destination_ipv6 = ip;
    request.mask.destination_ipv6 = mask;
    return *this;
  }
  Match& FromIpv6(const Ipv6Address& ip, const Ipv6Address& mask) {
    request.value.source_ipv6 = ip;
    request.mask.source_ipv6 = mask;
    return *this;
  }
  Match& FromIp(uint32_t ip) {
    request.value.source_ip = ip;
    request.mask.source_ip = 0xffffffff;
    return *this;
  }
  Match& Protocol(uint8_t protocol) {
    request.value.ip_protocol = protocol;
    request.mask.ip_protocol = 0xff;
    return *this;
  }
  Match& Port(uint16_t port) {
    request.value.destination_port = port;
    request.mask.destination_port = 0xffff;
    return *this;
  }
  Match& FromPort(uint16_t port) {
    request.value.source_port = port;
    request.mask.source_port = 0xffff;
    return *this;
  }
  Match& Udp(uint32_t ip, uint16_t port) { return To(ip).Protocol(17).Port(port); }
  Match& Priority(uint16_t priority) {
    request.priority = priority;
    return *this;
  }
  Match& DontTrap() {
    request.dont_trap = true;
    return *this;
  }
  Match& Tag(uint32_t tag) {
    request.tag = tag;
    return *this;
  }
  Match& OfType(ibv_flow_attr_type type) {
    request.type = type;
    return *this;
  }
};

class SteeringTest : public testing::Test {
 protected:
  // Queue `name` asks for `match`; the result is Add's.
  int Add(char name, const Match& match) {
    return steering.Add(match.request, &Target(name), &last_rule);
  }

  // Who gets the frame, each name once for each copy, in the order of delivery; '!' when trapped.
  std::string Receivers(const Bytes& frame) {
    std::string names;
    tags.clear();
    const bool trapped = steering.Walk(KeyOf(ParseFrame(frame)), [&](const auto& entry) {
      for (const auto& holder : entry.holders) {
        names += holder.target == nullptr ? '-' : static_cast<char>(holder.target->qpn());
      }
      tags.push_back(entry.tag);
    });
    return names + (trapped ? "!" : "");
  }

  ReceiveTarget& Target(char name) { return name == 'a' ? a : name == 'b' ? b : c; }

  ReceiveTarget a{'a', 1, nullptr};
  ReceiveTarget b{'b', 2, nullptr};
  ReceiveTarget c{'c', 3, nullptr};
  Steering steering{64};
  uint32_t last_rule = 0;
  std::vector<uint32_t> tags;
  const Bytes udp = MakeFrame({});
  const Bytes group = MakeFrame({.destination_mac = kGroupMac, .destination_ip = kGroupIp});
};

struct Row {
  const char* name;
  Match match;
  Bytes frame;
  bool matches;
};

TEST_F(SteeringTest, EachFieldIsMatchedAndOnlyWhereItIs) {
  const FrameSpec tagged{.vlan_tags = {0x81000000 | 0xe000 | 7}};
  const Row rows[] = {
      {"destination MAC", Match().Mac(kOwnMac), udp, true},
      {"another destination MAC", Match().Mac({2, 0, 0, 0, 0, 3}), udp, false},
      {"masked destination MAC", Match().Mac({2}, {0xff}), udp, true},
      {"source MAC", Match().From({2, 0, 0, 0, 0, 2}), udp, true},
      {"another source MAC", Match().From(kOwnMac), udp, false},
      {"EtherType", Match().Type(kIpv4), udp, true},
      {"another EtherType", Match().Type(0x0806), udp, false},
      {"EtherType behind a tag", Match().Type(kIpv4), MakeFrame(tagged), true},
      {"VLAN whatever its priority", Match().Vlan(7), MakeFrame(tagged), true},
      {"another VLAN", Match().Vlan(8), MakeFrame(tagged), false},
      {"VLAN of a service tag", Match().Vlan(7), MakeFrame({.vlan_tags = {0x88a80007}}), false},
      {"VLAN of an untagged frame", Match().Vlan(7), udp, false},
      {"VLAN 0 is no untagged frame", Match().Vlan(0), udp, false},
      {"destination address", Match().To(kOwnIp), udp, true},
      {"another destination address", Match().To(kOwnIp + 1), udp, false},
      {"destination network", Match().To(0x0a0000ff, 0xffffff00), udp, true},
      {"destination address behind a tag", Match().To(kOwnIp), MakeFrame(tagged), true},
      {"source address", Match().FromIp(kPeerIp), udp, true},
      {"another source address", Match().FromIp(kOwnIp), udp, false},
      {"protocol", Match().Protocol(17), udp, true},
      {"another protocol", Match().Protocol(6), udp, false},
      {"ports", Match().Udp(kOwnIp, 5000).FromPort(4000), udp, true},
      {"ports behind IP options", Match().Udp(kOwnIp, 5000), MakeFrame({.option_bytes = 40}), true},
      {"another port", Match().Udp(kOwnIp, 5001), udp, false},
      {"another source port", Match().Udp(kOwnIp, 5000).FromPort(1), udp, false},
      {"TCP ports for UDP", Match().Protocol(6).Port(5000), udp, false},
      {"TCP ports", Match().Protocol(6).Port(5000), MakeFrame({.protocol = 6}), true},
      {"first fragment with ports", Match().Udp(kOwnIp, 5000), MakeFrame({.fragment = 0x2000}),
       false},
      {"later fragment with ports", Match().Udp(kOwnIp, 5000), MakeFrame({.fragment = 0x0010}),
       false},
      {"port 0 for a fragment", Match().Udp(kOwnIp, 0), MakeFrame({.fragment = 0x2000}), false},
      {"fragment without ports", Match().To(kOwnIp).Protocol(17), MakeFrame({.fragment = 0x2000}),
       true},
      {"address 0 for a frame without IP", Match().To(0), Bytes(60, 0), false},
      {"nothing asked is everything", Match(), Bytes(60, 0), true},
      {"IPv6 destination", Match().ToIpv6(kOwnIpv6, kWholeIpv6), MakeIpv6Frame({}), true},
      {"IPv6 destination behind a tag", Match().ToIpv6(kOwnIpv6, kWholeIpv6), MakeIpv6Frame(tagged),
       true},
      {"another IPv6 destination", Match().ToIpv6(kPeerIpv6, kWholeIpv6), MakeIpv6Frame({}), false},
      {"IPv6 source", Match().FromIpv6(kPeerIpv6, kWholeIpv6), MakeIpv6Frame({}), true},
      {"another IPv6 source", Match().FromIpv6(kOwnIpv6, kWholeIpv6), MakeIpv6Frame({}), false},
      {"IPv6 network", Match().ToIpv6({0xfd}, {0xff, 0xff}), MakeIpv6Frame({}), true},
      {"IPv6 ports", Match().ToIpv6(kOwnIpv6, kWholeIpv6).Protocol(17).Port(5000),
       MakeIpv6Frame({}), true},
      {"another port of IPv6", Match().ToIpv6(kOwnIpv6, kWholeIpv6).Protocol(17).Port(5001),
       MakeIpv6Frame({}), false},
      {"IPv6 address 0 for IPv4", Match().ToIpv6({}, kWholeIpv6), udp, false},
      {"IPv4 address 0 for IPv6", Match().To(0), MakeIpv6Frame({}), false},
  };
  for (const Row& row : rows) {
    Steering one(4);
    uint32_t rule;
    ASSERT_EQ(one.Add(row.match.request, &a, &rule), 0) << row.name;
    EXPECT_EQ(one.Walk(KeyOf(ParseFrame(row.frame)), [](const auto&) {}), row.matches) << row.name;
  }
}

TEST_F(SteeringTest, FrameThatMatchesNothingIsNobodys) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 1)), 0);
  EXPECT_EQ(Receivers(udp), "");
}

TEST_F(SteeringTest, EqualRulesGiveEveryHolderOneCopy) {
  ASSERT_EQ(Add('a', Match().Mac(kGroupMac).Udp(kGroupIp, 5000)), 0);
  ASSERT_EQ(Add('b', Match().Mac(kGroupMac).Udp(kGroupIp, 5000)), 0);
  ASSERT_EQ(Add('c', Match().Mac(kGroupMac).Udp(kGroupIp, 5000)), 0);
  EXPECT_EQ(Receivers(group), "abc!");
}

TEST_F(SteeringTest, EqualRulesOfOneQueueAreOneCopyUntilTheLastGoes) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000)), 0);
  const uint32_t first = last_rule;
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000)), 0);
  EXPECT_EQ(Receivers(udp), "a!");
  EXPECT_EQ(a.rules, 2u);
  EXPECT_EQ(steering.Remove(first), 0);
  EXPECT_EQ(Receivers(udp), "a!");
  EXPECT_EQ(steering.Remove(last_rule), 0);
  EXPECT_EQ(Receivers(udp), "");
  EXPECT_EQ(a.rules, 0u);
}

TEST_F(SteeringTest, BitsOutsideTheMaskDoNotMakeRulesDiffer) {
  ASSERT_EQ(Add('a', Match().To(0x0a000001, 0xffffff00).Tag(1)), 0);
  EXPECT_EQ(Add('b', Match().To(0x0a0000fe, 0xffffff00).Tag(2)), EEXIST);
}

struct TagRow {
  const char* name;
  std::optional<uint32_t> first;
  std::optional<uint32_t> second;
  int error;
  uint32_t seen;  // By both.
};

TEST_F(SteeringTest, AnEntryHasTheTagItWasMadeWith) {
  const TagRow rows[] = {
      {"equal tags", 5, 5, 0, 5},
      {"another tag", 5, 6, EEXIST, 5},
      {"none joins a tag and sees it", 5, std::nullopt, 0, 5},
      {"a tag does not join none", std::nullopt, 5, EEXIST, 0},
      {"tag 0 is none", std::nullopt, 0, 0, 0},
      {"none joins none", std::nullopt, std::nullopt, 0, 0},
  };
  for (const TagRow& row : rows) {
    Steering one(4);
    uint32_t rule;
    Match match;
    match.Udp(kOwnIp, 5000);
    match.request.tag = row.first;
    ASSERT_EQ(one.Add(match.request, &a, &rule), 0) << row.name;
    match.request.tag = row.second;
    EXPECT_EQ(one.Add(match.request, &b, &rule), row.error) << row.name;
    one.Walk(KeyOf(ParseFrame(udp)), [&](const Steering::Entry& entry) {
      EXPECT_EQ(entry.tag, row.seen) << row.name;
      EXPECT_EQ(entry.holders.size(), row.error == 0 ? 2u : 1u) << row.name;
    });
  }
}

TEST_F(SteeringTest, TagOutlivesTheRuleThatBroughtIt) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000).Tag(9)), 0);
  const uint32_t first = last_rule;
  ASSERT_EQ(Add('b', Match().Udp(kOwnIp, 5000)), 0);
  ASSERT_EQ(steering.Remove(first), 0);
  EXPECT_EQ(Receivers(udp), "b!");
  EXPECT_EQ(tags, std::vector<uint32_t>{9});
}

TEST_F(SteeringTest, LowerPriorityNumberGoesFirst) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000).Priority(3)), 0);
  ASSERT_EQ(Add('b', Match().To(kOwnIp).Priority(2)), 0);
  EXPECT_EQ(Receivers(udp), "b!");
}

TEST_F(SteeringTest, EqualMatchAtAnotherPriorityMayHaveAnotherTag) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000).Priority(1).Tag(1)), 0);
  EXPECT_EQ(Add('b', Match().Udp(kOwnIp, 5000).Priority(0).Tag(2)), 0);
  EXPECT_EQ(Receivers(udp), "b!");
}

// Flow groups of one table: the first has the lowest indices, and these are looked at first.
TEST_F(SteeringTest, OfOnePriorityTheMaskThatCameFirstGoesFirstHoweverLittleItMatches) {
  ASSERT_EQ(Add('a', Match().To(kOwnIp)), 0);
  const uint32_t first = last_rule;
  ASSERT_EQ(Add('b', Match().Udp(kOwnIp, 5000)), 0);
  ASSERT_EQ(Add('c', Match().Type(kIpv4)), 0);
  EXPECT_EQ(Receivers(udp), "a!");
  EXPECT_EQ(Receivers(MakeFrame({.destination_ip = 1})), "c!");
  ASSERT_EQ(steering.Remove(first), 0);
  EXPECT_EQ(Receivers(udp), "b!");
  ASSERT_EQ(Add('d', Match().From({})), 0);
  ASSERT_EQ(Add('a', Match().To(kOwnIp)), 0);
  EXPECT_EQ(Receivers(udp), "b!") << "its place was taken meanwhile";
}

TEST_F(SteeringTest, MulticastRulesShareOneOrderWhateverTheirPriority) {
  ASSERT_EQ(Add('a', Match().Mac(kGroupMac).Priority(1).Tag(1)), 0);
  EXPECT_EQ(Add('b', Match().Mac(kGroupMac).Priority(7).Tag(2)), EEXIST);
  EXPECT_EQ(Add('b', Match().Mac(kGroupMac).Priority(7)), 0);
  EXPECT_EQ(Receivers(group), "ab!");
}

TEST_F(SteeringTest, RuleThatMayMatchUnicastGoesBeforeMulticastRules) {
  ASSERT_EQ(Add('a', Match().Mac(kGroupMac).Udp(kGroupIp, 5000)), 0);
  ASSERT_EQ(Add('b', Match().Type(kIpv4).Priority(15)), 0);
  EXPECT_EQ(Receivers(group), "b!");
}

TEST_F(SteeringTest, RuleThatDoesNotTrapPassesTheFrameOn) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000).DontTrap()), 0);
  EXPECT_EQ(Receivers(udp), "a");
  ASSERT_EQ(Add('b', Match().Udp(kOwnIp, 5000)), 0);
  EXPECT_EQ(Receivers(udp), "ab!");
}

TEST_F(SteeringTest, EqualMatchesThatTrapAndDoNotAreTwoEntries) {
  ASSERT_EQ(Add('a', Match().Udp(kOwnIp, 5000).Tag(1)), 0);
  EXPECT_EQ(Add('a', Match().Udp(kOwnIp, 5000).DontTrap().Tag(2)), 0);
  EXPECT_EQ(Receivers(udp), "aa!");
  EXPECT_EQ(tags, (std::vector<uint32_t>{2, 1}));
}

TEST_F(SteeringTest, DefaultsGetWhatNobodyElseTakes) {
  ASSERT_EQ(Add('a', Match().OfType(IBV_FLOW_ATTR_ALL_DEFAULT)), 0);
  ASSERT_EQ(Add('b', Match().OfType(IBV_FLOW_ATTR_MC_DEFAULT)), 0);
  ASSERT_EQ(Add('c', Match().To(kOwnIp).Priority(15)), 0);
  EXPECT_EQ(Receivers(udp), "c!");
  EXPECT_EQ(Receivers(MakeFrame({.destination_ip = 1})), "a!");
  EXPECT_EQ(Receivers(group), "ab!");
}

TEST_F(SteeringTest, SniffersAreBesideTheTables) {
  ASSERT_EQ(Add('a', Match().OfType(IBV_FLOW_ATTR_SNIFFER)), 0);
  EXPECT_EQ(Receivers(udp), "");
  EXPECT_EQ(steering.sniffers().holders.size(), 1u);
  EXPECT_FALSE(steering.empty());
  ASSERT_EQ(steering.Remove(last_rule), 0);
  EXPECT_TRUE(steering.empty());
}

TEST_F(SteeringTest, WhatCannotBeIsRefusedForItsReason) {
  EXPECT_EQ(Add('a', Match().Port(5000)), EINVAL) << "ports without a protocol";
  EXPECT_EQ(Add('a', Match().Protocol(1).Port(5000)), EINVAL) << "ports of ICMP";
  EXPECT_EQ(Add('a', Match().Udp(kOwnIp, 1).Tag(1 << 24)), EINVAL) << "tag of 25 bits";
  EXPECT_EQ(Add('a', Match().Udp(kOwnIp, 1).Priority(16)), ENOMEM);
  EXPECT_EQ(Add('a', Match().OfType(IBV_FLOW_ATTR_ALL_DEFAULT).Tag(1)), EINVAL);
  EXPECT_EQ(Add('a', Match().OfType(IBV_FLOW_ATTR_MC_DEFAULT).DontTrap()), EINVAL);
  EXPECT_EQ(steering.Remove(12345), EINVAL);
  EXPECT_TRUE(steering.empty());
}

TEST_F(SteeringTest, LimitIsOfRulesAndFreedByRemoving) {
  Steering two(2);
  uint32_t rule;
  const FlowRequest request = Match().Udp(kOwnIp, 5000).request;
  EXPECT_EQ(two.Add(request, &a, &rule), 0);
  EXPECT_EQ(two.Add(request, &b, &rule), 0);
  uint32_t refused;
  EXPECT_EQ(two.Add(request, &c, &refused), ENOSPC);
  EXPECT_EQ(two.Remove(rule), 0);
  EXPECT_EQ(two.Add(request, &c, &rule), 0);
}

TEST_F(SteeringTest, RulesThatDropStandWhereOthersWouldAndNotBesideThem) {
  Match drop = Match().Udp(kOwnIp, 5000);
  drop.request.drop = true;
  ASSERT_EQ(Add('a', Match().To(kOwnIp).Priority(1)), 0);
  ASSERT_EQ(Add('b', drop), 0);
  EXPECT_EQ(b.rules, 1u) << "its queue is not destroyed";
  EXPECT_EQ(Receivers(udp), "-!");
  EXPECT_EQ(Receivers(MakeFrame({.destination_port = 1})), "a!");
  EXPECT_EQ(Add('c', Match().Udp(kOwnIp, 5000)), EEXIST);
  const uint32_t first = last_rule;
  ASSERT_EQ(Add('c', drop), 0);
  EXPECT_EQ(steering.Remove(first), 0);
  EXPECT_EQ(Receivers(udp), "-!") << "the other still drops";
  EXPECT_EQ(steering.Remove(last_rule), 0);
  EXPECT_EQ(b.rules + c.rules, 0u);
  EXPECT_EQ(Receivers(udp), "a!");
  ASSERT_EQ(Add('c', Match().Udp(kOwnIp, 5000)), 0);
  EXPECT_EQ(Add('b', drop), EEXIST);
}

TEST_F(SteeringTest, ACounterCountsWhatItsRulesMatchWhileTheyAreThere) {
  FlowCounter counter;
  uint32_t rules[3];
  const FlowRequest here = Match().Udp(kOwnIp, 5000).request;
  const FlowRequest there = Match().Udp(kOwnIp, 5001).request;
  ASSERT_EQ(steering.Add(here, &a, &rules[0], &counter), 0);
  ASSERT_EQ(steering.Add(there, &b, &rules[1], &counter), 0);
  ASSERT_EQ(steering.Add(here, &c, &rules[2]), 0);
  EXPECT_EQ(counter.rules, 2u);
  const auto pass = [&](uint16_t port) {
    const Bytes frame = MakeFrame({.destination_port = port});
    steering.Walk(KeyOf(ParseFrame(frame)), [](const auto& entry) { entry.Count(72); });
  };
  for (const uint16_t port : {5000, 5001, 5002}) pass(port);
  EXPECT_EQ(counter.count.packets, 2u);
  EXPECT_EQ(counter.count.bytes, 144u);
  EXPECT_EQ(steering.Remove(rules[0]), 0);
  pass(5000);
  EXPECT_EQ(counter.count.packets, 2u) << "the rule that is left has none";
  EXPECT_EQ(steering.Remove(rules[1]), 0);
  EXPECT_EQ(counter.rules, 0u);
}

// Two thousand entries with one mask: searches survive growth and every removal.
TEST_F(SteeringTest, ManyEntriesComeAndGo) {
  Steering many(4096);
  std::vector<uint32_t> rules(2000);
  for (uint16_t i = 0; i < 2000; ++i) {
    const Match match = Match().Udp(kOwnIp, i).Tag(i);
    ASSERT_EQ(many.Add(match.request, &a, &rules[i]), 0);
  }
  const auto tag_of = [&](uint16_t port) {
    uint32_t tag = 0xffffff;
    const Bytes frame = MakeFrame({.destination_port = port});
    many.Walk(KeyOf(ParseFrame(frame)), [&](const auto& entry) { tag = entry.tag; });
    return tag;
  };
  for (uint16_t i = 0; i < 2000; i += 2) ASSERT_EQ(many.Remove(rules[i]), 0);
  for (uint16_t i = 0; i < 2000; ++i) EXPECT_EQ(tag_of(i), i % 2 == 0 ? 0xffffff : i) << i;
  for (uint16_t i = 1; i < 2000; i += 2) ASSERT_EQ(many.Remove(rules[i]), 0);
  EXPECT_TRUE(many.empty());
}

// The verification suite of the hash's specification: 66.9.149.187:2794 to 161.142.100.80:1766.
// "Verifying the RSS Hash Calculation" of NDIS: addresses, then source and destination port.
TEST(Toeplitz, GivesTheSpecifiedHashes) {
  const std::array<uint8_t, 40> key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                       0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                       0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                       0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
  struct Row {
    const char* source;
    const char* destination;
    uint16_t source_port;
    uint16_t destination_port;
    uint32_t of_addresses;
    uint32_t of_all;
  };
  const Row rows[] = {
      {"66.9.149.187", "161.142.100.80", 2794, 1766, 0x323e8fc2, 0x51ccc178},
      {"199.92.111.2", "65.69.140.83", 14230, 4739, 0xd718262a, 0xc626b0ea},
      {"24.19.198.95", "12.22.207.184", 12898, 38024, 0xd2d0a5de, 0x5c2b394a},
      {"38.27.205.30", "209.142.163.6", 48228, 2217, 0x82989176, 0xafc7327f},
      {"153.39.163.191", "202.188.127.2", 44251, 1303, 0x5d1809c5, 0x10e828a2},
      {"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x2cc18cd5, 0x40207d3d},
      {"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0x0f0c461c, 0xdde51bbf},
      {"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x4b61e985,
       0x02d1feef},
  };
  for (const Row& row : rows) {
    const bool ipv6 = std::string_view(row.source).find(':') != std::string_view::npos;
    const size_t bytes = ipv6 ? 16 : 4;
    Bytes input(2 * bytes + 4);
    ASSERT_EQ(inet_pton(ipv6 ? AF_INET6 : AF_INET, row.source, input.data()), 1);
    ASSERT_EQ(inet_pton(ipv6 ? AF_INET6 : AF_INET, row.destination, &input[bytes]), 1);
    const uint16_t ports[2] = {htobe16(row.source_port), htobe16(row.destination_port)};
    std::memcpy(&input[2 * bytes], ports, sizeof(ports));
    EXPECT_EQ(ToeplitzHash(key, std::span(input).first(2 * bytes)), row.of_addresses) << row.source;
    EXPECT_EQ(ToeplitzHash(key, input), row.of_all) << row.source;
  }
}

// Each field by itself, from where it stands in the frame, and no field of another protocol.
TEST(ReceiveTarget, HashesTheFieldsThatWereChosen) {
  const FrameSpec udp;
  const FrameSpec tcp{.protocol = 6};
  const size_t ip = IpOffset(udp);
  const size_t l4 = L4Offset(udp);
  constexpr size_t kIpv6Header = 40;
  struct Row {
    const char* name;
    Bytes frame;
    uint64_t field;
    size_t offset;
    size_t length;
  };
  const Row rows[] = {
      {"source, IPv4", MakeFrame(udp), IBV_RX_HASH_SRC_IPV4, ip + 12, 4},
      {"destination, IPv4", MakeFrame(udp), IBV_RX_HASH_DST_IPV4, ip + 16, 4},
      {"source, IPv6", MakeIpv6Frame(udp), IBV_RX_HASH_SRC_IPV6, ip + 8, 16},
      {"destination, IPv6", MakeIpv6Frame(udp), IBV_RX_HASH_DST_IPV6, ip + 24, 16},
      {"source, UDP", MakeFrame(udp), IBV_RX_HASH_SRC_PORT_UDP, l4, 2},
      {"destination, UDP", MakeFrame(udp), IBV_RX_HASH_DST_PORT_UDP, l4 + 2, 2},
      {"source, TCP", MakeFrame(tcp), IBV_RX_HASH_SRC_PORT_TCP, l4, 2},
      {"destination, TCP", MakeFrame(tcp), IBV_RX_HASH_DST_PORT_TCP, l4 + 2, 2},
      {"source of UDP over IPv6", MakeIpv6Frame(udp), IBV_RX_HASH_SRC_PORT_UDP, ip + kIpv6Header,
       2},
      {"IPv6 of IPv4", MakeFrame(udp), IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6, 0, 0},
      {"IPv4 of IPv6", MakeIpv6Frame(udp), IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, 0, 0},
      {"TCP of UDP", MakeFrame(udp), IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP, 0, 0},
      {"source address, destination port", MakeIpv6Frame(udp),
       IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_PORT_UDP, ip + kIpv6Header + 2, 2},
  };
  std::array<uint8_t, 40> key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(37 * i + 11);
  for (const Row& row : rows) {
    const ReceiveTarget target(1, {}, {nullptr, nullptr}, key, row.field);
    const std::span<const uint8_t> bytes(row.frame.data() + row.offset, row.length);
    EXPECT_EQ(target.Choose(ParseFrame(row.frame)).rx_hash, ToeplitzHash(key, bytes)) << row.name;
  }
}

TEST(ReceiveTarget, BothDirectionsOfAFlowHaveOneHashWhereBothEndsAreHashed) {
  constexpr uint32_t kOne = 0x0a000001;
  constexpr uint32_t kTwo = 0xc0a80007;
  const FrameSpec there{.source_ip = kOne, .destination_ip = kTwo, .protocol = 6,
                        .source_port = 0x1234, .destination_port = 0x00ff};
  const FrameSpec back{.source_ip = kTwo, .destination_ip = kOne, .protocol = 6,
                       .source_port = 0x00ff, .destination_port = 0x1234};
  constexpr uint64_t kAddresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
  constexpr uint64_t kPorts = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
  std::array<uint8_t, 40> key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(37 * i + 11);
  const auto hash = [&key](const FrameSpec& spec, uint64_t fields) {
    const ReceiveTarget target(1, {}, {nullptr, nullptr}, key, fields);
    return target.Choose(ParseFrame(MakeFrame(spec))).rx_hash;
  };
  // What they are together, and what they differ in.
  const Bytes input = {0xca, 0xa8, 0x00, 0x07, 0xca, 0xa8, 0x00, 0x06, 0x12, 0xff, 0x12, 0xcb};
  for (const FrameSpec& spec : {there, back}) {
    EXPECT_EQ(hash(spec, kAddresses | kPorts), ToeplitzHash(key, input));
    EXPECT_EQ(hash(spec, kAddresses), ToeplitzHash(key, std::span(input).first(8)));
    EXPECT_EQ(hash(spec, kPorts), ToeplitzHash(key, std::span(input).last(4)));
  }
  EXPECT_NE(hash(there, IBV_RX_HASH_SRC_IPV4), hash(back, IBV_RX_HASH_SRC_IPV4));
}

}  // namespace
}  // namespace xtreme::connectx
