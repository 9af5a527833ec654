// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/ipv4.h"

namespace xtreme::wire {
namespace {

// What holds for a header wherever it is found.
Ipv4Error CheckHeader(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv4MinHeaderBytes) return Ipv4Error::kTruncated;
  if (packet[0] >> 4 != 4) return Ipv4Error::kVersion;
  const size_t header_bytes = size_t{4} * (packet[0] & 0x0F);
  if (header_bytes < kIpv4MinHeaderBytes) return Ipv4Error::kHeaderLength;
  if (packet.size() < header_bytes) return Ipv4Error::kTruncated;
  if (base::LoadBe16(&packet[2]) < header_bytes) return Ipv4Error::kTotalLength;
  return Ipv4Error::kNone;
}

}  // namespace

Parsed<Ipv4View, Ipv4Error> Ipv4View::Parse(std::span<const uint8_t> packet, ChecksumCheck check) {
  if (const Ipv4Error error = CheckHeader(packet); error != Ipv4Error::kNone) return error;
  const size_t total_bytes = base::LoadBe16(&packet[2]);
  if (total_bytes > packet.size()) return Ipv4Error::kTotalLength;
  const Ipv4View view(packet.first(total_bytes));
  if (check == ChecksumCheck::kVerify && Checksum(packet.first(view.header_bytes())) != 0) {
    return Ipv4Error::kChecksum;
  }
  // The last byte of a reassembled datagram must be one that a total length can count.
  if (view.fragment_offset_bytes() + total_bytes > kIpv4MaxBytes) return Ipv4Error::kFragmentEnd;
  return view;
}

Parsed<Ipv4View, Ipv4Error> Ipv4View::ParseQuoted(std::span<const uint8_t> packet) {
  if (const Ipv4Error error = CheckHeader(packet); error != Ipv4Error::kNone) return error;
  const size_t total_bytes = base::LoadBe16(&packet[2]);
  return Ipv4View(total_bytes < packet.size() ? packet.first(total_bytes) : packet);
}

size_t Ipv4Repr::Emit(std::span<uint8_t> to) const {
  if (to.size() < kIpv4MinHeaderBytes) return 0;
  const auto flags = static_cast<uint16_t>((dont_fragment ? kIpv4DontFragment : 0) |
                                           (more_fragments ? kIpv4MoreFragments : 0));
  to[0] = 0x45;
  to[1] = tos;
  base::StoreBe16(&to[2], static_cast<uint16_t>(kIpv4MinHeaderBytes + payload_bytes));
  base::StoreBe16(&to[4], id);
  base::StoreBe16(&to[6], flags | fragment_offset_bytes / kIpv4FragmentUnitBytes);
  to[8] = ttl;
  to[9] = protocol;
  base::StoreBe16(&to[10], 0);
  source.Store(&to[12]);
  destination.Store(&to[16]);
  base::StoreBe16(&to[10], Checksum(to.first(kIpv4MinHeaderBytes)));
  return kIpv4MinHeaderBytes;
}

}  // namespace xtreme::wire
