// SPDX-License-Identifier: Apache-2.0
//
// Flow rules: a FlowRule as the list of specs that the kernel takes, and as a rule on the device.
//
// One shape for all processes, Ethernet, IPv4, UDP or TCP, each layer present only if something in
// it is matched: the kernel's driver joins rules that are equal, and equal means of one shape too.
// Byte order: host in FlowRule, network in specs. Slow work. Spec: ibv_create_flow(3).

#ifndef XTREME_XTREME_MLX5_RULE_H_
#define XTREME_XTREME_MLX5_RULE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "xtreme/nic/nic.h"

namespace xtreme::mlx5 {

// The attribute and its specs, one behind the other, as ibv_create_flow reads them.
class FlowSpecs {
 public:
  // InvalidArgument: ports without UDP or TCP, another protocol, or a tag of more than 24 bits.
  static absl::StatusOr<FlowSpecs> Create(const nic::FlowRule& rule, uint8_t port);

  ibv_flow_attr* attribute() { return reinterpret_cast<ibv_flow_attr*>(bytes_); }
  const ibv_flow_attr& attribute() const {
    return *reinterpret_cast<const ibv_flow_attr*>(bytes_);
  }

 private:
  FlowSpecs() = default;

  template <typename Spec>
  Spec* Append(ibv_flow_spec_type type);
  void AddEthernet(const nic::FlowMatch& match);
  void AddIpv4(const nic::FlowMatch& match);
  void AddPorts(const nic::FlowMatch& match);

  alignas(8) uint8_t bytes_[sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) +
                            sizeof(ibv_flow_spec_ipv4) + sizeof(ibv_flow_spec_tcp_udp) +
                            sizeof(ibv_flow_spec_action_tag)] = {};
};

// In one line, for messages: "tcp to 10.1.1.1:80 ...".
std::string DescribeRule(const nic::FlowRule& rule);

// Steers to `qp`. AlreadyExists, ResourceExhausted, Unimplemented as nic::Nic::AddRule says;
// PermissionDenied: without CAP_NET_RAW.
absl::StatusOr<std::unique_ptr<nic::Rule>> CreateRule(const nic::FlowRule& rule, uint8_t port,
                                                      ibv_qp* qp);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_RULE_H_
