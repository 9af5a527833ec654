// SPDX-License-Identifier: Apache-2.0
//
// Large send offload: the headers of one segment made from the headers of the whole.
//
// Invariant: lengths, IP id and TCP sequence number of a segment are its own; FIN and PSH stand in
// the last segment only, CWR in the first only.
// Units: bytes; the header is in wire order. Thread: none, pure functions.
// Spec: RFC 9293 section 3.1, RFC 791, RFC 8200, RFC 3168 section 6.1.2 (CWR).

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_SEGMENTATION_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_SEGMENTATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace xtreme::connectx {

// Where things are in headers that are to be repeated.
struct SegmentedHeader {
  size_t bytes = 0;
  size_t l3_offset = 0;
  size_t l4_offset = 0;
  bool ipv6 = false;
};

struct TcpSegment {
  uint32_t index = 0;
  uint32_t payload_offset = 0;
  uint32_t payload_bytes = 0;
  bool last = false;
};

// Empty: `header` is not Ethernet (tagged or not), IPv4 or IPv6, and TCP with their options, and
// nothing more.
std::optional<SegmentedHeader> ParseSegmentedHeader(std::span<const uint8_t> header);

// Turns a copy of the whole's header at `frame` into that of `segment`. Checksums are left.
void WriteSegmentHeader(const SegmentedHeader& header, const TcpSegment& segment, uint8_t* frame);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_SEGMENTATION_H_
