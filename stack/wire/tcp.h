// SPDX-License-Identifier: Apache-2.0
//
// The TCP header. RFC 9293 section 3.1.
//
//   0 source port (2)   2 destination port (2)   4 sequence number (4)   8 acknowledgement (4)
//   12 data offset 4, reserved 4   13 flags (1)   14 window (2)   16 checksum (2)
//   18 urgent pointer (2)   20 options, up to data offset x 4
//
// Sequence numbers are plain 32 bits here; whoever compares them uses a type that knows of wrap.
#ifndef XTREME_STACK_WIRE_TCP_H_
#define XTREME_STACK_WIRE_TCP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/parsed.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::wire {

inline constexpr size_t kTcpMinHeaderBytes = 20;
inline constexpr size_t kTcpMaxHeaderBytes = 60;

// The control bits, as the byte at offset 13 has them.
inline constexpr uint8_t kTcpFin = 0x01;
inline constexpr uint8_t kTcpSyn = 0x02;
inline constexpr uint8_t kTcpRst = 0x04;
inline constexpr uint8_t kTcpPsh = 0x08;
inline constexpr uint8_t kTcpAck = 0x10;
inline constexpr uint8_t kTcpUrg = 0x20;
inline constexpr uint8_t kTcpEce = 0x40;  // RFC 3168 section 6.1
inline constexpr uint8_t kTcpCwr = 0x80;

enum class TcpError : uint8_t {
  kNone,
  kTruncated,   // shorter than the shortest header
  kDataOffset,  // below 5, or past the segment's end
};

class TcpView {
 public:
  // Of nothing: a place for a parsed one.
  TcpView() = default;

  // `segment` is the whole IP payload.
  static Parsed<TcpView, TcpError> Parse(std::span<const uint8_t> segment) {
    if (segment.size() < kTcpMinHeaderBytes) return TcpError::kTruncated;
    const size_t header_bytes = size_t{4} * (segment[12] >> 4);
    if (header_bytes < kTcpMinHeaderBytes || header_bytes > segment.size()) {
      return TcpError::kDataOffset;
    }
    return TcpView(segment);
  }

  bool HasValidChecksum(Ipv4Address source, Ipv4Address destination) const {
    ChecksumSum sum;
    sum.AddPseudoHeader(source, destination, kIpProtocolTcp,
                        static_cast<uint16_t>(segment_.size()));
    sum.Add(segment_);
    return sum.Checksum() == 0;
  }

  uint16_t source_port() const { return base::LoadBe16(&segment_[0]); }
  uint16_t destination_port() const { return base::LoadBe16(&segment_[2]); }
  uint32_t sequence() const { return base::LoadBe32(&segment_[4]); }
  // Means something only under ACK.
  uint32_t acknowledgement() const { return base::LoadBe32(&segment_[8]); }
  size_t header_bytes() const { return size_t{4} * (segment_[12] >> 4); }
  uint8_t flags() const { return segment_[13]; }
  // Not scaled.
  uint16_t window() const { return base::LoadBe16(&segment_[14]); }
  uint16_t checksum() const { return base::LoadBe16(&segment_[16]); }
  // Means something only under URG.
  uint16_t urgent_pointer() const { return base::LoadBe16(&segment_[18]); }
  std::span<const uint8_t> options() const {
    return segment_.subspan(kTcpMinHeaderBytes, header_bytes() - kTcpMinHeaderBytes);
  }
  std::span<const uint8_t> payload() const { return segment_.subspan(header_bytes()); }

 private:
  explicit TcpView(std::span<const uint8_t> segment) : segment_(segment) {}

  std::span<const uint8_t> segment_;
};

// The checksum field of a segment, in host order. `header` is the TCP header with options and with
// a checksum field of 0.
inline uint16_t TcpChecksum(Ipv4Address source, Ipv4Address destination,
                            std::span<const uint8_t> header, std::span<const uint8_t> payload) {
  ChecksumSum sum;
  sum.AddPseudoHeader(source, destination, kIpProtocolTcp,
                      static_cast<uint16_t>(header.size() + payload.size()));
  sum.Add(header);
  sum.Add(payload);
  return sum.Checksum();
}

struct TcpRepr {
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint32_t sequence = 0;
  uint32_t acknowledgement = 0;
  uint8_t flags = 0;
  uint16_t window = 0;
  uint16_t urgent_pointer = 0;
  TcpOptions options;

  size_t header_bytes() const { return kTcpMinHeaderBytes + options.emitted_bytes(); }

  // Writes the header for `payload`, options and checksum included, and returns header_bytes(); 0,
  // and nothing written, when `to` is shorter, or header and payload together fill more than a
  // datagram under an IPv4 header without options.
  size_t Emit(std::span<uint8_t> to, Ipv4Address source, Ipv4Address destination,
              std::span<const uint8_t> payload) const {
    const size_t bytes = header_bytes();
    if (to.size() < bytes || bytes + payload.size() > kIpv4MaxBytes - kIpv4MinHeaderBytes) return 0;
    base::StoreBe16(&to[0], source_port);
    base::StoreBe16(&to[2], destination_port);
    base::StoreBe32(&to[4], sequence);
    base::StoreBe32(&to[8], acknowledgement);
    to[12] = static_cast<uint8_t>(bytes / 4 << 4);
    to[13] = flags;
    base::StoreBe16(&to[14], window);
    base::StoreBe16(&to[16], 0);
    base::StoreBe16(&to[18], urgent_pointer);
    options.Emit(to.subspan(kTcpMinHeaderBytes));
    base::StoreBe16(&to[16], TcpChecksum(source, destination, to.first(bytes), payload));
    return bytes;
  }
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_TCP_H_
