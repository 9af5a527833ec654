// SPDX-License-Identifier: Apache-2.0
//
// The IPv4 header. RFC 791 section 3.1.
//
//   0 version 4, IHL 4   1 TOS (1)   2 total length (2)   4 identification (2)
//   6 flags 3, fragment offset 13    8 TTL (1)   9 protocol (1)   10 header checksum (2)
//   12 source (4)   16 destination (4)   20 options, up to IHL x 4
//
// The view's payload begins after the options, wherever that is, and ends at the total length, not
// at the frame's end.
#ifndef XTREME_STACK_WIRE_IPV4_H_
#define XTREME_STACK_WIRE_IPV4_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/checksum.h"
#include "stack/wire/parsed.h"

namespace xtreme::wire {

inline constexpr size_t kIpv4MinHeaderBytes = 20;
inline constexpr size_t kIpv4MaxHeaderBytes = 60;
inline constexpr size_t kIpv4MaxBytes = 65535;
inline constexpr size_t kIpv4TotalLengthAt = 2;

// IANA, "Assigned Internet Protocol Numbers".
inline constexpr uint8_t kIpProtocolIcmp = 1;
inline constexpr uint8_t kIpProtocolTcp = 6;
inline constexpr uint8_t kIpProtocolUdp = 17;

// The 16 bits at offset 6. The offset counts units of eight bytes.
inline constexpr uint16_t kIpv4DontFragment = 0x4000;
inline constexpr uint16_t kIpv4MoreFragments = 0x2000;
inline constexpr uint16_t kIpv4FragmentOffsetMask = 0x1FFF;
inline constexpr size_t kIpv4FragmentUnitBytes = 8;

enum class Ipv4Error : uint8_t {
  kNone,
  kTruncated,     // shorter than the shortest header, or than its IHL says
  kVersion,       // not 4
  kHeaderLength,  // an IHL below 5
  kTotalLength,   // smaller than the header, or more than there is
  kChecksum,      // of the header
  kFragmentEnd,   // a fragment that would end past the largest datagram
};

// Whether Parse sums the header, or someone did already.
enum class ChecksumCheck : uint8_t { kVerify, kTrusted };

class Ipv4View {
 public:
  // Of nothing: a place for a parsed one.
  Ipv4View() = default;

  // `packet` is what follows the link header; padding after the total length is ignored.
  static Parsed<Ipv4View, Ipv4Error> Parse(std::span<const uint8_t> packet, ChecksumCheck check);

  // The header that an ICMP error quotes: as Parse, but the datagram's rest may be missing and the
  // checksum, which a router may have left stale, is not looked at.
  static Parsed<Ipv4View, Ipv4Error> ParseQuoted(std::span<const uint8_t> packet);

  size_t header_bytes() const { return size_t{4} * (packet_[0] & 0x0F); }
  uint8_t tos() const { return packet_[1]; }
  uint16_t total_bytes() const { return base::LoadBe16(&packet_[2]); }
  uint16_t id() const { return base::LoadBe16(&packet_[4]); }
  bool dont_fragment() const { return (fragment_field() & kIpv4DontFragment) != 0; }
  bool more_fragments() const { return (fragment_field() & kIpv4MoreFragments) != 0; }
  // Where in the datagram's payload this one begins, in bytes.
  size_t fragment_offset_bytes() const {
    return kIpv4FragmentUnitBytes * (fragment_field() & kIpv4FragmentOffsetMask);
  }
  bool IsFragment() const {
    return (fragment_field() & (kIpv4MoreFragments | kIpv4FragmentOffsetMask)) != 0;
  }
  uint8_t ttl() const { return packet_[8]; }
  uint8_t protocol() const { return packet_[9]; }
  uint16_t checksum() const { return base::LoadBe16(&packet_[10]); }
  Ipv4Address source() const { return Ipv4Address::Load(&packet_[12]); }
  Ipv4Address destination() const { return Ipv4Address::Load(&packet_[16]); }
  std::span<const uint8_t> options() const {
    return packet_.subspan(kIpv4MinHeaderBytes, header_bytes() - kIpv4MinHeaderBytes);
  }
  std::span<const uint8_t> payload() const { return packet_.subspan(header_bytes()); }

 private:
  explicit Ipv4View(std::span<const uint8_t> packet) : packet_(packet) {}

  uint16_t fragment_field() const { return base::LoadBe16(&packet_[6]); }

  std::span<const uint8_t> packet_;  // cut to the total length
};

// A header without options.
struct Ipv4Repr {
  Ipv4Address source;
  Ipv4Address destination;
  uint8_t protocol = kIpProtocolUdp;
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint16_t id = 0;
  bool dont_fragment = false;
  bool more_fragments = false;
  uint16_t fragment_offset_bytes = 0;  // a multiple of 8
  uint16_t payload_bytes = 0;          // at most 65515

  // Writes 20 bytes, checksum included, and returns how many; 0, and nothing written, when `to` is
  // shorter.
  size_t Emit(std::span<uint8_t> to) const;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_IPV4_H_
