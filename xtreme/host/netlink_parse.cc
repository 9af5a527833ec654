// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/netlink_parse.h"

#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "stack/base/byte_order.h"

namespace xtreme::host {
namespace {

// The attributes of one message or of one nest, by type; those past kLast are skipped. A later one
// replaces an earlier one, as in the kernel.
class Attributes {
 public:
  static constexpr int kLast = 31;
  static_assert(kLast >= IFLA_LINKINFO && kLast >= RTA_VIA && kLast >= FRA_DPORT_RANGE);

  // After a fixed header of `header_bytes`. False when the message is shorter than that, or when an
  // attribute reaches past its end.
  bool ParseMessage(const nlmsghdr& message, int header_bytes) {
    return nlmsg_parse(const_cast<nlmsghdr*>(&message), header_bytes, table_.data(), kLast,
                       nullptr) >= 0;
  }

  bool ParseNest(const nlattr* nest) {
    return nla_parse_nested(table_.data(), kLast, const_cast<nlattr*>(nest), nullptr) >= 0;
  }

  bool ParseBytes(const void* bytes, int length) {
    return nla_parse(table_.data(), kLast, static_cast<nlattr*>(const_cast<void*>(bytes)), length,
                     nullptr) >= 0;
  }

  const nlattr* operator[](int type) const { return table_[static_cast<size_t>(type)]; }

  // Reads a number in host order into `value`, which keeps its value when the attribute is absent.
  // False when it has another size.
  template <typename T>
  bool Read(int type, T& value) const {
    const nlattr* attribute = (*this)[type];
    if (attribute == nullptr) return true;
    if (nla_len(attribute) != static_cast<int>(sizeof(T))) return false;
    std::memcpy(&value, nla_data(attribute), sizeof(T));
    return true;
  }

  bool Read(int type, wire::Ipv4Address& value) const {
    uint32_t network_order = 0;
    if ((*this)[type] == nullptr) return true;
    if (!Read(type, network_order)) return false;
    value = wire::Ipv4Address(base::HostToBigEndian(network_order));
    return true;
  }

  bool Read(int type, std::optional<wire::Ipv4Address>& value) const {
    if ((*this)[type] == nullptr) return true;
    return Read(type, value.emplace());
  }

  bool Read(int type, std::string& value) const {
    const nlattr* attribute = (*this)[type];
    if (attribute == nullptr) return true;
    const char* text = static_cast<const char*>(nla_data(attribute));
    value.assign(text, strnlen(text, static_cast<size_t>(nla_len(attribute))));
    return true;
  }

 private:
  std::array<nlattr*, kLast + 1> table_{};
};

template <typename Header>
const Header* HeaderOf(const nlmsghdr& message) {
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof(Header))) return nullptr;
  return static_cast<const Header*>(NLMSG_DATA(&message));
}

void ReadMac(const nlattr* attribute, wire::MacAddress& mac) {
  if (attribute == nullptr || nla_len(attribute) != 6) return;  // Tunnels have other lengths.
  mac = wire::MacAddress::Load(static_cast<const uint8_t*>(nla_data(attribute)));
}

bool ReadVlan(const nlattr* nest, Interface& interface) {
  Attributes attributes;
  if (nest == nullptr || !attributes.ParseNest(nest)) return false;
  Vlan vlan;
  uint16_t ethertype_be = base::HostToBigEndian(vlan.ethertype);
  if (!attributes.Read(IFLA_VLAN_ID, vlan.id) ||
      !attributes.Read(IFLA_VLAN_PROTOCOL, ethertype_be)) {
    return false;
  }
  vlan.ethertype = base::HostToBigEndian(ethertype_be);
  interface.vlan = vlan;
  return true;
}

bool ReadKind(const nlattr* nest, Interface& interface) {
  if (nest == nullptr) return true;
  Attributes attributes;
  if (!attributes.ParseNest(nest) || !attributes.Read(IFLA_INFO_KIND, interface.kind)) return false;
  return interface.kind != "vlan" || ReadVlan(attributes[IFLA_INFO_DATA], interface);
}

bool ReadGateway(const Attributes& attributes, NextHop& hop) {
  hop.foreign_gateway = attributes[RTA_VIA] != nullptr;
  return attributes.Read(RTA_GATEWAY, hop.gateway);
}

bool IsDead(unsigned flags) { return (flags & RTNH_F_DEAD) != 0; }

bool ReadMultipath(const nlattr* attribute, Route& route) {
  const auto* next = static_cast<const rtnexthop*>(nla_data(attribute));
  int left = nla_len(attribute);
  // RTNH_OK reads the length before it looks whether there is one.
  while (left >= static_cast<int>(sizeof(*next)) && RTNH_OK(next, left)) {
    const int attribute_bytes = next->rtnh_len - static_cast<int>(RTNH_LENGTH(0));
    Attributes attributes;
    NextHop hop{.ifindex = static_cast<uint32_t>(next->rtnh_ifindex),
                .dead = IsDead(next->rtnh_flags)};
    if (attribute_bytes < 0 || !attributes.ParseBytes(RTNH_DATA(next), attribute_bytes) ||
        !ReadGateway(attributes, hop)) {
      return false;
    }
    route.next_hops.push_back(hop);
    left -= static_cast<int>(RTNH_ALIGN(next->rtnh_len));
    next = RTNH_NEXT(next);
  }
  return !route.next_hops.empty();
}

bool ReadNextHops(const Attributes& attributes, unsigned flags, Route& route) {
  if (attributes[RTA_MULTIPATH] != nullptr) return ReadMultipath(attributes[RTA_MULTIPATH], route);
  if (attributes[RTA_OIF] == nullptr) return true;
  NextHop hop{.dead = IsDead(flags)};
  if (!attributes.Read(RTA_OIF, hop.ifindex) || !ReadGateway(attributes, hop)) return false;
  route.next_hops.push_back(hop);
  return true;
}

bool ReadRouteMtu(const nlattr* metrics, Route& route) {
  if (metrics == nullptr) return true;
  Attributes attributes;
  return attributes.ParseNest(metrics) && attributes.Read(RTAX_MTU, route.mtu);
}

// What a locally sent packet's destination, source and interface do not decide.
bool HasUnsupportedSelector(const Attributes& attributes) {
  for (const int type : {FRA_TUN_ID, FRA_SUPPRESS_IFGROUP, FRA_L3MDEV, FRA_UID_RANGE, FRA_IP_PROTO,
                         FRA_SPORT_RANGE, FRA_DPORT_RANGE}) {
    if (attributes[type] != nullptr) return true;
  }
  // Newer kernels select by more (FRA_DSCP, FRA_DPORT_MASK).
  for (int type = FRA_DPORT_RANGE + 1; type <= Attributes::kLast; ++type) {
    if (attributes[type] != nullptr) return true;
  }
  return false;
}

bool IsIpv4(uint8_t family) { return family == AF_INET; }

}  // namespace

std::optional<Interface> ParseInterface(const nlmsghdr& message) {
  const auto* header = HeaderOf<ifinfomsg>(message);
  Attributes attributes;
  if (header == nullptr || header->ifi_family != AF_UNSPEC || header->ifi_index <= 0 ||
      !attributes.ParseMessage(message, sizeof(*header))) {
    return std::nullopt;
  }
  Interface interface;
  interface.ifindex = static_cast<uint32_t>(header->ifi_index);
  interface.up = (header->ifi_flags & IFF_UP) != 0;
  interface.running = interface.up && (header->ifi_flags & IFF_RUNNING) != 0;
  interface.loopback = (header->ifi_flags & IFF_LOOPBACK) != 0;
  interface.multicast = (header->ifi_flags & IFF_MULTICAST) != 0;
  if (!attributes.Read(IFLA_IFNAME, interface.name) || !attributes.Read(IFLA_MTU, interface.mtu) ||
      !attributes.Read(IFLA_LINK, interface.parent_ifindex) ||
      !attributes.Read(IFLA_MASTER, interface.master_ifindex) ||
      !ReadKind(attributes[IFLA_LINKINFO], interface) || interface.name.empty()) {
    return std::nullopt;
  }
  ReadMac(attributes[IFLA_ADDRESS], interface.mac);
  return interface;
}

std::optional<InterfaceAddress> ParseAddress(const nlmsghdr& message) {
  const auto* header = HeaderOf<ifaddrmsg>(message);
  Attributes attributes;
  if (header == nullptr || !IsIpv4(header->ifa_family) || header->ifa_prefixlen > 32 ||
      !attributes.ParseMessage(message, sizeof(*header))) {
    return std::nullopt;
  }
  InterfaceAddress address;
  address.ifindex = header->ifa_index;
  address.prefix_length = header->ifa_prefixlen;
  address.scope = header->ifa_scope;
  uint32_t flags = header->ifa_flags;
  if (attributes[IFA_LOCAL] == nullptr || !attributes.Read(IFA_LOCAL, address.local) ||
      !attributes.Read(IFA_BROADCAST, address.broadcast) || !attributes.Read(IFA_FLAGS, flags)) {
    return std::nullopt;
  }
  address.peer = address.local;
  if (!attributes.Read(IFA_ADDRESS, address.peer)) return std::nullopt;
  address.secondary = (flags & IFA_F_SECONDARY) != 0;
  return address;
}

std::optional<Route> ParseRoute(const nlmsghdr& message) {
  const auto* header = HeaderOf<rtmsg>(message);
  Attributes attributes;
  if (header == nullptr || !IsIpv4(header->rtm_family) || header->rtm_dst_len > 32 ||
      !attributes.ParseMessage(message, sizeof(*header))) {
    return std::nullopt;
  }
  Route route;
  route.table = header->rtm_table;
  route.destination.length = header->rtm_dst_len;
  route.type = static_cast<RouteType>(header->rtm_type);
  route.scope = header->rtm_scope;
  route.tos = header->rtm_tos;
  if (!attributes.Read(RTA_TABLE, route.table) ||
      !attributes.Read(RTA_DST, route.destination.address) ||
      !attributes.Read(RTA_PRIORITY, route.metric) ||
      !attributes.Read(RTA_PREFSRC, route.preferred_source) ||
      !ReadRouteMtu(attributes[RTA_METRICS], route) ||
      !ReadNextHops(attributes, header->rtm_flags, route)) {
    return std::nullopt;
  }
  return route;
}

std::optional<RoutingRule> ParseRule(const nlmsghdr& message) {
  const auto* header = HeaderOf<fib_rule_hdr>(message);
  Attributes attributes;
  if (header == nullptr || !IsIpv4(header->family) || header->src_len > 32 ||
      header->dst_len > 32 || !attributes.ParseMessage(message, sizeof(*header))) {
    return std::nullopt;
  }
  RoutingRule rule;
  rule.source.length = header->src_len;
  rule.destination.length = header->dst_len;
  rule.tos = header->tos;
  rule.action = header->action;
  rule.table = header->table;
  rule.inverted = (header->flags & FIB_RULE_INVERT) != 0;
  rule.unsupported = HasUnsupportedSelector(attributes);
  if (!attributes.Read(FRA_TABLE, rule.table) || !attributes.Read(FRA_PRIORITY, rule.priority) ||
      !attributes.Read(FRA_SRC, rule.source.address) ||
      !attributes.Read(FRA_DST, rule.destination.address) ||
      !attributes.Read(FRA_IIFNAME, rule.input_interface) ||
      !attributes.Read(FRA_OIFNAME, rule.output_interface) ||
      !attributes.Read(FRA_FWMARK, rule.mark) || !attributes.Read(FRA_FWMASK, rule.mark_mask) ||
      !attributes.Read(FRA_GOTO, rule.goto_priority) ||
      !attributes.Read(FRA_SUPPRESS_PREFIXLEN, rule.suppress_prefix_length)) {
    return std::nullopt;
  }
  return rule;
}

std::optional<Neighbour> ParseNeighbour(const nlmsghdr& message) {
  const auto* header = HeaderOf<ndmsg>(message);
  Attributes attributes;
  if (header == nullptr || !IsIpv4(header->ndm_family) || header->ndm_ifindex <= 0 ||
      !attributes.ParseMessage(message, sizeof(*header)) || attributes[NDA_DST] == nullptr) {
    return std::nullopt;
  }
  Neighbour neighbour;
  neighbour.ifindex = static_cast<uint32_t>(header->ndm_ifindex);
  neighbour.state = header->ndm_state;
  if (!attributes.Read(NDA_DST, neighbour.address)) return std::nullopt;
  ReadMac(attributes[NDA_LLADDR], neighbour.mac);
  return neighbour;
}

}  // namespace xtreme::host
