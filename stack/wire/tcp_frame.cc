// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_frame.h"

#include <optional>
#include <span>

namespace xtreme::wire {
namespace {

TcpSegment SegmentOf(const TcpView& view) {
  TcpSegment segment;
  segment.sequence = view.sequence();
  segment.acknowledgement = view.acknowledgement();
  segment.window = view.window();
  segment.urgent_pointer = view.urgent_pointer();
  segment.payload_bytes = static_cast<uint16_t>(view.payload().size());
  segment.flags = view.flags();
  segment.options_error = segment.options.Parse(view.options());
  return segment;
}

// The segment in `ip`, a whole packet; `tcp->ip_offset` is set.
FrameVerdict ParseSegment(const Ipv4View& ip, uint8_t verified, TcpFrame* tcp) {
  const auto view = TcpView::Parse(ip.payload());
  if (view.error() == TcpError::kTruncated) return FrameVerdict::kTcpTruncated;
  if (view.error() == TcpError::kDataOffset) return FrameVerdict::kTcpDataOffset;
  if ((verified & kTcpChecksumVerified) == 0 &&
      !view->HasValidChecksum(ip.source(), ip.destination())) {
    return FrameVerdict::kTcpChecksum;
  }
  tcp->flow = {.destination = ip.destination(),
               .source = ip.source(),
               .destination_port = view->destination_port(),
               .source_port = view->source_port(),
               .vlan_id = tcp->flow.vlan_id};
  tcp->segment = SegmentOf(*view);
  tcp->payload_offset =
      static_cast<uint8_t>(tcp->ip_offset + ip.header_bytes() + view->header_bytes());
  return FrameVerdict::kTcp;
}

}  // namespace

FrameVerdict ParseTcpFrameInFull(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                 TcpFrame* tcp) {
  const auto ethernet = EthernetView::Parse(std::span(frame, length_bytes));
  if (!ethernet.ok()) return VerdictOf(ethernet.error());
  if (ethernet->ether_type() != kEtherTypeIpv4) return FrameVerdict::kNotIpv4;
  const auto ip = Ipv4View::Parse(ethernet->payload(), (verified & kIpChecksumVerified) != 0
                                                           ? ChecksumCheck::kTrusted
                                                           : ChecksumCheck::kVerify);
  if (!ip.ok()) return VerdictOf(ip.error());
  const std::optional<VlanTag> vlan = ethernet->vlan();
  tcp->vlan_tci = vlan ? vlan->tci() : UdpFrame::kNoVlan;
  tcp->flow.vlan_id = vlan ? vlan->id : 0;
  tcp->ip_offset = static_cast<uint8_t>(ethernet->header_bytes());
  if (ip->protocol() != kIpProtocolTcp) return FrameVerdict::kNotTcp;
  if (ip->IsFragment()) return FrameVerdict::kFragment;
  return ParseSegment(*ip, verified, tcp);
}

}  // namespace xtreme::wire
