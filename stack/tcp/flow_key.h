// SPDX-License-Identifier: Apache-2.0
//
// FlowKey: what tells the connections of a host apart, in sixteen bytes: both addresses, both ports
// and the VLAN. As this host sees them, so a received segment's destination is local.
#ifndef XTREME_STACK_TCP_FLOW_KEY_H_
#define XTREME_STACK_TCP_FLOW_KEY_H_

#include <cstdint>

#include "stack/base/small_hash_map.h"
#include "stack/wire/address.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {

struct FlowKey {
  uint64_t addresses = 0;  // local, remote
  uint64_t ports = 0;      // VLAN, local, remote

  static constexpr FlowKey Of(const wire::Endpoint& local, const wire::Endpoint& remote,
                              uint16_t vlan_id) {
    return {uint64_t{local.address.value()} << 32 | remote.address.value(),
            uint64_t{vlan_id} << 32 | uint64_t{local.port} << 16 | remote.port};
  }
  // Of a received segment.
  static constexpr FlowKey Of(const wire::TcpFlow& flow) {
    return {
        uint64_t{flow.destination.value()} << 32 | flow.source.value(),
        uint64_t{flow.vlan_id} << 32 | uint64_t{flow.destination_port} << 16 | flow.source_port};
  }

  constexpr wire::Endpoint local() const {
    return {wire::Ipv4Address(static_cast<uint32_t>(addresses >> 32)),
            static_cast<uint16_t>(ports >> 16)};
  }
  constexpr wire::Endpoint remote() const {
    return {wire::Ipv4Address(static_cast<uint32_t>(addresses)), static_cast<uint16_t>(ports)};
  }
  constexpr uint16_t vlan_id() const { return static_cast<uint16_t>(ports >> 32); }

  // For tables that only this host fills; see Demux for one that others can.
  constexpr uint64_t Hash() const { return base::MixBits(base::MixBits(addresses) ^ ports); }

  friend constexpr bool operator==(const FlowKey&, const FlowKey&) = default;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_FLOW_KEY_H_
