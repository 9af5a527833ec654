// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/software_checksum.h"

#include <optional>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/checksum.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {
namespace {

constexpr size_t kEtherTypeAt = 12;
constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeVlan = 0x8100;
constexpr size_t kIpv4MinBytes = 20;
constexpr size_t kProtocolAt = 9;
constexpr size_t kIpChecksumAt = 10;
constexpr size_t kSourceAt = 12;
constexpr size_t kDestinationAt = 16;
constexpr uint8_t kUdp = 17;
constexpr uint8_t kTcp = 6;

// The IPv4 header and what is behind it; empty for anything else.
std::span<uint8_t> Ipv4Of(std::span<uint8_t> header) {
  size_t at = kEtherTypeAt;
  if (header.size() >= at + 6 && base::LoadBe16(&header[at]) == kEtherTypeVlan) at += 4;
  if (header.size() < at + 2 + kIpv4MinBytes) return {};
  if (base::LoadBe16(&header[at]) != kEtherTypeIpv4) return {};
  return header.subspan(at + 2);
}

std::optional<size_t> ChecksumAt(uint8_t protocol) {
  if (protocol == kUdp) return 6;
  if (protocol == kTcp) return 16;
  return std::nullopt;
}

void FinishL4(std::span<uint8_t> ip, size_t ip_header_bytes, std::span<const uint8_t> payload) {
  const uint8_t protocol = ip[kProtocolAt];
  const std::optional<size_t> at = ChecksumAt(protocol);
  const std::span<uint8_t> l4 = ip.subspan(ip_header_bytes);
  if (!at.has_value() || l4.size() < *at + 2) return;
  base::StoreBe16(&l4[*at], 0);
  wire::ChecksumSum sum;
  sum.AddPseudoHeader(wire::Ipv4Address(base::LoadBe32(&ip[kSourceAt])),
                      wire::Ipv4Address(base::LoadBe32(&ip[kDestinationAt])), protocol,
                      static_cast<uint16_t>(l4.size() + payload.size()));
  sum.Add(l4);
  sum.Add(payload);
  const uint16_t checksum = sum.Checksum();
  // UDP's 0 says "none": the sum 0 is sent as its other form (RFC 768).
  base::StoreBe16(&l4[*at], protocol == kUdp && checksum == 0 ? uint16_t{0xffff} : checksum);
}

}  // namespace

void FinishChecksums(uint32_t flags, std::span<uint8_t> header, std::span<const uint8_t> payload) {
  const std::span<uint8_t> ip = Ipv4Of(header);
  if (ip.empty()) return;
  const size_t ip_header_bytes = size_t{ip[0] & 0x0fu} * 4;
  if (ip_header_bytes < kIpv4MinBytes || ip_header_bytes > ip.size()) return;
  if ((flags & nic::kTxIpChecksum) != 0) {
    base::StoreBe16(&ip[kIpChecksumAt], 0);
    base::StoreBe16(&ip[kIpChecksumAt], wire::Checksum(ip.first(ip_header_bytes)));
  }
  if ((flags & nic::kTxL4Checksum) != 0) FinishL4(ip, ip_header_bytes, payload);
}

}  // namespace xtreme::mlx5
