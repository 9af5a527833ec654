// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_frame.h"

#include <span>

#include "stack/wire/ipv4_frame.h"

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

bool ParseUntaggedTcpFrame(const uint8_t* frame, size_t length_bytes, TcpFrame* tcp) {
  return ParseUntagged<true>(frame, length_bytes, tcp);
}

bool ReadUntaggedTcpFrame(const uint8_t* frame, size_t length_bytes, TcpFrame* tcp) {
  return ReadUntagged<true>(frame, length_bytes, tcp);
}

FrameVerdict ParseTcpFrameInFull(const uint8_t* frame, size_t length_bytes, uint8_t verified,
                                 TcpFrame* tcp) {
  return ParseIpv4Frame(
      std::span(frame, length_bytes), verified, kIpProtocolTcp, FrameVerdict::kNotTcp, tcp,
      [&](const Ipv4View& ip) { return ParseSegment(ip, verified, tcp); });
}

}  // namespace xtreme::wire
