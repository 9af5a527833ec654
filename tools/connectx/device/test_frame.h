// SPDX-License-Identifier: Apache-2.0
//
// Frames for tests, and the checksum of RFC 1071 word by word: another way than the device's.
//
// Units: bytes; numbers in host byte order. Thread: none.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_TEST_FRAME_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_TEST_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

using Bytes = std::vector<uint8_t>;

// What a test frame is made of; the defaults are a UDP datagram over IPv4 with right checksums.
struct FrameSpec {
  MacAddress destination_mac = {0x02, 0, 0, 0, 0, 0x01};
  MacAddress source_mac = {0x02, 0, 0, 0, 0, 0x02};
  std::vector<uint32_t> vlan_tags;  // TPID in the upper half, TCI in the lower.
  uint32_t source_ip = 0x0a000002;  // 10.0.0.2
  uint32_t destination_ip = 0x0a000001;
  uint8_t protocol = 17;
  uint16_t fragment = 0;    // Flags and offset field.
  size_t option_bytes = 0;  // Of IP: a multiple of 4, NOPs.
  uint16_t source_port = 4000;
  uint16_t destination_port = 5000;
  uint8_t tcp_flags = 0x18;  // PSH, ACK.
  std::string_view payload = "a payload of some thirty bytes";
  bool checksums = true;  // Else the fields hold 0xdead.
};

Bytes MakeFrame(const FrameSpec& spec);
Bytes MakeIpv6Frame(const FrameSpec& spec);

// Where the IP header of a MakeFrame starts, and its L4 header.
size_t IpOffset(const FrameSpec& spec);
size_t L4Offset(const FrameSpec& spec);

// The ones' complement of the sum of big-endian words.
uint16_t InternetChecksum(std::span<const uint8_t> bytes, uint32_t sum = 0);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_TEST_FRAME_H_
