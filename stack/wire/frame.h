// SPDX-License-Identifier: Apache-2.0
//
// The receive fast path: from a received frame to the UDP datagram in it, in one pass.
//
// `ParseUdpFrame` answers the plain frame (no VLAN, no options, no fragment, checksums verified by
// the NIC) inline with one chain of compares; every other goes to `ParseUdpFrameInFull`, which
// decides exactly as the one-header views do and which the plain case must agree with. Nothing past
// `length_bytes` is read. Offsets and lengths in bytes, addresses and ports in host order.
#ifndef XTREME_STACK_WIRE_FRAME_H_
#define XTREME_STACK_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/base/counters.h"
#include "stack/wire/address.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"

namespace xtreme::wire {

// What the NIC says of the frame's checksums; bits. What it did not verify, software does.
enum ChecksumVerdict : uint8_t {
  kNoChecksumVerified = 0,
  kIpChecksumVerified = 1,
  kUdpChecksumVerified = 2,
  kTcpChecksumVerified = kUdpChecksumVerified,  // the NIC says it of whatever stands over IP
  kAllChecksumsVerified = 3,
};

// What a frame is. All but kUdp and kTcp are reasons not to deliver it; those of the second group
// may be somebody else's: ARP, ICMP, a fragment to be reassembled.
enum class FrameVerdict : uint8_t {
  kUdp,
  kTcp,
  kTruncated,
  kStackedVlan,
  kNoEtherType,
  kIpVersion,
  kIpHeaderLength,
  kIpTotalLength,
  kIpChecksum,
  kFragmentEnd,
  kUdpLength,
  kUdpChecksum,
  kTcpTruncated,
  kTcpDataOffset,
  kTcpChecksum,
  // Well-formed so far, but not a whole UDP datagram, or TCP segment, whichever was looked for.
  kNotIpv4,
  kNotUdp,
  kNotTcp,
  kFragment,
  kCount,
};

base::CounterName DescribeReason(FrameVerdict verdict);

// How many frames got each verdict.
using FrameCounters = base::ReasonCounters<FrameVerdict>;

// Between whom, and on which VLAN, a datagram was received: what it is demultiplexed by.
struct UdpFlow {
  Ipv4Address destination;
  Ipv4Address source;
  uint16_t destination_port = 0;
  uint16_t source_port = 0;
  uint16_t vlan_id = 0;  // 0: none, an untagged frame or one with a priority only

  friend constexpr bool operator==(const UdpFlow&, const UdpFlow&) = default;
};

struct UdpFrame {
  // No tag can say this: VLAN 4095 is reserved. IEEE 802.1Q table 9-2.
  static constexpr uint16_t kNoVlan = 0xFFFF;

  UdpFlow flow;
  uint16_t payload_bytes = 0;
  uint8_t payload_offset = 0;  // from the frame's first byte
  // Where the IPv4 header begins. Set, as the tag, also when the verdict is kFragment or kNotUdp.
  uint8_t ip_offset = 0;
  uint16_t vlan_tci = kNoVlan;  // tag control information, or kNoVlan

  bool tagged() const { return vlan_tci != kNoVlan; }
  VlanTag vlan() const { return VlanTag::FromTci(vlan_tci); }

  // For a tag that the NIC stripped from the frame.
  void SetTag(uint16_t tci) {
    vlan_tci = tci;
    flow.vlan_id = VlanTag::FromTci(tci).id;
  }

  friend constexpr bool operator==(const UdpFrame&, const UdpFrame&) = default;
};

// Any frame. `frame` has `length_bytes`, at most 65,535, readable bytes; `verified` is a
// ChecksumVerdict. Fills `udp` whole when the verdict is kUdp.
FrameVerdict ParseUdpFrameInFull(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                 UdpFrame* udp);

// Where a plain frame has what: no VLAN, no options.
inline constexpr size_t kPlainUdpOffset = kEthernetHeaderBytes + kIpv4MinHeaderBytes;
inline constexpr size_t kPlainPayloadOffset = kPlainUdpOffset + kUdpHeaderBytes;
// Source and destination, eight bytes; the ports stand at kPlainUdpOffset.
inline constexpr size_t kPlainAddressesOffset = kEthernetHeaderBytes + 12;

// Who sent a plain datagram, by its headers, which stand before its `payload`.
inline Endpoint PlainUdpSource(const uint8_t* payload) {
  const uint8_t* const frame = payload - kPlainPayloadOffset;
  return {Ipv4Address::Load(frame + kPlainAddressesOffset),
          base::LoadBe16(frame + kPlainUdpOffset)};
}

// Whether a frame whose checksums are good is a plain datagram, and its payload's length.
inline bool IsPlainUdp(const uint8_t* frame, size_t length_bytes, uint32_t* payload_bytes) {
  // EtherType, version and header length; flags, fragment offset and protocol.
  constexpr uint32_t kHeadMask = base::HostToBigEndian(uint32_t{0xFFFFFF00});
  constexpr uint32_t kHead = base::HostToBigEndian(uint32_t{kEtherTypeIpv4} << 16 | 0x4500);
  constexpr uint32_t kWholeMask = base::HostToBigEndian(
      uint32_t{kIpv4MoreFragments | kIpv4FragmentOffsetMask} << 16 | 0xFF);
  constexpr uint32_t kWhole = base::HostToBigEndian(uint32_t{kIpProtocolUdp});
  const uint8_t* ip = frame + kEthernetHeaderBytes;
  if (length_bytes < kPlainPayloadOffset ||
      (base::LoadNative<uint32_t>(frame + 12) & kHeadMask) != kHead ||
      (base::LoadNative<uint32_t>(ip + 6) & kWholeMask) != kWhole) [[unlikely]] {
    return false;
  }
  const uint32_t total_bytes = base::LoadBe16(ip + 2);
  const uint32_t udp_bytes = base::LoadBe16(frame + kPlainUdpOffset + 4);
  // A UDP length below its header's wraps to a payload that no total length holds.
  *payload_bytes = udp_bytes - static_cast<uint32_t>(kUdpHeaderBytes);
  return total_bytes <= length_bytes - kEthernetHeaderBytes &&
         uint64_t{*payload_bytes} + (kIpv4MinHeaderBytes + kUdpHeaderBytes) <= total_bytes;
}

// As ParseUdpFrameInFull, and fast for the plain frame.
inline FrameVerdict ParseUdpFrame(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                  UdpFrame* udp) {
  uint32_t payload_bytes = 0;
  if (verified != kAllChecksumsVerified || !IsPlainUdp(frame, length_bytes, &payload_bytes))
      [[unlikely]] {
    return ParseUdpFrameInFull(frame, length_bytes, verified, udp);
  }
  const uint64_t addresses = base::LoadBe64(frame + kPlainAddressesOffset);
  const uint32_t ports = base::LoadBe32(frame + kPlainUdpOffset);
  udp->flow.destination = Ipv4Address(static_cast<uint32_t>(addresses));
  udp->flow.source = Ipv4Address(static_cast<uint32_t>(addresses >> 32));
  udp->flow.destination_port = static_cast<uint16_t>(ports);
  udp->flow.source_port = static_cast<uint16_t>(ports >> 16);
  udp->flow.vlan_id = 0;
  udp->payload_bytes = static_cast<uint16_t>(payload_bytes);
  udp->payload_offset = kPlainPayloadOffset;
  udp->ip_offset = kEthernetHeaderBytes;
  udp->vlan_tci = UdpFrame::kNoVlan;
  return FrameVerdict::kUdp;
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_FRAME_H_
