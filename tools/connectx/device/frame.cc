// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/frame.h"

#include <cstring>

#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr size_t kEtherTypeOffset = 12;
constexpr uint16_t kEtherTypeCustomerTag = 0x8100;
constexpr uint16_t kEtherTypeServiceTag = 0x88a8;
constexpr size_t kMinIpv4HeaderBytes = 20;
constexpr size_t kIpv6HeaderBytes = 40;
constexpr size_t kIpv4ChecksumOffset = 10;
constexpr size_t kTcpHeaderBytes = 20;
constexpr size_t kTcpChecksumOffset = 16;
constexpr size_t kUdpHeaderBytes = 8;
constexpr size_t kUdpChecksumOffset = 6;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kIpv4MoreFragments = 0x2000;
constexpr uint16_t kIpv4OffsetMask = 0x1fff;

// Of an IP packet that says it is `total_bytes` long. What steers and spreads reads the ports where
// they are, whatever IP says of its length: only checksums ask for a packet that lies in the frame.
void ParseL4(size_t total_bytes, Frame* frame) {
  const size_t at = frame->l4_offset;
  const size_t end = frame->l3_whole ? frame->l3_offset + total_bytes : frame->bytes.size();
  const size_t available = end - at;
  const uint8_t* header = frame->bytes.data() + at;
  if (frame->protocol == kProtocolUdp && available >= kUdpHeaderBytes) {
    frame->l4 = Frame::L4::kUdp;
    frame->l4_bytes = LoadBe16(header + 4);
  } else if (frame->protocol == kProtocolTcp && available >= kTcpHeaderBytes) {
    frame->l4 = Frame::L4::kTcp;
    frame->l4_bytes = static_cast<uint16_t>(available);
  } else {
    return;
  }
  frame->source_port = LoadBe16(header);
  frame->destination_port = LoadBe16(header + 2);
}

void ParseIpv4(size_t at, Frame* frame) {
  const size_t available = frame->bytes.size() - at;
  if (available < kMinIpv4HeaderBytes) return;
  const uint8_t* header = frame->bytes.data() + at;
  const size_t header_bytes = (header[0] & 0xf) * size_t{4};
  if (header[0] >> 4 != 4 || header_bytes < kMinIpv4HeaderBytes || header_bytes > available) return;
  frame->l3 = Frame::L3::kIpv4;
  frame->l3_offset = static_cast<uint16_t>(at);
  frame->l3_header_bytes = static_cast<uint16_t>(header_bytes);
  frame->protocol = header[9];
  frame->source_ip = LoadBe32(header + 12);
  frame->destination_ip = LoadBe32(header + 16);
  frame->fragment = (LoadBe16(header + 6) & (kIpv4MoreFragments | kIpv4OffsetMask)) != 0;
  // The frame may be longer than the packet (padding), never shorter.
  const size_t total_bytes = LoadBe16(header + 2);
  frame->l3_whole = total_bytes >= header_bytes && total_bytes <= available;
  frame->l4_offset = static_cast<uint16_t>(at + header_bytes);
  if (!frame->fragment) ParseL4(total_bytes, frame);
}

// Extension headers are not followed: L4 is then absent.
void ParseIpv6(size_t at, Frame* frame) {
  const size_t available = frame->bytes.size() - at;
  if (available < kIpv6HeaderBytes) return;
  const uint8_t* header = frame->bytes.data() + at;
  if (header[0] >> 4 != 6) return;
  frame->l3 = Frame::L3::kIpv6;
  frame->l3_offset = static_cast<uint16_t>(at);
  frame->l3_header_bytes = kIpv6HeaderBytes;
  frame->protocol = header[6];
  const size_t total_bytes = kIpv6HeaderBytes + LoadBe16(header + 4);
  frame->l3_whole = total_bytes <= available;
  frame->l4_offset = static_cast<uint16_t>(at + kIpv6HeaderBytes);
  ParseL4(total_bytes, frame);
}

// Adds 16-bit big-endian words without carrying around; an odd last byte is the high half of a
// word. Eight bytes at a time: a sum of 32-bit halves is the same modulo 0xffff (RFC 1071 section 2
// (C)).
uint64_t Sum(const uint8_t* bytes, size_t length) {
  uint64_t sum = 0;
  for (; length >= 8; bytes += 8, length -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    sum += (word & 0xffffffff) + (word >> 32);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes, length);
  return sum + (tail & 0xffffffff) + (tail >> 32);
}

// The ones' complement sum in the machine's own byte order.
uint16_t Fold(uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

uint64_t PseudoHeaderSum(const Frame& frame) {
  const uint8_t* header = frame.bytes.data() + frame.l3_offset;
  const bool ipv4 = frame.l3 == Frame::L3::kIpv4;
  const uint64_t addresses = ipv4 ? Sum(header + 12, 8) : Sum(header + 8, 32);
  return addresses + htobe16(frame.protocol) + htobe16(frame.l4_bytes);
}

// UDP may be shorter than IP's payload, never longer; TCP's is IP's by definition.
bool L4LengthFits(const Frame& frame) {
  if (frame.l4 != Frame::L4::kUdp) return true;
  const uint8_t* header = frame.bytes.data() + frame.l3_offset;
  const size_t l3_end =
      frame.l3_offset + (frame.l3 == Frame::L3::kIpv4 ? size_t{LoadBe16(header + 2)}
                                                      : kIpv6HeaderBytes + LoadBe16(header + 4));
  return frame.l4_bytes >= kUdpHeaderBytes && frame.l4_offset + frame.l4_bytes <= l3_end;
}

bool L4SumsUp(const Frame& frame) {
  if (!L4LengthFits(frame)) return false;
  const uint8_t* header = frame.bytes.data() + frame.l4_offset;
  if (frame.l4 == Frame::L4::kUdp && LoadBe16(header + kUdpChecksumOffset) == 0) {
    return frame.l3 == Frame::L3::kIpv4;  // RFC 8200 section 8.1: IPv6 has no unchecked UDP.
  }
  return Fold(PseudoHeaderSum(frame) + Sum(header, frame.l4_bytes)) == 0xffff;
}

void StoreNative16(uint8_t* bytes, uint16_t value) { std::memcpy(bytes, &value, sizeof(value)); }

}  // namespace

bool Frame::StartsWithCustomerTag() const {
  return vlan_tags != 0 && LoadBe16(bytes.data() + kEtherTypeOffset) == kEtherTypeCustomerTag;
}

Frame ParseFrame(std::span<const uint8_t> bytes) {
  Frame frame;
  frame.bytes = bytes;
  if (bytes.size() < kEthernetHeaderBytes) return frame;
  size_t at = kEthernetHeaderBytes;
  frame.ether_type = LoadBe16(bytes.data() + kEtherTypeOffset);
  while ((frame.ether_type == kEtherTypeCustomerTag || frame.ether_type == kEtherTypeServiceTag) &&
         frame.vlan_tags < 2 && bytes.size() >= at + kVlanTagBytes) {
    if (frame.vlan_tags++ == 0) frame.vlan_tci = LoadBe16(bytes.data() + at);
    frame.ether_type = LoadBe16(bytes.data() + at + 2);
    at += kVlanTagBytes;
  }
  if (frame.ether_type == kEtherTypeIpv4) ParseIpv4(at, &frame);
  if (frame.ether_type == kEtherTypeIpv6) ParseIpv6(at, &frame);
  return frame;
}

ChecksumVerdict VerifyChecksums(const Frame& frame) {
  ChecksumVerdict verdict;
  if (!frame.l3_whole) return verdict;
  verdict.l3_ok = frame.l3 == Frame::L3::kIpv6 ||
                  Fold(Sum(frame.bytes.data() + frame.l3_offset, frame.l3_header_bytes)) == 0xffff;
  verdict.l4_ok = frame.l4 != Frame::L4::kNone && L4SumsUp(frame);
  return verdict;
}

void FillChecksums(std::span<uint8_t> bytes, bool l3, bool l4) {
  const Frame frame = ParseFrame(bytes);
  if (!frame.l3_whole) return;
  if (l3 && frame.l3 == Frame::L3::kIpv4) {
    uint8_t* header = bytes.data() + frame.l3_offset;
    StoreNative16(header + kIpv4ChecksumOffset, 0);
    const uint16_t sum = Fold(Sum(header, frame.l3_header_bytes));
    StoreNative16(header + kIpv4ChecksumOffset, static_cast<uint16_t>(~sum));
  }
  if (!l4 || frame.l4 == Frame::L4::kNone || !L4LengthFits(frame)) return;
  const bool udp = frame.l4 == Frame::L4::kUdp;
  uint8_t* header = bytes.data() + frame.l4_offset;
  uint8_t* checksum = header + (udp ? kUdpChecksumOffset : kTcpChecksumOffset);
  StoreNative16(checksum, 0);
  const uint64_t sum = PseudoHeaderSum(frame) + Sum(header, frame.l4_bytes);
  const uint16_t complement = static_cast<uint16_t>(~Fold(sum));
  StoreNative16(checksum, udp && complement == 0 ? 0xffff : complement);
}

}  // namespace xtreme::connectx
