// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/rule.h"

#include <netinet/in.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/base/byte_order.h"
#include "stack/wire/address_text.h"
#include "xtreme/mlx5/device.h"
#include "xtreme/mlx5/verbs_handle.h"

namespace xtreme::mlx5 {
namespace {

using base::HostToBigEndian;

constexpr uint32_t kMaxTag = (1u << 24) - 1;
constexpr uint16_t kVlanIdMask = 0x0fff;

class VerbsRule final : public nic::Rule {
 public:
  explicit VerbsRule(VerbsHandle<ibv_flow> flow) : flow_(std::move(flow)) {}

 private:
  VerbsHandle<ibv_flow> flow_;
};

bool IsUdpOrTcp(const nic::FlowMatch& match) {
  return match.protocol == IPPROTO_UDP || match.protocol == IPPROTO_TCP;
}

absl::Status Validate(const nic::FlowRule& rule) {
  const nic::FlowMatch& match = rule.match;
  const bool ports = match.source_port.has_value() || match.destination_port.has_value();
  if (match.protocol.has_value() && !IsUdpOrTcp(match)) {
    return absl::InvalidArgumentError(absl::StrCat("add rule ", DescribeRule(rule), ": protocol ",
                                                   *match.protocol,
                                                   " asked, UDP and TCP can be matched"));
  }
  if (ports && !match.protocol.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("add rule ", DescribeRule(rule), ": ports asked without UDP or TCP"));
  }
  if (rule.tag > kMaxTag) {
    return absl::InvalidArgumentError(absl::StrCat("add rule ", DescribeRule(rule), ": tag ",
                                                   rule.tag, " asked, at most ", kMaxTag));
  }
  return absl::OkStatus();
}

// Puts a value to match, or leaves both at 0: anything matches.
template <typename T>
void Match(const std::optional<T>& wanted, T& value, T& mask) {
  if (!wanted.has_value()) return;
  value = HostToBigEndian(*wanted);
  mask = static_cast<T>(~T{0});
}

void Match(const std::optional<wire::Ipv4Address>& wanted, uint32_t& value, uint32_t& mask) {
  if (!wanted.has_value()) return;
  value = HostToBigEndian(wanted->value());
  mask = ~uint32_t{0};
}

std::string EndpointText(const std::optional<wire::Ipv4Address>& address,
                         const std::optional<uint16_t>& port) {
  return absl::StrCat(address.has_value() ? wire::ToString(*address) : "any",
                      port.has_value() ? absl::StrCat(":", *port) : "");
}

}  // namespace

template <typename Spec>
Spec* FlowSpecs::Append(ibv_flow_spec_type type) {
  ibv_flow_attr* const attr = attribute();
  auto* spec = new (bytes_ + attr->size) Spec{};
  spec->type = type;
  spec->size = sizeof(Spec);
  attr->size = static_cast<uint16_t>(attr->size + sizeof(Spec));
  ++attr->num_of_specs;
  return spec;
}

void FlowSpecs::AddEthernet(const nic::FlowMatch& match) {
  auto* spec = Append<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH);
  match.destination_mac.Store(spec->val.dst_mac);
  wire::MacAddress::Broadcast().Store(spec->mask.dst_mac);
  if (!match.vlan_id.has_value()) return;
  spec->val.vlan_tag = HostToBigEndian(*match.vlan_id);
  spec->mask.vlan_tag = HostToBigEndian(kVlanIdMask);
}

void FlowSpecs::AddIpv4(const nic::FlowMatch& match) {
  auto* spec = Append<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
  Match(match.source_ip, spec->val.src_ip, spec->mask.src_ip);
  Match(match.destination_ip, spec->val.dst_ip, spec->mask.dst_ip);
}

void FlowSpecs::AddPorts(const nic::FlowMatch& match) {
  auto* spec = Append<ibv_flow_spec_tcp_udp>(
      match.protocol == IPPROTO_TCP ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP);
  Match(match.source_port, spec->val.src_port, spec->mask.src_port);
  Match(match.destination_port, spec->val.dst_port, spec->mask.dst_port);
  spec->val.dst_port &= HostToBigEndian(match.destination_port_mask);
  spec->mask.dst_port &= HostToBigEndian(match.destination_port_mask);
}

absl::StatusOr<FlowSpecs> FlowSpecs::Create(const nic::FlowRule& rule, uint8_t port) {
  if (absl::Status status = Validate(rule); !status.ok()) return status;
  FlowSpecs specs;
  auto* attr = new (specs.bytes_) ibv_flow_attr{};
  attr->type = IBV_FLOW_ATTR_NORMAL;
  attr->size = sizeof(ibv_flow_attr);
  attr->priority = rule.priority;
  attr->port = port;
  attr->flags = rule.share_with_kernel ? IBV_FLOW_ATTR_FLAGS_DONT_TRAP : 0;
  const nic::FlowMatch& match = rule.match;
  specs.AddEthernet(match);
  if (match.source_ip.has_value() || match.destination_ip.has_value() ||
      match.protocol.has_value()) {
    specs.AddIpv4(match);
  }
  if (match.protocol.has_value()) specs.AddPorts(match);
  if (rule.tag != 0) {
    auto* tag = specs.Append<ibv_flow_spec_action_tag>(IBV_FLOW_SPEC_ACTION_TAG);
    tag->tag_id = rule.tag;
  }
  return specs;
}

std::string DescribeRule(const nic::FlowRule& rule) {
  const nic::FlowMatch& match = rule.match;
  std::string text = absl::StrCat("{to ", wire::ToString(match.destination_mac));
  if (match.vlan_id.has_value()) absl::StrAppend(&text, ", VLAN ", *match.vlan_id);
  if (match.protocol.has_value()) absl::StrAppend(&text, ", protocol ", *match.protocol);
  absl::StrAppend(&text, ", ", EndpointText(match.source_ip, match.source_port), " to ",
                  EndpointText(match.destination_ip, match.destination_port));
  if (match.destination_port_mask != 0xFFFF) {
    absl::StrAppend(&text, " and ", ~match.destination_port_mask & 0xFFFF, " ports more");
  }
  absl::StrAppend(&text, ", priority ", rule.priority);
  if (rule.tag != 0) absl::StrAppend(&text, ", tag ", rule.tag);
  if (rule.share_with_kernel) absl::StrAppend(&text, ", shared with the kernel");
  return text + "}";
}

absl::StatusOr<std::unique_ptr<nic::Rule>> CreateRule(const nic::FlowRule& rule, uint8_t port,
                                                      ibv_qp* qp) {
  absl::StatusOr<FlowSpecs> specs = FlowSpecs::Create(rule, port);
  if (!specs.ok()) return specs.status();
  errno = 0;
  VerbsHandle<ibv_flow> flow(ibv_create_flow(qp, specs->attribute()));
  if (flow != nullptr) return std::make_unique<VerbsRule>(std::move(flow));
  const int error = errno;
  std::string action = absl::StrCat("add rule ", DescribeRule(rule));
  if (error == EEXIST) absl::StrAppend(&action, ": an equal one with another tag stands");
  if (error == ENOMEM || error == ENOSPC) absl::StrAppend(&action, ": the device's table is full");
  if (error == EPERM) absl::StrAppend(&action, ": needs CAP_NET_RAW");
  if (error == EOPNOTSUPP && rule.share_with_kernel) {
    absl::StrAppend(&action, ": the device does not share frames with the kernel");
  }
  return VerbsError(error == ENOSPC ? ENOMEM : error, action);
}

}  // namespace xtreme::mlx5
