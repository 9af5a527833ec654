// SPDX-License-Identifier: Apache-2.0
//
// The fast and the full parse of any frame agree, under every verdict of the NIC; a segment they
// find lies inside the frame; options that parsed are written and parsed again as the same. The
// first byte of the input repairs, or not, what random bytes never hit.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "stack/wire/checksum.h"
#include "stack/wire/golden.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_plain.h"

namespace xtreme::wire {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void Repair(Bytes& frame, uint8_t what) {
  if (frame.size() < 54) return;
  if (what & 1) base::StoreBe16(&frame[12], kEtherTypeIpv4);
  if (what & 2) frame[14] = 0x45;
  if (what & 4) base::StoreBe16(&frame[16], static_cast<uint16_t>(frame.size() - 14));
  if (what & 8) base::StoreBe16(&frame[20], 0);
  if (what & 16) frame[23] = kIpProtocolTcp;
  if (what & 32) frame[46] = 0x80;
  if ((what & 64) && frame.size() >= 58) base::StoreBe32(&frame[54], 0x0101080A);
  if (what & 128) {
    base::StoreBe16(&frame[24], 0);
    base::StoreBe16(&frame[24], Checksum(std::span(frame).subspan(14, 20)));
  }
}

void TryOptions(std::span<const uint8_t> bytes) {
  TcpOptions options;
  const TcpOptionsError error = options.Parse(bytes);
  Require(error < TcpOptionsError::kCount);
  Bytes written(kTcpMaxOptionsBytes);
  const size_t size = options.Emit(written);
  Require(size == options.emitted_bytes() && size % 4 == 0 && size <= written.size());
  TcpOptions again;
  Require(again.Parse(std::span(written).first(size)) == TcpOptionsError::kNone);
  // SACK blocks give way to other options.
  Require(again.sack().size() <= options.sack().size());
  options.SetSack(options.sack().first(again.sack().size()));
  Require(again == options);
}

// Where so much is known already that it need only be read.
void TryToRead(std::span<const uint8_t> frame) {
  constexpr size_t kForm = 28;  // What IsTcp() reads.
  if (frame.size() < kForm || !PlainTcpView(frame.data()).IsTcp()) return;
  TcpFrame read, parsed;
  const FrameVerdict verdict =
      ParseTcpFrameInFull(frame.data(), frame.size(), kAllChecksumsVerified, &parsed);
  const bool whole = ReadTcpFrame(frame.data(), frame.size(), &read);
  Require(whole == (verdict == FrameVerdict::kTcp));
  if (whole) Require(read == parsed);
}

void Try(std::span<const uint8_t> frame) {
  TryToRead(frame);
  for (uint8_t verified = kNoChecksumVerified; verified <= kAllChecksumsVerified; ++verified) {
    TcpFrame fast;
    TcpFrame full;
    const FrameVerdict verdict = ParseTcpFrame(frame.data(), frame.size(), verified, &fast);
    Require(verdict == ParseTcpFrameInFull(frame.data(), frame.size(), verified, &full));
    Require(fast == full);
    Require(verdict < FrameVerdict::kCount);
    if (verdict != FrameVerdict::kTcp) continue;
    Require(size_t{fast.payload_offset} + fast.segment.payload_bytes <= frame.size());
    Require(fast.payload_offset >= fast.ip_offset + kIpv4MinHeaderBytes + kTcpMinHeaderBytes);
  }
}

}  // namespace
}  // namespace xtreme::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  if (length == 0) return 0;
  xtreme::wire::Bytes frame(bytes + 1, bytes + length);
  xtreme::wire::TryOptions(xtreme::wire::Exact(frame).span());
  xtreme::wire::Repair(frame, bytes[0]);
  xtreme::wire::Try(xtreme::wire::Exact(frame).span());
  return 0;
}
