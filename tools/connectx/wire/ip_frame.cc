// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/ip_frame.h"

#include <netinet/in.h>

#include <algorithm>

namespace xtreme::connectx {
namespace {

constexpr size_t kIpHeaderBytes = 20;
constexpr size_t kUdpHeaderBytes = 8;

uint16_t Get16(std::span<const uint8_t> bytes, size_t at) { return bytes[at] << 8 | bytes[at + 1]; }

void Put16(std::vector<uint8_t>& bytes, size_t at, uint16_t value) {
  bytes[at] = value >> 8;
  bytes[at + 1] = value & 0xff;
}

void Append16(std::vector<uint8_t>& bytes, uint16_t value) {
  bytes.push_back(value >> 8);
  bytes.push_back(value & 0xff);
}

void Append32(std::vector<uint8_t>& bytes, uint32_t value) {
  Append16(bytes, value >> 16);
  Append16(bytes, value & 0xffff);
}

// RFC 1071: the ones' complement sum of 16-bit words, an odd byte padded with zero.
uint32_t Sum(std::span<const uint8_t> bytes, uint32_t sum) {
  for (size_t i = 0; i < bytes.size(); i += 2) {
    sum += bytes[i] << 8 | (i + 1 < bytes.size() ? bytes[i + 1] : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

// Over the pseudo header of RFC 768 and 9293 and the segment.
uint32_t SegmentSum(std::span<const uint8_t> ip, std::span<const uint8_t> segment) {
  const uint32_t pseudo = Sum(ip.subspan(12, 8), ip[9] + static_cast<uint32_t>(segment.size()));
  return Sum(segment, pseudo);
}

}  // namespace

std::vector<uint8_t> Encode(const UdpFrame& frame) {
  std::vector<uint8_t> bytes;
  bytes.insert(bytes.end(), frame.dst_mac.begin(), frame.dst_mac.end());
  bytes.insert(bytes.end(), frame.src_mac.begin(), frame.src_mac.end());
  if (frame.vlan) {
    Append16(bytes, 0x8100);
    Append16(bytes, *frame.vlan);
  }
  Append16(bytes, 0x0800);
  const size_t ip = bytes.size();
  const size_t udp_bytes = kUdpHeaderBytes + frame.payload_bytes;
  Append16(bytes, 0x4500);
  Append16(bytes, kIpHeaderBytes + udp_bytes);
  Append16(bytes, 0x1234);
  Append16(bytes, frame.fragment);
  Append16(bytes, 64 << 8 | IPPROTO_UDP);
  Append16(bytes, 0);
  Append32(bytes, frame.src_ip);
  Append32(bytes, frame.dst_ip);
  const size_t udp = bytes.size();
  Append16(bytes, frame.src_port);
  Append16(bytes, frame.dst_port);
  Append16(bytes, udp_bytes);
  Append16(bytes, 0);
  for (size_t i = 0; i < frame.payload_bytes; ++i) bytes.push_back(i & 0xff);
  const std::span<const uint8_t> all(bytes);
  const uint16_t right = ~SegmentSum(all.subspan(ip), all.subspan(udp));
  Put16(bytes, udp + 6, frame.spoil_checksum ? right ^ 0x0101 : right);
  Put16(bytes, ip + 10, ~Sum(all.subspan(ip, kIpHeaderBytes), 0));
  return bytes;
}

std::optional<IpFacts> Inspect(std::span<const uint8_t> frame) {
  IpFacts facts;
  size_t at = 12;
  if (frame.size() >= 18 && Get16(frame, at) == 0x8100) {
    facts.vlan = Get16(frame, at + 2) & 0xfff;
    at += 4;
  }
  if (frame.size() < at + 2 + kIpHeaderBytes + kUdpHeaderBytes || Get16(frame, at) != 0x0800) {
    return std::nullopt;
  }
  std::span<const uint8_t> ip = frame.subspan(at + 2);
  facts.ip_bytes = Get16(ip, 2);
  if (facts.ip_bytes > ip.size()) return std::nullopt;
  ip = ip.first(facts.ip_bytes);  // Behind it is padding.
  const size_t ip_header = (ip[0] & 0xf) * 4;
  const std::span<const uint8_t> segment = ip.subspan(ip_header);
  facts.protocol = ip[9];
  facts.dst_port = Get16(segment, 2);
  const size_t l4_header = facts.protocol == IPPROTO_TCP ? (segment[12] >> 4) * 4 : kUdpHeaderBytes;
  facts.payload_bytes = segment.size() - l4_header;
  facts.ip_checksum_right = Sum(ip.first(ip_header), 0) == 0xffff;
  facts.l4_checksum_right = SegmentSum(ip, segment) == 0xffff;
  return facts;
}

}  // namespace xtreme::connectx
