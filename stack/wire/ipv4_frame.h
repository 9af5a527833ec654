// SPDX-License-Identifier: Apache-2.0
//
// What the receive paths of UDP and TCP have in common: from a received frame to the IPv4 packet in
// it. Private to this package.
#ifndef XTREME_STACK_WIRE_IPV4_FRAME_H_
#define XTREME_STACK_WIRE_IPV4_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/ethernet.h"
#include "stack/wire/frame.h"
#include "stack/wire/ipv4.h"

namespace xtreme::wire {

// The verdict on a frame whose Ethernet or IPv4 header is wrong; kUdp for kNone.
FrameVerdict VerdictOf(EthernetError error);
FrameVerdict VerdictOf(Ipv4Error error);

// `parse(ip)` judges a whole packet of `protocol`; one of another protocol is `other`. Sets the tag
// and ip_offset of `parsed` (UdpFrame or TcpFrame) as soon as the packet's header is right.
template <typename Frame, typename ParsePacket>
FrameVerdict ParseIpv4Frame(std::span<const uint8_t> frame, uint8_t verified, uint8_t protocol,
                            FrameVerdict other, Frame* parsed, ParsePacket parse) {
  const auto ethernet = EthernetView::Parse(frame);
  if (!ethernet.ok()) return VerdictOf(ethernet.error());
  if (ethernet->ether_type() != kEtherTypeIpv4) return FrameVerdict::kNotIpv4;
  const auto ip = Ipv4View::Parse(ethernet->payload(), (verified & kIpChecksumVerified) != 0
                                                           ? ChecksumCheck::kTrusted
                                                           : ChecksumCheck::kVerify);
  if (!ip.ok()) return VerdictOf(ip.error());
  const std::optional<VlanTag> vlan = ethernet->vlan();
  parsed->vlan_tci = vlan ? vlan->tci() : UdpFrame::kNoVlan;
  parsed->flow.vlan_id = vlan ? vlan->id : 0;
  parsed->ip_offset = static_cast<uint8_t>(ethernet->header_bytes());
  if (ip->protocol() != protocol) return other;
  if (ip->IsFragment()) return FrameVerdict::kFragment;
  return parse(*ip);
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_IPV4_FRAME_H_
