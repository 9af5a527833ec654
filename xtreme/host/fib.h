// SPDX-License-Identifier: Apache-2.0
// The IPv4 forwarding tables and the rules that choose among them: which route a packet of this
// host takes.
//
// Immutable after construction: share it, read it from any thread, no system call. The same answer
// as the kernel's fib_lookup for a packet without mark and with TOS 0, except that of the next hops
// of a multipath route the first usable one is taken, not one by hash.
//
// Spec: RFC 1812 section 5.2.4 (longest match), ip-rule(8), linux/fib_rules.h.

#ifndef XTREME_XTREME_HOST_FIB_H_
#define XTREME_XTREME_HOST_FIB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stack/wire/address.h"
#include "xtreme/host/kernel_tables.h"

namespace xtreme::host {

// What the packet to route is known by.
struct FibKey {
  wire::Ipv4Address destination;
  wire::Ipv4Address source;  // Any when not chosen yet.
  // The interface that the sender asked for, index and name; 0 when it did not.
  uint32_t ifindex = 0;
  std::string_view interface_name;
};

enum class FibVerdict : uint8_t { kRoute, kNoRoute, kUnreachable, kBlackhole, kProhibit };

// kRoute comes with the route, and with a next hop unless the route is of a type without. Both
// point into the Fib.
struct FibResult {
  FibVerdict verdict = FibVerdict::kNoRoute;
  const Route* route = nullptr;
  const NextHop* next_hop = nullptr;
};

class Fib {
 public:
  Fib() = default;
  // `routes` of one table and prefix, and `rules`, in the kernel's order. Without rules the
  // kernel's defaults stand: tables local, main, default.
  Fib(std::vector<Route> routes, std::vector<RoutingRule> rules);

  FibResult Lookup(const FibKey& key) const;

  // The interface whose local route covers `address` (127.0.0.0/8 is more than its addresses);
  // 0 when datagrams to it are not for this host.
  uint32_t LocalInterface(wire::Ipv4Address address) const;
  bool IsLocal(wire::Ipv4Address address) const { return LocalInterface(address) != 0; }

  // Whether a rule looks at the source: then a packet may go another way once that is chosen.
  bool minds_source() const { return minds_source_; }

  std::span<const RoutingRule> rules() const { return rules_; }
  size_t route_count() const;
  // Every route, table by table, longest prefix first.
  std::vector<Route> Routes() const;

 private:
  // One table, longest prefix first; within a prefix in the kernel's order of preference.
  struct Table {
    std::vector<Route> routes;
    // Where the routes of each length begin: those of n are [begin[n], begin[n] + count[n]).
    std::array<uint32_t, 33> begin{};
    std::array<uint32_t, 33> count{};
    uint64_t lengths = 0;  // Bit n: there are some of length n.
  };

  std::optional<FibResult> LookupTable(const Table& table, const FibKey& key) const;
  std::optional<FibResult> Apply(const RoutingRule& rule, const FibKey& key) const;

  std::map<uint32_t, Table> tables_;
  std::vector<RoutingRule> rules_;
  bool minds_source_ = false;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_FIB_H_
