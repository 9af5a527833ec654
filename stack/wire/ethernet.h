// SPDX-License-Identifier: Apache-2.0
//
// The Ethernet II header, with at most one 802.1Q tag. IEEE 802.3 clause 3, IEEE 802.1Q clause 9.
//
//   0 destination (6)   6 source (6)   12 EtherType (2)
//   tagged:             12 0x8100 (2)  14 priority 3, DEI 1, VLAN 12 (2)   16 EtherType (2)
#ifndef XTREME_STACK_WIRE_ETHERNET_H_
#define XTREME_STACK_WIRE_ETHERNET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/parsed.h"

namespace xtreme::wire {

inline constexpr size_t kEthernetHeaderBytes = 14;
inline constexpr size_t kVlanTagBytes = 4;

// EtherTypes: IANA, "IEEE 802 Numbers". Below the first one the field is an 802.3 length.
inline constexpr uint16_t kFirstEtherType = 0x0600;
inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeArp = 0x0806;
inline constexpr uint16_t kEtherTypeVlan = 0x8100;         // 802.1Q C-VLAN tag
inline constexpr uint16_t kEtherTypeServiceVlan = 0x88A8;  // 802.1ad S-VLAN tag

// The two bytes after a tag's EtherType.
struct VlanTag {
  uint16_t id = 0;       // 0 to 4095; 0: only a priority, no VLAN
  uint8_t priority = 0;  // 0 to 7
  bool drop_eligible = false;

  static constexpr VlanTag FromTci(uint16_t tci) {
    return {.id = static_cast<uint16_t>(tci & 0x0FFF),
            .priority = static_cast<uint8_t>(tci >> 13),
            .drop_eligible = (tci & 0x1000) != 0};
  }
  // The tag control information, in host order.
  constexpr uint16_t tci() const {
    return static_cast<uint16_t>(priority << 13 | (drop_eligible ? 0x1000 : 0) | (id & 0x0FFF));
  }
  friend constexpr bool operator==(const VlanTag&, const VlanTag&) = default;
};

enum class EthernetError : uint8_t {
  kNone,
  kTruncated,    // shorter than the header, or than the tag it announces
  kStackedVlan,  // a service tag, or a second tag: 802.1ad is not spoken
  kNoEtherType,  // an 802.3 length field: LLC, as spanning tree uses it
};

class EthernetView {
 public:
  // Of nothing: a place for a parsed one.
  EthernetView() = default;

  static Parsed<EthernetView, EthernetError> Parse(std::span<const uint8_t> frame) {
    if (frame.size() < kEthernetHeaderBytes) return EthernetError::kTruncated;
    uint16_t type = base::LoadBe16(&frame[12]);
    size_t header_bytes = kEthernetHeaderBytes;
    if (type == kEtherTypeVlan) {
      header_bytes += kVlanTagBytes;
      if (frame.size() < header_bytes) return EthernetError::kTruncated;
      type = base::LoadBe16(&frame[16]);
      if (type == kEtherTypeVlan) return EthernetError::kStackedVlan;
    }
    if (type == kEtherTypeServiceVlan) return EthernetError::kStackedVlan;
    if (type < kFirstEtherType) return EthernetError::kNoEtherType;
    return EthernetView(frame, header_bytes);
  }

  MacAddress destination() const { return MacAddress::Load(&frame_[0]); }
  MacAddress source() const { return MacAddress::Load(&frame_[6]); }
  uint16_t ether_type() const { return base::LoadBe16(&frame_[header_bytes_ - 2]); }
  std::optional<VlanTag> vlan() const {
    if (header_bytes_ == kEthernetHeaderBytes) return std::nullopt;
    return VlanTag::FromTci(base::LoadBe16(&frame_[14]));
  }
  size_t header_bytes() const { return header_bytes_; }
  // All after the header; short frames are padded, so it can be longer than the packet in it.
  std::span<const uint8_t> payload() const { return frame_.subspan(header_bytes_); }

 private:
  EthernetView(std::span<const uint8_t> frame, size_t header_bytes)
      : frame_(frame), header_bytes_(header_bytes) {}

  std::span<const uint8_t> frame_;
  size_t header_bytes_ = 0;
};

struct EthernetRepr {
  MacAddress destination;
  MacAddress source;
  std::optional<VlanTag> vlan;
  uint16_t ether_type = kEtherTypeIpv4;

  constexpr size_t header_bytes() const {
    return kEthernetHeaderBytes + (vlan ? kVlanTagBytes : 0);
  }

  // Writes header_bytes() bytes and returns how many; 0, and nothing written, when `to` is shorter.
  size_t Emit(std::span<uint8_t> to) const {
    if (to.size() < header_bytes()) return 0;
    destination.Store(&to[0]);
    source.Store(&to[6]);
    if (vlan) {
      base::StoreBe16(&to[12], kEtherTypeVlan);
      base::StoreBe16(&to[14], vlan->tci());
    }
    base::StoreBe16(&to[header_bytes() - 2], ether_type);
    return header_bytes();
  }
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_ETHERNET_H_
