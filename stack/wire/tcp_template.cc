// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_template.h"

namespace xtreme::wire {

TcpTemplate::TcpTemplate(const Fields& fields) {
  TcpRepr tcp{.source_port = fields.source.port,
              .destination_port = fields.destination.port,
              .flags = kTcpAck};
  if (fields.timestamps) tcp.options.timestamps = TcpTimestamps{};
  const EthernetRepr ethernet{.destination = fields.destination_mac,
                              .source = fields.source_mac,
                              .vlan = fields.vlan,
                              .ether_type = kEtherTypeIpv4};
  // What may not be fragmented needs no identification: RFC 6864 section 4.1. And path MTU
  // discovery needs the bit: RFC 1191 section 3.
  const Ipv4Repr ip{.source = fields.source.address,
                    .destination = fields.destination.address,
                    .protocol = kIpProtocolTcp,
                    .ttl = fields.ttl,
                    .tos = fields.tos,
                    .dont_fragment = true,
                    .payload_bytes = static_cast<uint16_t>(tcp.header_bytes())};
  const std::span<uint8_t> bytes(bytes_);
  const size_t ip_offset = ethernet.Emit(bytes);
  tcp_offset_ = static_cast<uint8_t>(ip_offset + ip.Emit(bytes.subspan(ip_offset)));
  header_bytes_ = static_cast<uint8_t>(
      tcp_offset_ + tcp.Emit(bytes.subspan(tcp_offset_), ip.source, ip.destination, {}));
  base::StoreBe16(&bytes_[ip_offset + 10], 0);
  base::StoreBe16(&bytes_[tcp_offset_ + 16], 0);
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
