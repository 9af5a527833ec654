// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/frame_template.h"

namespace xtreme::wire {

FrameTemplate::FrameTemplate(const Fields& fields) {
  const EthernetRepr ethernet{.destination = fields.destination_mac,
                              .source = fields.source_mac,
                              .vlan = fields.vlan,
                              .ether_type = kEtherTypeIpv4};
  const Ipv4Repr ip{.source = fields.source.address,
                    .destination = fields.destination.address,
                    .protocol = kIpProtocolUdp,
                    .ttl = fields.ttl,
                    .tos = fields.tos,
                    .dont_fragment = fields.dont_fragment,
                    .payload_bytes = kUdpHeaderBytes};
  const std::span<uint8_t> bytes(bytes_);
  const size_t ip_offset = ethernet.Emit(bytes);
  const size_t udp_offset = ip_offset + ip.Emit(bytes.subspan(ip_offset));
  base::StoreBe16(&bytes_[ip_offset + 10], 0);
  base::StoreBe16(&bytes_[udp_offset], fields.source.port);
  base::StoreBe16(&bytes_[udp_offset + 2], fields.destination.port);
  base::StoreBe16(&bytes_[udp_offset + 4], kUdpHeaderBytes);
  header_bytes_ = static_cast<uint8_t>(udp_offset + kUdpHeaderBytes);
}

void FrameTemplate::FillChecksums(uint8_t* headers, std::span<const uint8_t> payload) const {
  uint8_t* ip = headers + ip_offset();
  base::StoreBe16(ip + 10, 0);
  base::StoreBe16(ip + 10, Checksum(std::span(ip, kIpv4MinHeaderBytes)));
  uint8_t* udp = headers + udp_offset();
  base::StoreBe16(udp + 6, 0);
  const uint16_t checksum =
      UdpChecksum(Ipv4Address::Load(ip + 12), Ipv4Address::Load(ip + 16),
                  std::span<const uint8_t, kUdpHeaderBytes>(udp, kUdpHeaderBytes), payload);
  base::StoreBe16(udp + 6, checksum);
}

void FrameTemplate::PatchFragment(uint8_t* headers, uint16_t id, size_t offset_bytes,
                                  size_t ip_payload_bytes, bool more_fragments) const {
  uint8_t* ip = headers + ip_offset();
  base::StoreBe16(ip + 2, static_cast<uint16_t>(kIpv4MinHeaderBytes + ip_payload_bytes));
  base::StoreBe16(ip + 4, id);
  base::StoreBe16(ip + 6, static_cast<uint16_t>((more_fragments ? kIpv4MoreFragments : 0) |
                                                offset_bytes / kIpv4FragmentUnitBytes));
  base::StoreBe16(ip + 10, 0);
  base::StoreBe16(ip + 10, Checksum(std::span(ip, kIpv4MinHeaderBytes)));
}

}  // namespace xtreme::wire
