// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/test_frame.h"

namespace xtreme::connectx {
namespace {

void Append16(Bytes* bytes, uint32_t value) {
  bytes->push_back(static_cast<uint8_t>(value >> 8));
  bytes->push_back(static_cast<uint8_t>(value));
}

void Append32(Bytes* bytes, uint32_t value) {
  Append16(bytes, value >> 16);
  Append16(bytes, value & 0xffff);
}

void Put16(Bytes* bytes, size_t at, uint16_t value) {
  (*bytes)[at] = static_cast<uint8_t>(value >> 8);
  (*bytes)[at + 1] = static_cast<uint8_t>(value);
}

Bytes Ethernet(const FrameSpec& spec, uint16_t ether_type) {
  Bytes frame(spec.destination_mac.begin(), spec.destination_mac.end());
  frame.insert(frame.end(), spec.source_mac.begin(), spec.source_mac.end());
  for (uint32_t tag : spec.vlan_tags) Append32(&frame, tag);
  Append16(&frame, ether_type);
  return frame;
}

size_t ChecksumOffset(const FrameSpec& spec) { return spec.protocol == 6 ? 16 : 6; }

Bytes Segment(const FrameSpec& spec) {
  Bytes bytes;
  Append16(&bytes, spec.source_port);
  Append16(&bytes, spec.destination_port);
  if (spec.protocol == 6) {
    Append32(&bytes, 1000);  // Sequence number.
    Append32(&bytes, 2000);  // Acknowledgement number.
    Append16(&bytes, 0x5000u | spec.tcp_flags);
    Append16(&bytes, 512);  // Window.
    Append32(&bytes, 0);    // Checksum, urgent pointer.
  } else {
    Append16(&bytes, static_cast<uint32_t>(8 + spec.payload.size()));
    Append16(&bytes, 0);
  }
  bytes.insert(bytes.end(), spec.payload.begin(), spec.payload.end());
  return bytes;
}

bool HasL4Checksum(const FrameSpec& spec) {
  return (spec.protocol == 6 || spec.protocol == 17) && (spec.fragment & 0x3fff) == 0;
}

void FinishL4(const FrameSpec& spec, const Bytes& addresses, Bytes* segment) {
  if (!HasL4Checksum(spec)) return;
  Bytes pseudo = addresses;
  Append16(&pseudo, spec.protocol);
  Append16(&pseudo, static_cast<uint32_t>(segment->size()));
  pseudo.insert(pseudo.end(), segment->begin(), segment->end());
  const uint16_t sum = InternetChecksum(pseudo);
  const uint16_t written = spec.protocol == 17 && sum == 0 ? 0xffff : sum;
  Put16(segment, ChecksumOffset(spec), spec.checksums ? written : 0xdead);
}

}  // namespace

uint16_t InternetChecksum(std::span<const uint8_t> bytes, uint32_t sum) {
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<uint16_t>(~sum);
}

size_t IpOffset(const FrameSpec& spec) { return 14 + 4 * spec.vlan_tags.size(); }
size_t L4Offset(const FrameSpec& spec) { return IpOffset(spec) + 20 + spec.option_bytes; }

Bytes MakeFrame(const FrameSpec& spec) {
  Bytes segment = Segment(spec);
  Bytes ip;
  Append16(&ip, static_cast<uint32_t>(0x4500 + (spec.option_bytes / 4 << 8)));
  Append16(&ip, static_cast<uint32_t>(20 + spec.option_bytes + segment.size()));
  Append16(&ip, 0x1234);
  Append16(&ip, spec.fragment);
  Append16(&ip, 0x4000u | spec.protocol);
  Append16(&ip, 0);
  Append32(&ip, spec.source_ip);
  Append32(&ip, spec.destination_ip);
  ip.insert(ip.end(), spec.option_bytes, 1);
  Put16(&ip, 10, spec.checksums ? InternetChecksum(ip) : 0xdead);
  FinishL4(spec, Bytes(ip.begin() + 12, ip.begin() + 20), &segment);
  Bytes frame = Ethernet(spec, 0x0800);
  frame.insert(frame.end(), ip.begin(), ip.end());
  frame.insert(frame.end(), segment.begin(), segment.end());
  return frame;
}

Bytes MakeIpv6Frame(const FrameSpec& spec) {
  Bytes segment = Segment(spec);
  Bytes ip;
  Append32(&ip, 0x60000000);
  Append16(&ip, static_cast<uint32_t>(segment.size()));
  Append16(&ip, spec.protocol << 8 | 64u);
  for (uint32_t address : {spec.source_ip, spec.destination_ip}) {
    Append32(&ip, 0xfd000000);
    Append32(&ip, 0);
    Append32(&ip, 0);
    Append32(&ip, address);
  }
  FinishL4(spec, Bytes(ip.begin() + 8, ip.end()), &segment);
  Bytes frame = Ethernet(spec, 0x86dd);
  frame.insert(frame.end(), ip.begin(), ip.end());
  frame.insert(frame.end(), segment.begin(), segment.end());
  return frame;
}

}  // namespace xtreme::connectx
