// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/wire_rule.h"

#include <cerrno>
#include <limits>
#include <optional>

namespace xtreme::connectx {
namespace {

constexpr uint16_t kVlanIdMask = 0xfff;

// False: a mask that is neither nothing nor everything.
template <typename T>
bool Exactly(T value, T mask, std::optional<T>* match) {
  if (mask == 0) return true;
  *match = value;
  return mask == std::numeric_limits<T>::max();
}

// Ports are matched bit by bit.
void Port(uint16_t value, uint16_t mask, std::optional<uint16_t>* match, uint16_t* match_mask) {
  if (mask == 0) return;
  *match = value & mask;
  *match_mask = mask;
}

}  // namespace

int ToWireRule(const FlowRequest& request, WireRule* rule) {
  *rule = {};
  rule->everything =
      request.type == IBV_FLOW_ATTR_ALL_DEFAULT || request.type == IBV_FLOW_ATTR_SNIFFER;
  rule->all_multicast = request.type == IBV_FLOW_ATTR_MC_DEFAULT;
  rule->dont_trap = request.dont_trap || request.type == IBV_FLOW_ATTR_SNIFFER;
  if (request.type != IBV_FLOW_ATTR_NORMAL) return 0;
  const FlowFields& value = request.value;
  const FlowFields& mask = request.mask;
  rule->dst_mac = value.destination_mac;
  rule->dst_mac_mask = mask.destination_mac;
  rule->src_mac = value.source_mac;
  rule->src_mac_mask = mask.source_mac;
  for (size_t i = 0; i < rule->dst_mac.size(); ++i) {
    rule->dst_mac[i] &= rule->dst_mac_mask[i];
    rule->src_mac[i] &= rule->src_mac_mask[i];
  }
  rule->src_ip = value.source_ip & mask.source_ip;
  rule->src_ip_mask = mask.source_ip;
  rule->dst_ip = value.destination_ip & mask.destination_ip;
  rule->dst_ip_mask = mask.destination_ip;
  rule->ipv6 = {.src = value.source_ipv6,
                .src_mask = mask.source_ipv6,
                .dst = value.destination_ipv6,
                .dst_mask = mask.destination_ipv6};
  if (mask.vlan_tci != 0) {
    if ((mask.vlan_tci & kVlanIdMask) != kVlanIdMask) return EOPNOTSUPP;
    // Id 0 is "priority tagged" to a card and "untagged" to a wire: the wire takes both.
    if ((value.vlan_tci & kVlanIdMask) != 0) rule->vlan = value.vlan_tci & kVlanIdMask;
  }
  const bool expressible = Exactly(value.ether_type, mask.ether_type, &rule->ethertype) &&
                           Exactly(value.ip_protocol, mask.ip_protocol, &rule->protocol);
  Port(value.source_port, mask.source_port, &rule->src_port, &rule->src_port_mask);
  Port(value.destination_port, mask.destination_port, &rule->dst_port, &rule->dst_port_mask);
  return expressible ? 0 : EOPNOTSUPP;
}

}  // namespace xtreme::connectx
