// SPDX-License-Identifier: Apache-2.0
//
// How a UDP datagram larger than the MTU is cut into fragments. RFC 791 section 3.2.
//
// Every fragment but the last carries a multiple of eight bytes of IP payload; the first begins
// with the UDP header. The plan only computes: the headers are written by
// `FrameTemplate::PatchFragment`, the checksum, of the whole datagram, by
// `FrameTemplate::FillChecksums` before. Units: bytes.
#ifndef XTREME_STACK_IP_FRAGMENTATION_H_
#define XTREME_STACK_IP_FRAGMENTATION_H_

#include <algorithm>
#include <cstddef>
#include <optional>

#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"

namespace xtreme::ip {

// RFC 791 section 3.2: what every link must carry.
inline constexpr size_t kMinMtuBytes = 68;

struct Fragment {
  size_t ip_offset_bytes = 0;  // in the IP payload; a multiple of 8
  size_t ip_payload_bytes =
      0;  // after the fragment's IP header, the UDP header included in the first
  size_t payload_offset_bytes = 0;  // in the UDP payload
  size_t payload_bytes = 0;         // of the UDP payload
  bool first = false;               // carries the UDP header
  bool more = false;                // others follow

  friend constexpr bool operator==(const Fragment&, const Fragment&) = default;
};

class FragmentPlan {
 public:
  // For a UDP payload over a link whose longest IP packet is `mtu_bytes`. Empty when the payload is
  // longer than a datagram can be (EMSGSIZE) or the MTU smaller than IPv4 allows.
  static constexpr std::optional<FragmentPlan> Create(size_t payload_bytes, size_t mtu_bytes) {
    if (payload_bytes > wire::kUdpMaxPayloadBytes || mtu_bytes < kMinMtuBytes) return std::nullopt;
    return FragmentPlan(payload_bytes, mtu_bytes);
  }

  // 1: the datagram fits as it is.
  constexpr size_t count() const {
    if (total_bytes_ <= room_bytes_) return 1;
    return (total_bytes_ + unit_bytes_ - 1) / unit_bytes_;
  }

  // Number `index`, below count(), in the order of the payload.
  constexpr Fragment At(size_t index) const {
    const size_t offset = index * unit_bytes_;
    const bool more = index + 1 < count();
    const size_t bytes = more ? unit_bytes_ : total_bytes_ - offset;
    const bool first = index == 0;
    return {.ip_offset_bytes = offset,
            .ip_payload_bytes = bytes,
            .payload_offset_bytes = first ? 0 : offset - wire::kUdpHeaderBytes,
            .payload_bytes = first ? bytes - wire::kUdpHeaderBytes : bytes,
            .first = first,
            .more = more};
  }

 private:
  constexpr FragmentPlan(size_t payload_bytes, size_t mtu_bytes)
      : total_bytes_(wire::kUdpHeaderBytes + payload_bytes),
        room_bytes_(mtu_bytes - wire::kIpv4MinHeaderBytes),
        unit_bytes_(room_bytes_ / wire::kIpv4FragmentUnitBytes * wire::kIpv4FragmentUnitBytes) {}

  size_t total_bytes_;  // the IP payload
  size_t room_bytes_;   // for it in one packet
  size_t unit_bytes_;   // of it in every fragment but the last
};

}  // namespace xtreme::ip

#endif  // XTREME_STACK_IP_FRAGMENTATION_H_
