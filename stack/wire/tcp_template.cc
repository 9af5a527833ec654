// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_template.h"

namespace xtreme::wire {

// By hand: a Repr would compute the checksums, too, which are of no use.
TcpTemplate::TcpTemplate(const Fields& fields) {
  const EthernetRepr ethernet{.destination = fields.destination_mac,
                              .source = fields.source_mac,
                              .vlan = fields.vlan,
                              .ether_type = kEtherTypeIpv4};
  const size_t ip_offset = ethernet.Emit(bytes_);
  uint8_t* const ip = &bytes_[ip_offset];
  ip[0] = 0x45;
  ip[1] = fields.tos;
  // What may not be fragmented needs no identification: RFC 6864 section 4.1. And path MTU
  // discovery needs the bit: RFC 1191 section 3.
  base::StoreBe16(ip + 6, kIpv4DontFragment);
  ip[8] = fields.ttl;
  ip[9] = kIpProtocolTcp;
  fields.source.address.Store(ip + 12);
  fields.destination.address.Store(ip + 16);
  tcp_offset_ = static_cast<uint8_t>(ip_offset + kIpv4MinHeaderBytes);
  uint8_t* const tcp = &bytes_[tcp_offset_];
  base::StoreBe16(tcp, fields.source.port);
  base::StoreBe16(tcp + 2, fields.destination.port);
  tcp[13] = kTcpAck;
  UseTimestamps(fields.timestamps);
}

void TcpTemplate::UseTimestamps(bool in_use) {
  uint8_t* const tcp = &bytes_[tcp_offset_];
  const size_t tcp_bytes = kTcpMinHeaderBytes + (in_use ? kTcpTimestampsBytes : 0);
  if (in_use) EmitTimestamps(tcp + kTcpMinHeaderBytes, {});
  tcp[12] = static_cast<uint8_t>(tcp_bytes / 4 << 4);
  header_bytes_ = static_cast<uint8_t>(tcp_offset_ + tcp_bytes);
  PatchLengths(bytes_.data(), 0);
}

void TcpTemplate::FillChecksums(uint8_t* headers, std::span<const uint8_t> payload) const {
  uint8_t* const ip = headers + ip_offset();
  base::StoreBe16(ip + 10, 0);
  base::StoreBe16(ip + 10, Checksum(std::span(ip, kIpv4MinHeaderBytes)));
  uint8_t* const tcp = headers + tcp_offset_;
  base::StoreBe16(tcp + 16, 0);
  const size_t header_bytes = size_t{4} * (tcp[12] >> 4);
  base::StoreBe16(tcp + 16, TcpChecksum(Ipv4Address::Load(ip + 12), Ipv4Address::Load(ip + 16),
                                        std::span<const uint8_t>(tcp, header_bytes), payload));
}

}  // namespace xtreme::wire
