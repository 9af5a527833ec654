// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/flow_specs.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace xtreme::connectx {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeIpv6 = 0x86dd;

// Values and masks of one specification. A filter that an older caller sent short is zero behind.
template <typename Filter>
struct Halves {
  Filter value{};
  Filter mask{};
};

template <typename Filter>
std::optional<Halves<Filter>> Split(std::span<const std::byte> filters, size_t shortest) {
  const size_t half = filters.size() / 2;
  if (filters.size() % 2 != 0 || half < shortest || half > sizeof(Filter)) return std::nullopt;
  Halves<Filter> halves;
  std::memcpy(&halves.value, filters.data(), half);
  std::memcpy(&halves.mask, filters.data() + half, half);
  return halves;
}

// Sets one match; EINVAL when an earlier specification asked for anything but the same, of the same
// bits (the kernel's set_proto and is_valid_ethertype).
template <typename T>
int Require(T* value, T* mask, T wanted_value, T wanted_mask) {
  if (wanted_mask == 0) return 0;
  if (*mask != 0) return *mask == wanted_mask && *value == wanted_value ? 0 : EINVAL;
  *value = wanted_value;
  *mask = wanted_mask;
  return 0;
}

int ParseEthernet(std::span<const std::byte> filters, FlowRequest* request) {
  const auto halves = Split<ib_uverbs_flow_eth_filter>(filters, sizeof(ib_uverbs_flow_eth_filter));
  if (!halves) return EINVAL;
  const auto& [value, mask] = *halves;
  std::copy_n(value.dst_mac, 6, request->value.destination_mac.begin());
  std::copy_n(mask.dst_mac, 6, request->mask.destination_mac.begin());
  std::copy_n(value.src_mac, 6, request->value.source_mac.begin());
  std::copy_n(mask.src_mac, 6, request->mask.source_mac.begin());
  request->value.vlan_tci = be16toh(value.vlan_tag);
  request->mask.vlan_tci = be16toh(mask.vlan_tag);
  return Require<uint16_t>(&request->value.ether_type, &request->mask.ether_type,
                           be16toh(value.ether_type), be16toh(mask.ether_type));
}

int ParseIpv4(std::span<const std::byte> filters, FlowRequest* request) {
  constexpr size_t kAddressesOnly = 8;
  const auto halves = Split<ib_uverbs_flow_ipv4_filter>(filters, kAddressesOnly);
  if (!halves) return EINVAL;
  const auto& [value, mask] = *halves;
  if (mask.tos != 0 || mask.ttl != 0 || mask.flags != 0) return EOPNOTSUPP;
  request->value.source_ip = be32toh(value.src_ip);
  request->mask.source_ip = be32toh(mask.src_ip);
  request->value.destination_ip = be32toh(value.dst_ip);
  request->mask.destination_ip = be32toh(mask.dst_ip);
  const int error = Require<uint16_t>(&request->value.ether_type, &request->mask.ether_type,
                                      kEtherTypeIpv4, 0xffff);
  if (error != 0) return error;
  return Require<uint8_t>(&request->value.ip_protocol, &request->mask.ip_protocol, value.proto,
                          mask.proto);
}

int ParseIpv6(std::span<const std::byte> filters, FlowRequest* request) {
  const auto halves =
      Split<ib_uverbs_flow_ipv6_filter>(filters, sizeof(ib_uverbs_flow_ipv6_filter));
  if (!halves) return EINVAL;
  const auto& [value, mask] = *halves;
  if (mask.flow_label != 0 || mask.traffic_class != 0 || mask.hop_limit != 0) return EOPNOTSUPP;
  std::copy_n(value.src_ip, 16, request->value.source_ipv6.begin());
  std::copy_n(mask.src_ip, 16, request->mask.source_ipv6.begin());
  std::copy_n(value.dst_ip, 16, request->value.destination_ipv6.begin());
  std::copy_n(mask.dst_ip, 16, request->mask.destination_ipv6.begin());
  const int error = Require<uint16_t>(&request->value.ether_type, &request->mask.ether_type,
                                      kEtherTypeIpv6, 0xffff);
  if (error != 0) return error;
  return Require<uint8_t>(&request->value.ip_protocol, &request->mask.ip_protocol, value.next_hdr,
                          mask.next_hdr);
}

int ParsePorts(std::span<const std::byte> filters, uint8_t protocol, FlowRequest* request) {
  const auto halves =
      Split<ib_uverbs_flow_tcp_udp_filter>(filters, sizeof(ib_uverbs_flow_tcp_udp_filter));
  if (!halves) return EINVAL;
  const auto& [value, mask] = *halves;
  request->value.source_port = be16toh(value.src_port);
  request->mask.source_port = be16toh(mask.src_port);
  request->value.destination_port = be16toh(value.dst_port);
  request->mask.destination_port = be16toh(mask.dst_port);
  return Require<uint8_t>(&request->value.ip_protocol, &request->mask.ip_protocol, protocol, 0xff);
}

// What may be said once.
int ParseWord(std::span<const std::byte> body, std::optional<uint32_t>* field) {
  uint32_t word;
  if (body.size() < sizeof(word) || field->has_value()) return EINVAL;
  std::memcpy(&word, body.data(), sizeof(word));
  *field = word;
  return 0;
}

int ParseDrop(std::span<const std::byte> body, FlowRequest* request) {
  if (!body.empty()) return EINVAL;
  request->drop = true;
  return 0;
}

int ParseSpec(uint32_t type, std::span<const std::byte> body, FlowRequest* request) {
  switch (type) {
    case IBV_FLOW_SPEC_ETH: return ParseEthernet(body, request);
    case IBV_FLOW_SPEC_IPV4: return ParseIpv4(body, request);
    case IBV_FLOW_SPEC_IPV6: return ParseIpv6(body, request);
    case IBV_FLOW_SPEC_TCP: return ParsePorts(body, IPPROTO_TCP, request);
    case IBV_FLOW_SPEC_UDP: return ParsePorts(body, IPPROTO_UDP, request);
    case IBV_FLOW_SPEC_ACTION_TAG: return ParseWord(body, &request->tag);
    case IBV_FLOW_SPEC_ACTION_DROP: return ParseDrop(body, request);
    case IBV_FLOW_SPEC_ACTION_COUNT: return ParseWord(body, &request->counter);
    default: return EOPNOTSUPP;
  }
}

}  // namespace

int ParseFlowSpecs(std::span<const std::byte> specs, uint8_t count, FlowRequest* request) {
  for (int i = 0; i < count; ++i) {
    ib_uverbs_flow_spec_hdr header;
    if (specs.size() < sizeof(header)) return EINVAL;
    std::memcpy(&header, specs.data(), sizeof(header));
    if (header.size < sizeof(header) || header.size > specs.size()) return EINVAL;
    const auto body = specs.subspan(sizeof(header), header.size - sizeof(header));
    if (i == 0) request->ethernet_first = header.type == IBV_FLOW_SPEC_ETH;
    if (const int error = ParseSpec(header.type, body, request); error != 0) return error;
    specs = specs.subspan(header.size);
  }
  return specs.empty() ? 0 : EINVAL;
}

}  // namespace xtreme::connectx
