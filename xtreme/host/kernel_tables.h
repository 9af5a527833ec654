// SPDX-License-Identifier: Apache-2.0
// The kernel's network tables as rows: interfaces, addresses, routes, rules, neighbours (IPv4).
//
// A row is what rtnetlink says about one object, in our types and nothing else; where the kernel
// gives a list an order that means something (addresses of an interface, routes of one prefix,
// rules), the vector keeps it.
//
// Units: MTU in bytes; addresses in wire::Ipv4Address; an ifindex of 0 is "none".
// Threads: plain values. Spec: rtnetlink(7), linux/rtnetlink.h, linux/if_link.h, linux/fib_rules.h.

#ifndef XTREME_XTREME_HOST_KERNEL_TABLES_H_
#define XTREME_XTREME_HOST_KERNEL_TABLES_H_

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::host {

struct Vlan {
  // 802.1Q identifier, 1 to 4094.
  uint16_t id = 0;
  // EtherType of the tag: 0x8100, or 0x88A8 for 802.1ad.
  uint16_t ethertype = 0x8100;
  friend bool operator==(const Vlan&, const Vlan&) = default;
};

struct Interface {
  uint32_t ifindex = 0;
  std::string name;
  // Driver kind as the kernel calls it: "vlan", "bond", "veth"; empty for a physical interface.
  std::string kind;
  wire::MacAddress mac;
  uint32_t mtu = 0;
  // Administratively up; and with carrier and operational as well.
  bool up = false;
  bool running = false;
  bool loopback = false;
  bool multicast = false;
  // The interface below (VLAN parent, veth peer); valid in this namespace for VLANs.
  uint32_t parent_ifindex = 0;
  std::optional<Vlan> vlan;
  // The bond, bridge or VRF this interface is a port of.
  uint32_t master_ifindex = 0;
  friend bool operator==(const Interface&, const Interface&) = default;
};

struct InterfaceAddress {
  uint32_t ifindex = 0;
  wire::Ipv4Address local;
  // What the prefix is of: `local`, or the far end of a point-to-point interface.
  wire::Ipv4Address peer;
  wire::Ipv4Address broadcast;
  uint8_t prefix_length = 0;
  // RT_SCOPE_*: larger is narrower.
  uint8_t scope = 0;
  bool secondary = false;
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// Values are the kernel's RTN_*.
enum class RouteType : uint8_t {
  kUnspecified = RTN_UNSPEC,
  kUnicast = RTN_UNICAST,
  kLocal = RTN_LOCAL,
  kBroadcast = RTN_BROADCAST,
  kAnycast = RTN_ANYCAST,
  kMulticast = RTN_MULTICAST,
  kBlackhole = RTN_BLACKHOLE,
  kUnreachable = RTN_UNREACHABLE,
  kProhibit = RTN_PROHIBIT,
  kThrow = RTN_THROW,
};

struct NextHop {
  uint32_t ifindex = 0;
  // None: the destination is on the link.
  std::optional<wire::Ipv4Address> gateway;
  // The kernel does not use it: its interface is down.
  bool dead = false;
  // Its gateway is an IPv6 address (RTA_VIA), which we do not speak.
  bool foreign_gateway = false;
  friend bool operator==(const NextHop&, const NextHop&) = default;
};

struct Route {
  uint32_t table = RT_TABLE_MAIN;
  wire::Ipv4Prefix destination;
  RouteType type = RouteType::kUnspecified;
  uint8_t scope = 0;
  uint8_t tos = 0;
  // Lower is preferred.
  uint32_t metric = 0;
  std::optional<wire::Ipv4Address> preferred_source;
  // 0: that of the interface.
  uint32_t mtu = 0;
  // In the kernel's order; empty for the types that lead nowhere.
  std::vector<NextHop> next_hops;
  friend bool operator==(const Route&, const Route&) = default;
};

// A rule of policy routing (`ip rule`).
struct RoutingRule {
  uint32_t priority = 0;
  wire::Ipv4Prefix source;
  wire::Ipv4Prefix destination;
  // Empty: any. Locally sent packets enter by "lo".
  std::string input_interface;
  std::string output_interface;
  uint8_t tos = 0;
  uint32_t mark = 0;
  uint32_t mark_mask = 0;
  bool inverted = false;
  // FR_ACT_*.
  uint8_t action = 0;
  uint32_t table = 0;
  // A match in `table` with a prefix this short or shorter does not count; -1: none is too short.
  int suppress_prefix_length = -1;
  uint32_t goto_priority = 0;
  // Selects by something a destination does not tell (ports, user, VRF): never matches here.
  bool unsupported = false;
  friend bool operator==(const RoutingRule&, const RoutingRule&) = default;
};

struct Neighbour {
  uint32_t ifindex = 0;
  wire::Ipv4Address address;
  wire::MacAddress mac;
  // NUD_*.
  uint16_t state = 0;

  // Whether the kernel itself would send to `mac` now.
  bool usable() const {
    return (state &
            (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE)) != 0;
  }
  // Whether it is so whatever the neighbour says.
  bool settled() const { return (state & (NUD_PERMANENT | NUD_NOARP)) != 0; }
  friend bool operator==(const Neighbour&, const Neighbour&) = default;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_KERNEL_TABLES_H_
