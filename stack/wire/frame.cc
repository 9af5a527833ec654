// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/frame.h"

#include <array>
#include <span>

#include "stack/wire/ipv4_frame.h"

namespace xtreme::wire {

FrameVerdict VerdictOf(EthernetError error) {
  switch (error) {
    case EthernetError::kNone:
      break;
    case EthernetError::kTruncated:
      return FrameVerdict::kTruncated;
    case EthernetError::kStackedVlan:
      return FrameVerdict::kStackedVlan;
    case EthernetError::kNoEtherType:
      return FrameVerdict::kNoEtherType;
  }
  return FrameVerdict::kUdp;
}

FrameVerdict VerdictOf(Ipv4Error error) {
  switch (error) {
    case Ipv4Error::kNone:
      break;
    case Ipv4Error::kTruncated:
      return FrameVerdict::kTruncated;
    case Ipv4Error::kVersion:
      return FrameVerdict::kIpVersion;
    case Ipv4Error::kHeaderLength:
      return FrameVerdict::kIpHeaderLength;
    case Ipv4Error::kTotalLength:
      return FrameVerdict::kIpTotalLength;
    case Ipv4Error::kChecksum:
      return FrameVerdict::kIpChecksum;
    case Ipv4Error::kFragmentEnd:
      return FrameVerdict::kFragmentEnd;
  }
  return FrameVerdict::kUdp;
}

namespace {

// The datagram in `ip`, a whole one; `udp->ip_offset` is set.
FrameVerdict ParseDatagram(const Ipv4View& ip, uint8_t verified, UdpFrame* udp) {
  const auto datagram = UdpView::Parse(ip.payload());
  if (!datagram.ok()) return FrameVerdict::kUdpLength;
  if ((verified & kUdpChecksumVerified) == 0 &&
      !datagram->HasValidChecksum(ip.source(), ip.destination())) {
    return FrameVerdict::kUdpChecksum;
  }
  udp->flow = {.destination = ip.destination(),
               .source = ip.source(),
               .destination_port = datagram->destination_port(),
               .source_port = datagram->source_port(),
               .vlan_id = udp->flow.vlan_id};
  udp->payload_offset = static_cast<uint8_t>(udp->ip_offset + ip.header_bytes() + kUdpHeaderBytes);
  udp->payload_bytes = static_cast<uint16_t>(datagram->payload().size());
  return FrameVerdict::kUdp;
}

}  // namespace

FrameVerdict ParseUdpFrameInFull(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                 UdpFrame* udp) {
  return ParseIpv4Frame(
      std::span(frame, length_bytes), verified, kIpProtocolUdp, FrameVerdict::kNotUdp, udp,
      [&](const Ipv4View& ip) { return ParseDatagram(ip, verified, udp); });
}

base::CounterName DescribeReason(FrameVerdict verdict) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"udp", "whole UDP datagrams"},
      {"tcp", "TCP segments"},
      {"truncated", "frames that end inside a header"},
      {"stacked_vlan", "frames with a service tag or two tags, which are not supported"},
      {"no_ether_type", "802.3 frames with a length instead of an EtherType"},
      {"ip_version", "IPv4 frames whose header says another version"},
      {"ip_header_length", "IPv4 headers that say they are shorter than 20 bytes"},
      {"ip_total_length", "IPv4 total lengths below the header's or above the frame's"},
      {"ip_checksum", "IPv4 headers with a wrong checksum"},
      {"fragment_end", "fragments that end past the largest datagram"},
      {"udp_length", "UDP lengths below the header's or above the packet's"},
      {"udp_checksum", "UDP datagrams with a wrong checksum"},
      {"tcp_truncated", "IPv4 packets that end inside a TCP header"},
      {"tcp_data_offset", "TCP data offsets below the header's or above the packet's"},
      {"tcp_checksum", "TCP segments with a wrong checksum"},
      {"not_ipv4", "frames of another EtherType"},
      {"not_udp", "IPv4 packets of another protocol than UDP"},
      {"not_tcp", "IPv4 packets of another protocol than TCP"},
      {"fragment", "fragments of datagrams"},
  });
  static_assert(kNames.size() == static_cast<size_t>(FrameVerdict::kCount));
  return kNames[static_cast<size_t>(verdict)];
}

}  // namespace xtreme::wire
