// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/segmentation.h"

#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kIpv6HeaderBytes = 40;
constexpr size_t kIpv4LengthOffset = 2;
constexpr size_t kIpv4IdOffset = 4;
constexpr size_t kIpv6LengthOffset = 4;
constexpr size_t kIpv4ProtocolOffset = 9;
constexpr size_t kIpv6NextHeaderOffset = 6;
constexpr size_t kTcpHeaderBytes = 20;
constexpr size_t kTcpSequenceOffset = 4;
constexpr size_t kTcpDataOffset = 12;
constexpr size_t kTcpFlagsOffset = 13;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kFin = 0x01;
constexpr uint8_t kPsh = 0x08;
constexpr uint8_t kCwr = 0x80;

}  // namespace

std::optional<SegmentedHeader> ParseSegmentedHeader(std::span<const uint8_t> header) {
  // What the lengths in the header say does not matter: they are the whole's, or nothing yet.
  const Frame frame = ParseFrame(header);
  if (frame.l3 == Frame::L3::kNone || frame.fragment) return std::nullopt;
  const bool ipv6 = frame.l3 == Frame::L3::kIpv6;
  const uint8_t* ip = header.data() + frame.l3_offset;
  const size_t l3_bytes = ipv6 ? kIpv6HeaderBytes : frame.l3_header_bytes;
  const uint8_t protocol = ip[ipv6 ? kIpv6NextHeaderOffset : kIpv4ProtocolOffset];
  const size_t l4_offset = frame.l3_offset + l3_bytes;
  if (protocol != kProtocolTcp || header.size() < l4_offset + kTcpHeaderBytes) return std::nullopt;
  const size_t tcp_bytes = (header[l4_offset + kTcpDataOffset] >> 4) * size_t{4};
  if (tcp_bytes < kTcpHeaderBytes || l4_offset + tcp_bytes != header.size()) return std::nullopt;
  return SegmentedHeader{.bytes = header.size(),
                         .l3_offset = frame.l3_offset,
                         .l4_offset = l4_offset,
                         .ipv6 = ipv6};
}

void WriteSegmentHeader(const SegmentedHeader& header, const TcpSegment& segment, uint8_t* frame) {
  uint8_t* ip = frame + header.l3_offset;
  const size_t l4_bytes = header.bytes - header.l4_offset + segment.payload_bytes;
  if (header.ipv6) {
    StoreBe16(ip + kIpv6LengthOffset, static_cast<uint16_t>(l4_bytes));
  } else {
    const size_t l3_bytes = header.l4_offset - header.l3_offset;
    StoreBe16(ip + kIpv4LengthOffset, static_cast<uint16_t>(l3_bytes + l4_bytes));
    StoreBe16(ip + kIpv4IdOffset,
              static_cast<uint16_t>(LoadBe16(ip + kIpv4IdOffset) + segment.index));
  }
  uint8_t* tcp = frame + header.l4_offset;
  StoreBe32(tcp + kTcpSequenceOffset,
            LoadBe32(tcp + kTcpSequenceOffset) + segment.payload_offset);
  if (!segment.last) tcp[kTcpFlagsOffset] &= static_cast<uint8_t>(~(kFin | kPsh));
  if (segment.index != 0) tcp[kTcpFlagsOffset] &= static_cast<uint8_t>(~kCwr);
}

}  // namespace xtreme::connectx
