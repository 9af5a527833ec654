// SPDX-License-Identifier: Apache-2.0
//
// FlowKey: what tells the connections of a host apart, in sixteen bytes: both addresses, both ports
// and the VLAN. As this host sees them, so a received segment's destination is local.
//
// The invariant: its words are what a received frame has, byte for byte, so that the key of one is
// read and not put together.
#ifndef XTREME_STACK_TCP_FLOW_KEY_H_
#define XTREME_STACK_TCP_FLOW_KEY_H_

#include <bit>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/base/small_hash_map.h"
#include "stack/wire/address.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {

struct FlowKey {
  uint64_t addresses = 0;  // remote, local; as loaded from a frame
  uint64_t ports = 0;      // the same, and the VLAN in the upper half

  static constexpr FlowKey Of(const wire::Endpoint& local, const wire::Endpoint& remote,
                              uint16_t vlan_id) {
    return Make(local.address, local.port, remote.address, remote.port, vlan_id);
  }
  // Of a received segment.
  static constexpr FlowKey Of(const wire::TcpFlow& flow) {
    return Make(flow.destination, flow.destination_port, flow.source, flow.source_port,
                flow.vlan_id);
  }
  // Of one in a frame without a tag, whose addresses and ports were loaded as they stand.
  static constexpr FlowKey OfUntagged(uint64_t addresses, uint32_t ports) {
    return {addresses, ports};
  }

  constexpr wire::Endpoint local() const {
    return {AddressOf(addresses >> 32), PortOf(ports >> 16)};
  }
  constexpr wire::Endpoint remote() const { return {AddressOf(addresses), PortOf(ports)}; }
  constexpr uint16_t vlan_id() const { return static_cast<uint16_t>(ports >> 32); }

  // Where a cache has it, whose places peers may well guess: those that meet forget each other.
  uint32_t Place(uint32_t places) const {
#if defined(__SSE4_2__)
    // It takes the ports; the VLAN above them is not looked at.
    const uint64_t mixed = __builtin_ia32_crc32di(ports, addresses) >> 3;
#else
    const uint64_t mixed = Hash() >> 3;
#endif
    return static_cast<uint32_t>(mixed % places);
  }

  // For tables that only this host fills; see Demux for one that others can.
  constexpr uint64_t Hash() const { return base::MixBits(base::MixBits(addresses) ^ ports); }

  friend constexpr bool operator==(const FlowKey&, const FlowKey&) = default;

 private:
  static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");

  static constexpr FlowKey Make(wire::Ipv4Address local, uint16_t local_port,
                                wire::Ipv4Address remote, uint16_t remote_port, uint16_t vlan_id) {
    using base::HostToBigEndian;
    return {uint64_t{HostToBigEndian(local.value())} << 32 | HostToBigEndian(remote.value()),
            uint64_t{vlan_id} << 32 | uint64_t{HostToBigEndian(local_port)} << 16 |
                HostToBigEndian(remote_port)};
  }
  static constexpr wire::Ipv4Address AddressOf(uint64_t lowest) {
    return wire::Ipv4Address(base::HostToBigEndian(static_cast<uint32_t>(lowest)));
  }
  static constexpr uint16_t PortOf(uint64_t lowest) {
    return base::HostToBigEndian(static_cast<uint16_t>(lowest));
  }
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_FLOW_KEY_H_
