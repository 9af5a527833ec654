// SPDX-License-Identifier: Apache-2.0
//
// The UDP header. RFC 768.
//
//   0 source port (2)   2 destination port (2)   4 length, header included (2)   6 checksum (2)
#ifndef XTREME_STACK_WIRE_UDP_H_
#define XTREME_STACK_WIRE_UDP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/parsed.h"

namespace xtreme::wire {

inline constexpr size_t kUdpHeaderBytes = 8;
inline constexpr size_t kUdpLengthAt = 4;
// The largest payload under a header without options.
inline constexpr size_t kUdpMaxPayloadBytes = kIpv4MaxBytes - kIpv4MinHeaderBytes - kUdpHeaderBytes;

enum class UdpError : uint8_t {
  kNone,
  kTruncated,
  kLength,  // smaller than the header, or more than the IP payload
};

class UdpView {
 public:
  // Of nothing: a place for a parsed one.
  UdpView() = default;

  // `datagram` is the IP payload; what is past the UDP length is not the datagram's.
  static Parsed<UdpView, UdpError> Parse(std::span<const uint8_t> datagram) {
    if (datagram.size() < kUdpHeaderBytes) return UdpError::kTruncated;
    const size_t length = base::LoadBe16(&datagram[4]);
    if (length < kUdpHeaderBytes || length > datagram.size()) return UdpError::kLength;
    return UdpView(datagram.first(length));
  }

  // Whether the checksum is right, or absent (0: the sender computed none).
  bool HasValidChecksum(Ipv4Address source, Ipv4Address destination) const {
    if (base::LoadBe16(&datagram_[6]) == 0) return true;
    ChecksumSum sum;
    sum.AddPseudoHeader(source, destination, kIpProtocolUdp, length_bytes());
    sum.Add(datagram_);
    return sum.Checksum() == 0;
  }

  uint16_t source_port() const { return base::LoadBe16(&datagram_[0]); }
  uint16_t destination_port() const { return base::LoadBe16(&datagram_[2]); }
  // Header included.
  uint16_t length_bytes() const { return base::LoadBe16(&datagram_[4]); }
  uint16_t checksum() const { return base::LoadBe16(&datagram_[6]); }
  std::span<const uint8_t> payload() const { return datagram_.subspan(kUdpHeaderBytes); }

 private:
  explicit UdpView(std::span<const uint8_t> datagram) : datagram_(datagram) {}

  std::span<const uint8_t> datagram_;  // cut to the UDP length
};

// The checksum field of a datagram, in host order: a computed 0 goes out as 0xFFFF, because 0 says
// that there is none. `header` is the UDP header with a checksum field of 0.
inline uint16_t UdpChecksum(Ipv4Address source, Ipv4Address destination,
                            std::span<const uint8_t, kUdpHeaderBytes> header,
                            std::span<const uint8_t> payload) {
  ChecksumSum sum;
  sum.AddPseudoHeader(source, destination, kIpProtocolUdp, base::LoadBe16(&header[4]));
  sum.Add(header);
  sum.Add(payload);
  const uint16_t checksum = sum.Checksum();
  return checksum == 0 ? 0xFFFF : checksum;
}

struct UdpRepr {
  uint16_t source_port = 0;
  uint16_t destination_port = 0;

  // Writes the header for `payload`, checksum included, and returns kUdpHeaderBytes; 0, and nothing
  // written, when `to` is shorter or the payload longer than kUdpMaxPayloadBytes.
  size_t Emit(std::span<uint8_t> to, Ipv4Address source, Ipv4Address destination,
              std::span<const uint8_t> payload) const {
    if (to.size() < kUdpHeaderBytes || payload.size() > kUdpMaxPayloadBytes) return 0;
    base::StoreBe16(&to[0], source_port);
    base::StoreBe16(&to[2], destination_port);
    base::StoreBe16(&to[4], static_cast<uint16_t>(kUdpHeaderBytes + payload.size()));
    base::StoreBe16(&to[6], 0);
    const uint16_t checksum =
        UdpChecksum(source, destination, to.first<kUdpHeaderBytes>(), payload);
    base::StoreBe16(&to[6], checksum);
    return kUdpHeaderBytes;
  }
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_UDP_H_
