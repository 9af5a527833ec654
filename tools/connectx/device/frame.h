// SPDX-License-Identifier: Apache-2.0
//
// What a card's parser sees in a frame, and its checksum engines: a parser and a checksum of the
// device's own, so that a misreading in the stack under test is not repeated here.
//
// Invariant: any bytes may be parsed; nothing beyond them is read.
// Units: bytes; numbers in host byte order. Thread: none, pure functions.
// Spec: IEEE 802.1Q, RFC 791, RFC 1071, RFC 768, RFC 9293, RFC 8200.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_FRAME_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

inline constexpr size_t kMinFrameBytes = 60;  // Without FCS; shorter ones are padded by the MAC.

struct Frame {
  enum class L3 : uint8_t { kNone, kIpv4, kIpv6 };
  enum class L4 : uint8_t { kNone, kTcp, kUdp };

  std::span<const uint8_t> bytes;

  uint16_t ether_type = 0;  // Behind the tags.
  uint16_t vlan_tci = 0;    // Of the outer tag.
  uint8_t vlan_tags = 0;    // 0 to 2.

  L3 l3 = L3::kNone;
  bool l3_whole = false;  // Lengths are consistent: the packet lies in the frame.
  bool fragment = false;
  uint8_t protocol = 0;
  uint16_t l3_offset = 0;
  uint16_t l3_header_bytes = 0;
  uint32_t source_ip = 0;  // IPv4 only.
  uint32_t destination_ip = 0;

  // kNone for every fragment, and where the header is cut off; there whatever IP says of lengths.
  L4 l4 = L4::kNone;
  uint16_t l4_offset = 0;
  uint16_t l4_bytes = 0;  // Header and payload, as IP (TCP) or UDP itself says; TCP's is the
                          // frame's where the packet does not lie in it.
  uint16_t source_port = 0;
  uint16_t destination_port = 0;

  // The tag that VLAN rules match and that is stripped: a service tag is neither.
  bool StartsWithCustomerTag() const;
};

// Never fails: what cannot be read is absent.
Frame ParseFrame(std::span<const uint8_t> bytes);

struct ChecksumVerdict {
  bool l3_ok = false;  // IPv4: lengths and header checksum. IPv6: lengths.
  bool l4_ok = false;  // TCP or UDP that is no fragment and sums up; a UDP checksum of 0 is right.
};
ChecksumVerdict VerifyChecksums(const Frame& frame);

// Writes the checksums a send asks for, computed from scratch; leaves alone what is not there (no
// IPv4 header, a fragment's L4). A UDP checksum that comes out as 0 is sent as 0xffff.
void FillChecksums(std::span<uint8_t> bytes, bool l3, bool l4);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_FRAME_H_
