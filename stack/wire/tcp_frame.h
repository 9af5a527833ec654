// SPDX-License-Identifier: Apache-2.0
//
// The receive path of TCP: from a received frame to the segment in it, in one pass.
//
// `ParsePlainTcpFrame` answers the plain frame (no VLAN, no IP options, no fragment, checksums
// verified by the NIC, no TCP options or timestamps only) inline; every other goes to
// `ParseTcpFrameInFull`, which decides exactly as the one-header views do and which the plain case
// must agree with. Nothing past `length_bytes` is read. Offsets and lengths in bytes, numbers in
// host order.
#ifndef XTREME_STACK_WIRE_TCP_FRAME_H_
#define XTREME_STACK_WIRE_TCP_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/frame.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::wire {

// Between whom, and on which VLAN, a segment was received.
struct TcpFlow {
  Ipv4Address destination;
  Ipv4Address source;
  uint16_t destination_port = 0;
  uint16_t source_port = 0;
  uint16_t vlan_id = 0;  // 0: none, an untagged frame or one with a priority only

  friend constexpr bool operator==(const TcpFlow&, const TcpFlow&) = default;
};

// A header as it was received. Sequence numbers are those of the wire, the window is not scaled.
struct TcpSegment {
  uint32_t sequence = 0;
  uint32_t acknowledgement = 0;
  uint16_t window = 0;
  uint16_t urgent_pointer = 0;
  uint16_t payload_bytes = 0;
  uint8_t flags = 0;  // kTcpFin and so on
  // What was wrong with the options first; what was right is in `options`.
  TcpOptionsError options_error = TcpOptionsError::kNone;
  TcpOptions options;

  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
  // The sequence numbers it takes: payload, SYN and FIN. RFC 9293 section 3.4, SEG.LEN.
  uint32_t SequenceLength() const {
    return payload_bytes + uint32_t{Has(kTcpSyn)} + uint32_t{Has(kTcpFin)};
  }

  friend bool operator==(const TcpSegment&, const TcpSegment&) = default;
};

struct TcpFrame {
  TcpFlow flow;
  TcpSegment segment;
  uint8_t payload_offset = 0;  // from the frame's first byte
  uint8_t ip_offset = 0;       // set, as the tag, also when the verdict is kFragment or kNotTcp
  uint16_t vlan_tci = UdpFrame::kNoVlan;

  bool tagged() const { return vlan_tci != UdpFrame::kNoVlan; }

  // For a tag that the NIC stripped from the frame.
  void SetTag(uint16_t tci) {
    vlan_tci = tci;
    flow.vlan_id = VlanTag::FromTci(tci).id;
  }

  friend bool operator==(const TcpFrame&, const TcpFrame&) = default;
};

// Which of ParseTcpFrame and ParseUdpFrame to try first: a guess from two fields, right for every
// frame without a tag.
inline bool LooksLikeTcp(const uint8_t* frame, size_t length_bytes) {
  constexpr size_t kProtocolOffset = kEthernetHeaderBytes + 9;
  return length_bytes > kProtocolOffset && frame[kProtocolOffset] == kIpProtocolTcp &&
         base::LoadNative<uint16_t>(frame + 12) == base::HostToBigEndian(kEtherTypeIpv4);
}

// Any frame. `frame` has `length_bytes`, at most 65,535, readable bytes; `verified` is a
// ChecksumVerdict. Fills `tcp` whole when the verdict is kTcp. A malformed option is no reason to
// drop a segment: `options_error` names it.
FrameVerdict ParseTcpFrameInFull(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                 TcpFrame* tcp);

// What a frame without tag and IP options that is no fragment, whose checksums are all verified,
// says from the IP lengths on; of at least as many bytes as the three headers have without options.
// False: it is not whole, or has other options, and `tcp` means nothing. Unless `any_options`,
// those of a plain frame alone.
template <bool any_options>
[[gnu::always_inline]] inline bool ReadUntagged(const uint8_t* frame, size_t length_bytes,
                                                TcpFrame* tcp) {
  constexpr size_t kTcpOffset = kEthernetHeaderBytes + kIpv4MinHeaderBytes;
  constexpr size_t kHeadersBytes = kTcpOffset + kTcpMinHeaderBytes;
  const uint8_t* const ip = frame + kEthernetHeaderBytes;
  const uint8_t* const header = frame + kTcpOffset;
  const size_t total_bytes = base::LoadBe16(ip + 2);
  const size_t option_bytes = size_t{4} * (header[12] >> 4) - kTcpMinHeaderBytes;
  const bool known_options =
      any_options ? option_bytes <= kTcpMaxOptionsBytes
                  : option_bytes == 0 || option_bytes == kTcpTimestampsBytes;
  // The largest first: a data offset below 5 wraps to more than any packet has.
  if (total_bytes > length_bytes - kEthernetHeaderBytes || !known_options ||
      total_bytes < kIpv4MinHeaderBytes + kTcpMinHeaderBytes + option_bytes) [[unlikely]] {
    return false;
  }
  if (!any_options && option_bytes != 0 && !BeginsWithTimestamps(header + kTcpMinHeaderBytes))
      [[unlikely]] {
    return false;
  }
  const uint64_t addresses = base::LoadBe64(ip + 12);
  const uint32_t ports = base::LoadBe32(header);
  tcp->flow = {.destination = Ipv4Address(static_cast<uint32_t>(addresses)),
               .source = Ipv4Address(static_cast<uint32_t>(addresses >> 32)),
               .destination_port = static_cast<uint16_t>(ports),
               .source_port = static_cast<uint16_t>(ports >> 16),
               .vlan_id = 0};
  TcpSegment& segment = tcp->segment;
  segment.sequence = base::LoadBe32(header + 4);
  segment.acknowledgement = base::LoadBe32(header + 8);
  segment.flags = header[13];
  segment.window = base::LoadBe16(header + 14);
  segment.urgent_pointer = base::LoadBe16(header + 18);
  segment.payload_bytes =
      static_cast<uint16_t>(total_bytes - kIpv4MinHeaderBytes - kTcpMinHeaderBytes - option_bytes);
  segment.options_error = TcpOptionsError::kNone;
  if (any_options) {
    segment.options_error = segment.options.Parse({header + kTcpMinHeaderBytes, option_bytes});
  } else {
    segment.options.Clear();
  }
  if (!any_options && option_bytes != 0) {
    segment.options.timestamps = {base::LoadBe32(header + kTcpMinHeaderBytes + 4),
                                  base::LoadBe32(header + kTcpMinHeaderBytes + 8)};
  }
  tcp->payload_offset = static_cast<uint8_t>(kHeadersBytes + option_bytes);
  tcp->ip_offset = kEthernetHeaderBytes;
  tcp->vlan_tci = UdpFrame::kNoVlan;
  return true;
}

// Any frame; false: it is not such a one.
template <bool any_options>
[[gnu::always_inline]] inline bool ParseUntagged(const uint8_t* frame, size_t length_bytes,
                                                 TcpFrame* tcp) {
  const uint8_t* const ip = frame + kEthernetHeaderBytes;
  if (length_bytes < kEthernetHeaderBytes + kIpv4MinHeaderBytes + kTcpMinHeaderBytes ||
      base::LoadNative<uint16_t>(frame + 12) != base::HostToBigEndian(kEtherTypeIpv4) ||
      ip[0] != 0x45 || ip[9] != kIpProtocolTcp ||
      (base::LoadNative<uint16_t>(ip + 6) &
       base::HostToBigEndian<uint16_t>(kIpv4MoreFragments | kIpv4FragmentOffsetMask)) != 0)
      [[unlikely]] {
    return false;
  }
  return ReadUntagged<any_options>(frame, length_bytes, tcp);
}

// The same of a plain frame.
[[gnu::always_inline]] inline bool ParsePlainTcpFrame(const uint8_t* frame, size_t length_bytes,
                                                      TcpFrame* tcp) {
  return ParseUntagged<false>(frame, length_bytes, tcp);
}
// And of one with whatever TCP options, as a SYN has them.
bool ParseUntaggedTcpFrame(const uint8_t* frame, size_t length_bytes, TcpFrame* tcp);
// The same of a frame that is known to be one: PlainTcpView::IsTcp().
bool ReadUntaggedTcpFrame(const uint8_t* frame, size_t length_bytes, TcpFrame* tcp);
[[gnu::always_inline]] inline bool ReadTcpFrame(const uint8_t* frame, size_t length_bytes,
                                                TcpFrame* tcp) {
  if (length_bytes < kEthernetHeaderBytes + kIpv4MinHeaderBytes + kTcpMinHeaderBytes)
      [[unlikely]] {
    return false;
  }
  return ReadUntagged<false>(frame, length_bytes, tcp) ||
         ReadUntaggedTcpFrame(frame, length_bytes, tcp);
}

// Any frame, and fast for these.
inline FrameVerdict ParseTcpFrame(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                  TcpFrame* tcp) {
  if (verified == kAllChecksumsVerified && (ParsePlainTcpFrame(frame, length_bytes, tcp) ||
                                            ParseUntaggedTcpFrame(frame, length_bytes, tcp))) {
    return FrameVerdict::kTcp;
  }
  return ParseTcpFrameInFull(frame, length_bytes, verified, tcp);
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_TCP_FRAME_H_
