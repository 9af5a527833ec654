// SPDX-License-Identifier: Apache-2.0
//
// Ethernet frames for tests of the network interface, written out field by field, and a judge of
// checksums that is no part of what it judges.
//
// Addresses and ports in host byte order; frames as on the wire.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_IP_FRAME_H_
#define XTREME_TOOLS_CONNECTX_WIRE_IP_FRAME_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct UdpFrame {
  MacAddress dst_mac{};
  MacAddress src_mac{};
  std::optional<uint16_t> vlan;
  uint32_t src_ip = 0;
  uint32_t dst_ip = 0;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  size_t payload_bytes = 18;
  uint16_t fragment = 0;  // Flags and offset; 0x2000 says that more fragments follow.
  bool spoil_checksum = false;
};

std::vector<uint8_t> Encode(const UdpFrame& frame);

// What a frame says of itself; empty unless it is IPv4, perhaps with one VLAN tag.
struct IpFacts {
  std::optional<uint16_t> vlan;
  uint8_t protocol = 0;
  uint16_t dst_port = 0;
  size_t ip_bytes = 0;       // Length of the packet, header included.
  size_t payload_bytes = 0;  // Behind the TCP or UDP header.
  bool ip_checksum_right = false;
  bool l4_checksum_right = false;
};

std::optional<IpFacts> Inspect(std::span<const uint8_t> frame);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_IP_FRAME_H_
