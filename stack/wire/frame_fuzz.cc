// SPDX-License-Identifier: Apache-2.0
//
// The fast and the full parse of any frame agree, under every verdict of the NIC, and a datagram
// they find lies inside the frame. The first byte of the input repairs, or not, what random bytes
// never hit: the EtherType, the IPv4 version and the lengths.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "stack/wire/checksum.h"
#include "stack/wire/frame.h"
#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void Repair(Bytes& frame, uint8_t what) {
  if (frame.size() < 42) return;
  if (what & 1) base::StoreBe16(&frame[12], kEtherTypeIpv4);
  if (what & 2) frame[14] = 0x45;
  if (what & 4) base::StoreBe16(&frame[16], static_cast<uint16_t>(frame.size() - 14));
  if (what & 8) base::StoreBe16(&frame[20], 0);
  if (what & 16) frame[23] = kIpProtocolUdp;
  if (what & 32) base::StoreBe16(&frame[38], static_cast<uint16_t>(frame.size() - 34));
  if (what & 64) base::StoreBe16(&frame[40], 0);
  if (what & 128) {
    base::StoreBe16(&frame[24], 0);
    base::StoreBe16(&frame[24], Checksum(std::span(frame).subspan(14, 20)));
  }
}

void Try(std::span<const uint8_t> frame) {
  for (uint8_t verified = kNoChecksumVerified; verified <= kAllChecksumsVerified; ++verified) {
    UdpFrame fast;
    UdpFrame full;
    const FrameVerdict verdict = ParseUdpFrame(frame.data(), frame.size(), verified, &fast);
    Require(verdict == ParseUdpFrameInFull(frame.data(), frame.size(), verified, &full));
    Require(fast == full);
    Require(verdict < FrameVerdict::kCount);
    if (verdict != FrameVerdict::kUdp) continue;
    Require(size_t{fast.payload_offset} + fast.payload_bytes <= frame.size());
    Require(fast.payload_offset >= fast.ip_offset + kIpv4MinHeaderBytes + kUdpHeaderBytes);
  }
}

}  // namespace
}  // namespace xtreme::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  if (length == 0) return 0;
  xtreme::wire::Bytes frame(bytes + 1, bytes + length);
  xtreme::wire::Repair(frame, bytes[0]);
  xtreme::wire::Try(xtreme::wire::Exact(frame).span());
  return 0;
}
