// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/rule_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr MacAddress kAnyMac{};
constexpr MacAddress kWholeMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr MacAddress kGroupBit{0x01, 0, 0, 0, 0, 0};
constexpr uint32_t kWholeIp = 0xffffffff;
constexpr uint16_t kWholePort = 0xffff;
constexpr Ipv6Address kAnyIpv6{};

template <typename Address>
Address Masked(const Address& address, const Address& mask) {
  Address result;
  for (size_t i = 0; i < address.size(); ++i) result[i] = address[i] & mask[i];
  return result;
}

std::string MacText(const MacAddress& mac) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
                mac[4], mac[5]);
  return text;
}

std::string IpText(uint32_t ip) {
  return absl::StrCat(ip >> 24, ".", ip >> 16 & 0xff, ".", ip >> 8 & 0xff, ".", ip & 0xff);
}

std::string Ipv6Text(const Ipv6Address& ip) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, ip.data(), text, sizeof text);
  return text;
}

bool IsIpv6(const WireRule& rule) { return rule.ethertype == kEtherTypeIpv6; }

bool HasIpv4Addresses(const WireRule& rule) {
  return rule.src_ip_mask != 0 || rule.dst_ip_mask != 0;
}

bool HasIpv6Addresses(const WireRule& rule) {
  return rule.ipv6.src_mask != kAnyIpv6 || rule.ipv6.dst_mask != kAnyIpv6;
}

// With these the EtherType says nothing more.
bool HasIpFields(const WireRule& rule) {
  return HasIpv4Addresses(rule) || HasIpv6Addresses(rule) || rule.protocol || rule.src_port ||
         rule.dst_port;
}

// Of fields that only packets of one version have, under the EtherType of another or none.
bool MixesVersions(const WireRule& rule) {
  if (IsIpv6(rule)) return HasIpv4Addresses(rule);
  return HasIpv6Addresses(rule) ||
         (rule.ethertype && *rule.ethertype != kEtherTypeIpv4 && HasIpFields(rule));
}

void Append(std::string* to, const char* between, const std::string& what) {
  absl::StrAppend(to, to->empty() ? "" : between, what);
}

std::string MaskedMac(const char* field, const MacAddress& mask) {
  return mask == kWholeMac ? field : absl::StrCat("(", field, " & ", MacText(mask), ")");
}

// Joins the parts of a concatenation.
class Concatenation {
 public:
  explicit Concatenation(RuleText& text) : text_(text) {}

  void AddMac(const char* field, const MacAddress& mac, const MacAddress& mask) {
    Add("ether_addr", MaskedMac(field, mask), MacText(mac));
  }

  void AddIp(const char* field, uint32_t ip, uint32_t mask) {
    if (mask == 0) return;
    Add("ipv4_addr",
        mask == kWholeIp ? field : absl::StrCat("(", field, " & ", IpText(mask), ")"), IpText(ip));
  }

  void AddIpv6(const char* field, const Ipv6Address& ip, const Ipv6Address& mask) {
    if (mask == kAnyIpv6) return;
    Ipv6Address whole;
    whole.fill(0xff);
    Add("ipv6_addr",
        mask == whole ? field : absl::StrCat("(", field, " & ", Ipv6Text(mask), ")"),
        Ipv6Text(ip));
  }

  void AddPort(const char* field, std::optional<uint16_t> port, uint16_t mask) {
    if (!port) return;
    Add("inet_service",
        mask == kWholePort ? field : absl::StrCat("(", field, " & ", mask, ")"),
        absl::StrCat(*port));
  }

 private:
  void Add(const char* type, const std::string& key, const std::string& value) {
    Append(&text_.types, " . ", type);
    Append(&text_.key, " . ", key);
    Append(&text_.element, " . ", value);
  }

  RuleText& text_;
};

std::string GuardOf(const WireRule& rule) {
  std::string guard;
  if (rule.vlan == 0) guard = "ether type != 8021q ether type != 8021ad";
  if (rule.vlan.value_or(0) != 0) guard = absl::StrCat("vlan id ", *rule.vlan);
  if (rule.src_mac_mask != kAnyMac) {
    Append(&guard, " ", absl::StrCat(MaskedMac("ether saddr", rule.src_mac_mask), " ",
                                     MacText(rule.src_mac)));
  }
  if (rule.ethertype) {
    Append(&guard, " ", absl::StrCat("meta protocol 0x", absl::Hex(*rule.ethertype)));
  }
  if (rule.protocol) {
    Append(&guard, " ", absl::StrCat(IsIpv6(rule) ? "ip6 nexthdr " : "ip protocol ",
                                     static_cast<int>(*rule.protocol)));
  }
  return guard;
}

// Behind an IPv6 header by their place: nftables has no ports where its length is not the frame's,
// and cards do not look.
std::string Ipv6Port(const char* place, std::optional<uint16_t> port, uint16_t mask) {
  return port ? absl::StrCat(place, " & ", mask, " == ", *port) : "";
}

// As on a card: no fragment has ports, the first included (MF or an offset is set). One of IPv6
// says so in its next header.
std::string TailOf(const WireRule& rule) {
  if (!rule.src_port && !rule.dst_port) return "";
  if (!IsIpv6(rule)) return "ip frag-off & 0x3fff == 0";
  std::string tail = Ipv6Port("@nh,320,16", rule.src_port, rule.src_port_mask);
  if (rule.dst_port) Append(&tail, " ", Ipv6Port("@nh,336,16", rule.dst_port, rule.dst_port_mask));
  return tail;
}

}  // namespace

absl::StatusOr<WireRule> Normalise(const WireRule& rule) {
  if (rule.everything) return WireRule{.everything = true, .dont_trap = rule.dont_trap};
  if (rule.all_multicast) {
    return WireRule{.dont_trap = rule.dont_trap, .dst_mac = kGroupBit, .dst_mac_mask = kGroupBit};
  }
  const bool has_ports = rule.src_port || rule.dst_port;
  if (has_ports && rule.protocol != IPPROTO_TCP && rule.protocol != IPPROTO_UDP) {
    return absl::InvalidArgumentError("wire rule: ports need protocol TCP or UDP");
  }
  if (MixesVersions(rule)) {
    return absl::InvalidArgumentError("wire rule: IP fields under another EtherType");
  }
  if (rule.vlan && *rule.vlan > 4095) {
    return absl::InvalidArgumentError(
        absl::StrCat("wire rule: VLAN id ", *rule.vlan, " asked, 0 to 4095 offered"));
  }
  WireRule result = rule;
  result.dst_mac = Masked(rule.dst_mac, rule.dst_mac_mask);
  result.src_mac = Masked(rule.src_mac, rule.src_mac_mask);
  result.dst_ip = rule.dst_ip & rule.dst_ip_mask;
  result.src_ip = rule.src_ip & rule.src_ip_mask;
  result.ipv6.dst = Masked(rule.ipv6.dst, rule.ipv6.dst_mask);
  result.ipv6.src = Masked(rule.ipv6.src, rule.ipv6.src_mask);
  if (rule.src_port) result.src_port = *rule.src_port & rule.src_port_mask;
  if (rule.dst_port) result.dst_port = *rule.dst_port & rule.dst_port_mask;
  if (HasIpFields(rule) && !IsIpv6(rule)) result.ethertype.reset();
  WireRule matches_all{.dont_trap = rule.dont_trap};
  if (result == matches_all) result.everything = true;
  return result;
}

RuleText ToText(const WireRule& rule) {
  RuleText text;
  text.guard = GuardOf(rule);
  Concatenation parts(text);
  if (rule.dst_mac_mask != kAnyMac) parts.AddMac("ether daddr", rule.dst_mac, rule.dst_mac_mask);
  parts.AddIp("ip saddr", rule.src_ip, rule.src_ip_mask);
  parts.AddIp("ip daddr", rule.dst_ip, rule.dst_ip_mask);
  parts.AddIpv6("ip6 saddr", rule.ipv6.src, rule.ipv6.src_mask);
  parts.AddIpv6("ip6 daddr", rule.ipv6.dst, rule.ipv6.dst_mask);
  if (!IsIpv6(rule)) {
    parts.AddPort("th sport", rule.src_port, rule.src_port_mask);
    parts.AddPort("th dport", rule.dst_port, rule.dst_port_mask);
  }
  // Nothing compared: no bit of an address, which is a key that always has the same value.
  if (text.key.empty()) parts.AddMac("ether daddr", kAnyMac, kAnyMac);
  text.tail = TailOf(rule);
  return text;
}

}  // namespace xtreme::connectx
