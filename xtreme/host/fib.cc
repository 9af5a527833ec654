// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/fib.h"

#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace xtreme::host {
namespace {

// The interface by which locally sent packets enter, as rules see it.
constexpr std::string_view kLocalInput = "lo";

std::vector<RoutingRule> DefaultRules() {
  return {{.priority = 0, .action = FR_ACT_TO_TBL, .table = RT_TABLE_LOCAL},
          {.priority = 32766, .action = FR_ACT_TO_TBL, .table = RT_TABLE_MAIN},
          {.priority = 32767, .action = FR_ACT_TO_TBL, .table = RT_TABLE_DEFAULT}};
}

bool Selects(const RoutingRule& rule, const FibKey& key) {
  if (rule.unsupported) return false;
  const bool selected =
      rule.source.Contains(key.source) && rule.destination.Contains(key.destination) &&
      (rule.input_interface.empty() || rule.input_interface == kLocalInput) &&
      (rule.output_interface.empty() || rule.output_interface == key.interface_name) &&
      rule.tos == 0 && (rule.mark & rule.mark_mask) == 0;
  return selected != rule.inverted;
}

// The first next hop that the kernel would use; nullptr when all are unfit.
const NextHop* UsableHop(const Route& route, uint32_t ifindex) {
  for (const NextHop& hop : route.next_hops) {
    if (!hop.dead && (ifindex == 0 || hop.ifindex == ifindex)) return &hop;
  }
  return nullptr;
}

// nullopt: this route does not count and the search goes on.
std::optional<FibResult> Follow(const Route& route, const FibKey& key) {
  switch (route.type) {
    case RouteType::kUnreachable:
      return FibResult{FibVerdict::kUnreachable, &route, nullptr};
    case RouteType::kBlackhole:
      return FibResult{FibVerdict::kBlackhole, &route, nullptr};
    case RouteType::kProhibit:
      return FibResult{FibVerdict::kProhibit, &route, nullptr};
    case RouteType::kThrow:
      return FibResult{FibVerdict::kRoute, &route, nullptr};
    default:
      break;
  }
  const NextHop* hop = UsableHop(route, key.ifindex);
  if (hop == nullptr) return std::nullopt;
  return FibResult{FibVerdict::kRoute, &route, hop};
}

}  // namespace

Fib::Fib(std::vector<Route> routes, std::vector<RoutingRule> rules) : rules_(std::move(rules)) {
  if (rules_.empty()) rules_ = DefaultRules();
  minds_source_ = std::any_of(rules_.begin(), rules_.end(), [](const RoutingRule& rule) {
    return rule.source.length != 0;
  });
  for (Route& route : routes) tables_[route.table].routes.push_back(std::move(route));
  for (auto& [id, table] : tables_) {
    std::stable_sort(table.routes.begin(), table.routes.end(), [](const Route& a, const Route& b) {
      if (a.destination.length != b.destination.length) {
        return a.destination.length > b.destination.length;
      }
      return a.destination.address < b.destination.address;
    });
    for (uint32_t i = 0; i < table.routes.size(); ++i) {
      const uint8_t length = table.routes[i].destination.length;
      if (table.count[length]++ == 0) table.begin[length] = i;
      table.lengths |= uint64_t{1} << length;
    }
  }
}

FibResult Fib::Lookup(const FibKey& key) const {
  uint32_t next_priority = 0;
  for (const RoutingRule& rule : rules_) {
    if (rule.priority < next_priority || !Selects(rule, key)) continue;
    if (rule.action == FR_ACT_GOTO) {
      next_priority = rule.goto_priority;
    } else if (const std::optional<FibResult> result = Apply(rule, key)) {
      return *result;
    }
  }
  return {};
}

uint32_t Fib::LocalInterface(wire::Ipv4Address address) const {
  const auto table = tables_.find(RT_TABLE_LOCAL);
  if (table == tables_.end()) return 0;
  const std::optional<FibResult> result = LookupTable(table->second, {.destination = address});
  if (!result || result->route->type != RouteType::kLocal) return 0;
  return result->next_hop->ifindex;
}

// nullopt: the next rule decides.
std::optional<FibResult> Fib::Apply(const RoutingRule& rule, const FibKey& key) const {
  switch (rule.action) {
    case FR_ACT_TO_TBL:
      break;
    case FR_ACT_UNREACHABLE:
      return FibResult{.verdict = FibVerdict::kUnreachable};
    case FR_ACT_BLACKHOLE:
      return FibResult{.verdict = FibVerdict::kBlackhole};
    case FR_ACT_PROHIBIT:
      return FibResult{.verdict = FibVerdict::kProhibit};
    default:
      return std::nullopt;
  }
  const auto table = tables_.find(rule.table);
  if (table == tables_.end()) return std::nullopt;
  std::optional<FibResult> result = LookupTable(table->second, key);
  if (!result || result->route->type == RouteType::kThrow) return std::nullopt;
  const bool suppressed = result->verdict == FibVerdict::kRoute &&
                          result->route->destination.length <= rule.suppress_prefix_length;
  if (suppressed) return std::nullopt;
  return result;
}

std::optional<FibResult> Fib::LookupTable(const Table& table, const FibKey& key) const {
  for (uint64_t left = table.lengths; left != 0;) {
    const int length = std::bit_width(left) - 1;
    left ^= uint64_t{1} << length;
    const auto of_length =
        std::span(table.routes).subspan(table.begin[length], table.count[length]);
    const wire::Ipv4Prefix all{.length = static_cast<uint8_t>(length)};
    const wire::Ipv4Address network(key.destination.value() & all.mask());
    auto route = std::lower_bound(
        of_length.begin(), of_length.end(), network,
        [](const Route& a, wire::Ipv4Address b) { return a.destination.address < b; });
    for (; route != of_length.end() && route->destination.address == network; ++route) {
      if (route->tos != 0) continue;
      if (std::optional<FibResult> result = Follow(*route, key)) return result;
    }
  }
  return std::nullopt;
}

size_t Fib::route_count() const {
  size_t count = 0;
  for (const auto& [id, table] : tables_) count += table.routes.size();
  return count;
}

std::vector<Route> Fib::Routes() const {
  std::vector<Route> routes;
  for (const auto& [id, table] : tables_) {
    routes.insert(routes.end(), table.routes.begin(), table.routes.end());
  }
  return routes;
}

}  // namespace xtreme::host
