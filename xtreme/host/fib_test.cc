// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/fib.h"

#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::host {
namespace {

using wire::Ipv4Address;
using wire::Ipv4Prefix;

constexpr Ipv4Address kPeer(10, 1, 2, 3);

Route Via(Ipv4Prefix destination, uint32_t ifindex, uint32_t metric = 0,
          uint32_t table = RT_TABLE_MAIN) {
  return {.table = table,
          .destination = destination,
          .type = RouteType::kUnicast,
          .metric = metric,
          .next_hops = {{.ifindex = ifindex}}};
}

Route OfType(Ipv4Prefix destination, RouteType type, uint32_t table = RT_TABLE_MAIN) {
  return {.table = table, .destination = destination, .type = type};
}

uint32_t InterfaceFor(const Fib& fib, const FibKey& key) {
  const FibResult result = fib.Lookup(key);
  return result.next_hop == nullptr ? 0 : result.next_hop->ifindex;
}

RoutingRule ToTable(uint32_t table, uint32_t priority) {
  return {.priority = priority, .action = FR_ACT_TO_TBL, .table = table};
}

TEST(FibTest, LongestPrefixWins) {
  const Fib fib({Via({{}, 0}, 1), Via({Ipv4Address(10, 0, 0, 0), 8}, 2),
                 Via({Ipv4Address(10, 1, 2, 3), 32}, 4), Via({Ipv4Address(10, 1, 0, 0), 16}, 3)},
                {});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer}), 4u);
  EXPECT_EQ(InterfaceFor(fib, {.destination = Ipv4Address(10, 1, 2, 4)}), 3u);
  EXPECT_EQ(InterfaceFor(fib, {.destination = Ipv4Address(10, 2, 0, 1)}), 2u);
  EXPECT_EQ(InterfaceFor(fib, {.destination = Ipv4Address(11, 0, 0, 1)}), 1u);
}

TEST(FibTest, EmptyTablesHaveNoRoute) {
  EXPECT_EQ(Fib({}, {}).Lookup({.destination = kPeer}).verdict, FibVerdict::kNoRoute);
}

TEST(FibTest, FirstOfEqualPrefixesWinsAsTheKernelOrdersThem) {
  const Ipv4Prefix network{Ipv4Address(10, 0, 0, 0), 8};
  const Fib fib({Via(network, 5, 10), Via(network, 6, 20)}, {});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer}), 5u);
}

TEST(FibTest, AnInterfaceAskedForSkipsTheRoutesOfOthers) {
  const Fib fib({Via({{}, 0}, 1), Via({Ipv4Address(10, 0, 0, 0), 8}, 2)}, {});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer, .ifindex = 1}), 1u);
}

TEST(FibTest, ADeadNextHopIsPassedOver) {
  Route route = Via({{}, 0}, 1);
  route.next_hops[0].dead = true;
  route.next_hops.push_back({.ifindex = 2});
  EXPECT_EQ(InterfaceFor(Fib({route}, {}), {.destination = kPeer}), 2u);
}

TEST(FibTest, ARouteForAnotherTypeOfServiceDoesNotCount) {
  Route route = Via({Ipv4Address(10, 0, 0, 0), 8}, 2);
  route.tos = 0x10;
  EXPECT_EQ(InterfaceFor(Fib({Via({{}, 0}, 1), route}, {}), {.destination = kPeer}), 1u);
}

TEST(FibTest, RoutesThatLeadNowhereSayWhy) {
  const Ipv4Prefix network{Ipv4Address(10, 0, 0, 0), 8};
  for (const auto& [type, verdict] : {std::pair{RouteType::kUnreachable, FibVerdict::kUnreachable},
                                      std::pair{RouteType::kBlackhole, FibVerdict::kBlackhole},
                                      std::pair{RouteType::kProhibit, FibVerdict::kProhibit}}) {
    const Fib fib({Via({{}, 0}, 1), OfType(network, type)}, {});
    EXPECT_EQ(fib.Lookup({.destination = kPeer}).verdict, verdict) << static_cast<int>(type);
  }
}

TEST(FibTest, ThrowLeavesTheTableForTheNextRule) {
  const Fib fib(
      {Via({{}, 0}, 1, 0, 100), OfType({kPeer, 32}, RouteType::kThrow, 100), Via({{}, 0}, 2)},
      {ToTable(100, 10), ToTable(RT_TABLE_MAIN, 20)});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer}), 2u);
  EXPECT_EQ(InterfaceFor(fib, {.destination = Ipv4Address(10, 1, 2, 4)}), 1u);
}

TEST(FibTest, LocalTableComesFirstWithoutRules) {
  Route local = Via({kPeer, 32}, 9, 0, RT_TABLE_LOCAL);
  local.type = RouteType::kLocal;
  const Fib fib({Via({kPeer, 32}, 1), local}, {});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer}), 9u);
  EXPECT_EQ(fib.LocalInterface(kPeer), 9u);
  EXPECT_FALSE(fib.IsLocal(Ipv4Address(10, 1, 2, 4)));
}

// One rule to table 100 (interface 1) before main (interface 2).
struct RuleRow {
  std::string name;
  RoutingRule rule;
  FibKey key;
  uint32_t expected_ifindex;
};

TEST(FibTest, RulesSelect) {
  const Ipv4Address source(192, 0, 2, 1);
  RoutingRule from = ToTable(100, 10);
  from.source = {Ipv4Address(192, 0, 2, 0), 24};
  RoutingRule to = ToTable(100, 10);
  to.destination = {kPeer, 32};
  RoutingRule inverted = from;
  inverted.inverted = true;
  RoutingRule output = ToTable(100, 10);
  output.output_interface = "eth1";
  RoutingRule input = ToTable(100, 10);
  input.input_interface = "eth1";
  RoutingRule input_local = ToTable(100, 10);
  input_local.input_interface = "lo";
  RoutingRule marked = ToTable(100, 10);
  marked.mark = marked.mark_mask = 1;
  RoutingRule suppressed = ToTable(100, 10);
  suppressed.suppress_prefix_length = 0;
  RoutingRule unsupported = ToTable(100, 10);
  unsupported.unsupported = true;
  RoutingRule missing = ToTable(101, 10);
  const RuleRow rows[] = {
      {"source matches", from, {.destination = kPeer, .source = source}, 1},
      {"source not chosen", from, {.destination = kPeer}, 2},
      {"not this source", inverted, {.destination = kPeer, .source = source}, 2},
      {"not any source", inverted, {.destination = kPeer}, 1},
      {"destination matches", to, {.destination = kPeer}, 1},
      {"another destination", to, {.destination = source}, 2},
      {"output asked for",
       output,
       {.destination = kPeer, .ifindex = 1, .interface_name = "eth1"},
       1},
      {"no output asked for", output, {.destination = kPeer}, 2},
      {"enters elsewhere", input, {.destination = kPeer}, 2},
      {"sent locally", input_local, {.destination = kPeer}, 1},
      {"has no mark", marked, {.destination = kPeer}, 2},
      {"default route suppressed", suppressed, {.destination = kPeer}, 2},
      {"cannot be evaluated", unsupported, {.destination = kPeer}, 2},
      {"table without routes", missing, {.destination = kPeer}, 2},
  };
  for (const RuleRow& row : rows) {
    const Fib fib({Via({{}, 0}, 1, 0, 100), Via({{}, 0}, 2)},
                  {row.rule, ToTable(RT_TABLE_MAIN, 20)});
    EXPECT_EQ(InterfaceFor(fib, row.key), row.expected_ifindex) << row.name;
  }
}

TEST(FibTest, TheSourceCountsOnlyWhereARuleLooksAtIt) {
  RoutingRule from = ToTable(100, 10);
  from.source = {Ipv4Address(192, 0, 2, 0), 24};
  EXPECT_FALSE(Fib({}, {}).minds_source());
  EXPECT_FALSE(Fib({}, {ToTable(100, 10), ToTable(RT_TABLE_MAIN, 20)}).minds_source());
  EXPECT_TRUE(Fib({}, {ToTable(RT_TABLE_MAIN, 5), from}).minds_source());
}

TEST(FibTest, GotoSkipsTheRulesBetween) {
  const RoutingRule jump{.priority = 5, .action = FR_ACT_GOTO, .goto_priority = 20};
  const Fib fib({Via({{}, 0}, 1, 0, 100), Via({{}, 0}, 2)},
                {jump, ToTable(100, 10), ToTable(RT_TABLE_MAIN, 20)});
  EXPECT_EQ(InterfaceFor(fib, {.destination = kPeer}), 2u);
}

TEST(FibTest, ARuleCanRefuse) {
  for (const auto& [action, verdict] : {std::pair{FR_ACT_UNREACHABLE, FibVerdict::kUnreachable},
                                        std::pair{FR_ACT_BLACKHOLE, FibVerdict::kBlackhole},
                                        std::pair{FR_ACT_PROHIBIT, FibVerdict::kProhibit}}) {
    const RoutingRule rule{.priority = 1, .action = static_cast<uint8_t>(action)};
    EXPECT_EQ(Fib({Via({{}, 0}, 1)}, {rule}).Lookup({.destination = kPeer}).verdict, verdict);
  }
}

}  // namespace
}  // namespace xtreme::host
