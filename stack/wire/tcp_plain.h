// SPDX-License-Identifier: Apache-2.0
//
// The frame that established connections exchange: untagged, IPv4 without options, no fragment, and
// a segment that says ACK, perhaps PSH, with no option but timestamps. Read where it stands, a few
// words at a time, by who knows what he expects.
//
// The invariant: what is read here ParseTcpFrame would read too, of a frame whose checksums are
// verified; what is not such a frame is refused, and for ParseTcpFrame. Units: bytes. Numbers in
// host order, but for addresses() and ports(). RFC 9293 section 3.1, RFC 7323 appendix A.
#ifndef XTREME_STACK_WIRE_TCP_PLAIN_H_
#define XTREME_STACK_WIRE_TCP_PLAIN_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/base/bytes16.h"
#include "stack/wire/frame.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::wire {

class PlainTcpView {
 public:
  // How many bytes at the frame have to be readable, however long it is.
  static constexpr size_t kReadableBytes = 66;

  explicit PlainTcpView(const uint8_t* frame) : frame_(frame) {}

  // Whether it is TCP at all, as above up to the TCP header.
  [[gnu::always_inline]] bool IsTcp() const {
    return base::EqualUnder16(kMask.data(), frame_ + kFormAt, kForm.data());
  }
  // Source and destination, as they stand.
  uint64_t addresses() const { return base::LoadNative<uint64_t>(frame_ + kPlainAddressesOffset); }
  uint32_t ports() const { return base::LoadNative<uint32_t>(frame_ + kTcpAt); }

  // Whether it is such a segment, with timestamps or, unless `stamped`, without; and whole in a
  // frame of `length` bytes. If so, how long its headers of IP and TCP are, and its payload.
  // IsTcp() was true.
  [[gnu::always_inline]] bool IsAck(bool stamped, uint32_t length, uint32_t* header_bytes,
                                    uint32_t* payload_bytes) const {
    const uint8_t* const header = frame_ + kTcpAt;
    // Data offset and flags; of the bits between them none is set.
    const auto form = static_cast<uint16_t>(base::LoadNative<uint16_t>(header + 12) &
                                            ~base::HostToBigEndian<uint16_t>(kTcpPsh));
    *header_bytes = kIpv4MinHeaderBytes + kTcpMinHeaderBytes;
    if (stamped) {
      if (form != base::HostToBigEndian<uint16_t>(0x8000 | kTcpAck)) return false;
      if (!BeginsWithTimestamps(header + kTcpMinHeaderBytes)) return false;
      *header_bytes += kTcpTimestampsBytes;
    } else if (form != base::HostToBigEndian<uint16_t>(0x5000 | kTcpAck)) {
      return false;
    }
    const uint32_t ip_bytes = base::LoadBe16(frame_ + kEthernetHeaderBytes + 2);
    constexpr uint32_t kBefore = kEthernetHeaderBytes;
    *payload_bytes = ip_bytes - *header_bytes;
    return ip_bytes >= *header_bytes && ip_bytes + kBefore <= length;
  }

  // What it says then; the value of its timestamp, where it has them. Read each time: in a short
  // way that costs no more than to keep it.
  uint32_t sequence() const { return base::LoadBe32(frame_ + kTcpAt + 4); }
  uint32_t acknowledgement() const { return base::LoadBe32(frame_ + kTcpAt + 8); }
  uint16_t window() const { return base::LoadBe16(frame_ + kTcpAt + 14); }  // not scaled
  uint32_t timestamp() const {
    return base::LoadBe32(frame_ + kTcpAt + kTcpMinHeaderBytes + 4);
  }

 private:
  static constexpr size_t kTcpAt = kEthernetHeaderBytes + kIpv4MinHeaderBytes;
  // From the EtherType on: version and header length, fragment bits, protocol.
  static constexpr size_t kFormAt = 12;
  alignas(16) static constexpr std::array<uint8_t, 16> kForm = {
      0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, kIpProtocolTcp, 0, 0, 0, 0};
  alignas(16) static constexpr std::array<uint8_t, 16> kMask = {
      0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0xff, 0, 0, 0, 0};

  const uint8_t* const frame_;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_TCP_PLAIN_H_
