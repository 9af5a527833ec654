// SPDX-License-Identifier: Apache-2.0
//
// The headers of a connection, built once: Ethernet (with or without tag), IPv4 without options,
// TCP with timestamps when both sides use them. A send copies them and patches there what differs
// from segment to segment.
//
// The invariant: the first `header_bytes()` bytes are the headers of a segment, at first of one
// without payload, its flags ACK. Checksum fields stay 0 where the NIC computes; `FillChecksums`
// computes where it does not. What differs from segment to segment stands there as it was set last:
// whoever copies the headers patches all of it. Numbers in host order. RFC 9293 section 3.1, RFC
// 7323 appendix A.
#ifndef XTREME_STACK_WIRE_TCP_TEMPLATE_H_
#define XTREME_STACK_WIRE_TCP_TEMPLATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::wire {

class TcpTemplate {
 public:
  // Headers with the most options there may be: what a copy needs when PatchOptions is used.
  static constexpr size_t kMaxHeadersBytes =
      kEthernetHeaderBytes + kVlanTagBytes + kIpv4MinHeaderBytes + kTcpMaxHeaderBytes;

  struct Fields {
    MacAddress destination_mac;
    MacAddress source_mac;
    std::optional<VlanTag> vlan;
    Endpoint destination;
    Endpoint source;
    uint8_t ttl = 64;
    uint8_t tos = 0;
    bool timestamps = false;  // RFC 7323 section 3.2: in every segment once both SYNs had them
  };

  // Which headers there are, as one number that is compared at once: how long they are, and where
  // TCP's is.
  enum class Shape : uint16_t {};
  static constexpr Shape ShapeOf(size_t header_bytes, size_t tcp_offset) {
    return static_cast<Shape>(tcp_offset << 8 | header_bytes);
  }

  TcpTemplate() = default;
  // Inlined into who has the fields: they need not lie together first.
  [[gnu::always_inline]] explicit TcpTemplate(const Fields& fields);

  const uint8_t* data() const { return bytes_.data(); }
  // 54, or 66 with timestamps; 4 more with a tag; 0 when default-constructed.
  size_t header_bytes() const { return static_cast<uint16_t>(shape_) & 0xff; }
  size_t ip_offset() const { return tcp_offset() - kIpv4MinHeaderBytes; }
  size_t tcp_offset() const { return static_cast<uint16_t>(shape_) >> 8; }
  Shape shape() const { return shape_; }
  bool timestamps() const { return header_bytes() > tcp_offset() + kTcpMinHeaderBytes; }

  // Writes the headers to `to`, which has room for kMaxHeadersBytes; what is behind them there is
  // lost.
  void CopyTo(uint8_t* to) const { std::memcpy(to, bytes_.data(), kStorageBytes); }

  // The next hop's address became known or changed.
  void SetDestinationMac(MacAddress mac) { mac.Store(&bytes_[0]); }
  // Frames leave by another port.
  void SetSourceMac(MacAddress mac) { mac.Store(&bytes_[MacAddress::kBytes]); }

  // Whether they have timestamps from now on: what both SYNs had became known.
  void UseTimestamps(bool in_use);

  // What differs from segment to segment of one connection.
  struct Segment {
    uint32_t sequence = 0;
    uint32_t acknowledgement = 0;
    uint16_t window = 0;  // scaled down
    uint8_t flags = kTcpAck;
  };
  void PatchSegment(uint8_t* headers, const Segment& segment) const {
    uint8_t* const tcp = headers + tcp_offset();
    base::StoreBe32(tcp + 4, segment.sequence);
    base::StoreBe32(tcp + 8, segment.acknowledgement);
    tcp[13] = segment.flags;
    base::StoreBe16(tcp + 14, segment.window);
  }

  // The template has timestamps.
  void PatchTimestamps(uint8_t* headers, const TcpTimestamps& timestamps) const {
    uint8_t* const at = headers + tcp_offset() + kTcpMinHeaderBytes + 4;
    base::StoreBe32(at, timestamps.value);
    base::StoreBe32(at + 4, timestamps.echo);
  }

  // The same in the template itself, for who sends from data() and finds no need of a copy.
  [[gnu::always_inline]] void SetSegment(const Segment& segment, size_t payload_bytes) {
    PatchSegment(bytes_.data(), segment);
    PatchLengths(bytes_.data(), payload_bytes);
  }
  [[gnu::always_inline]] void SetTimestamps(const TcpTimestamps& timestamps) {
    PatchTimestamps(bytes_.data(), timestamps);
  }

  // Replaces the options, timestamps included, and the data offset. `headers` has room for
  // kMaxHeadersBytes. Returns the bytes of all headers, to be given to PatchLengths.
  size_t PatchOptions(uint8_t* headers, const TcpOptions& options) const {
    uint8_t* const tcp = headers + tcp_offset();
    const size_t tcp_bytes =
        kTcpMinHeaderBytes + options.Emit({tcp + kTcpMinHeaderBytes, kTcpMaxOptionsBytes});
    tcp[12] = static_cast<uint8_t>(tcp_bytes / 4 << 4);
    return tcp_offset() + tcp_bytes;
  }

  // RFC 9293 section 3.8.5: where urgent data ends. The flag is the segment's.
  void PatchUrgentPointer(uint8_t* headers, uint16_t pointer) const {
    base::StoreBe16(headers + tcp_offset() + 18, pointer);
  }

  // Writes the IPv4 total length of a packet of `headers_bytes`, Ethernet's included, and payload.
  // Both together are at most kIpv4MaxBytes and the Ethernet header.
  void PatchLengths(uint8_t* headers, size_t headers_bytes, size_t payload_bytes) const {
    base::StoreBe16(headers + ip_offset() + 2,
                    static_cast<uint16_t>(headers_bytes - ip_offset() + payload_bytes));
  }
  void PatchLengths(uint8_t* headers, size_t payload_bytes) const {
    PatchLengths(headers, header_bytes(), payload_bytes);
  }

  void PatchId(uint8_t* headers, uint16_t id) const {
    base::StoreBe16(headers + ip_offset() + 4, id);
  }

  // Computes both checksums, for a device that does not. `headers` is a copy of this template with
  // everything patched; `payload` is what the lengths say it is.
  void FillChecksums(uint8_t* headers, std::span<const uint8_t> payload) const;

 private:
  static constexpr size_t kStorageBytes = 78;  // and two bytes of offsets make 80
  static_assert(kStorageBytes >= kEthernetHeaderBytes + kVlanTagBytes + kIpv4MinHeaderBytes +
                                     kTcpMinHeaderBytes + kTcpTimestampsBytes);

  std::array<uint8_t, kStorageBytes> bytes_{};
  Shape shape_ = ShapeOf(0, kIpv4MinHeaderBytes);
};

// By hand: a Repr would compute the checksums, too, which are of no use.
inline TcpTemplate::TcpTemplate(const Fields& fields) {
  const EthernetRepr ethernet{.destination = fields.destination_mac,
                              .source = fields.source_mac,
                              .vlan = fields.vlan,
                              .ether_type = kEtherTypeIpv4};
  const size_t ip_offset = ethernet.Emit(bytes_);
  uint8_t* const ip = &bytes_[ip_offset];
  ip[0] = 0x45;
  ip[1] = fields.tos;
  // What may not be fragmented needs no identification: RFC 6864 section 4.1. And path MTU
  // discovery needs the bit: RFC 1191 section 3.
  base::StoreBe16(ip + 6, kIpv4DontFragment);
  ip[8] = fields.ttl;
  ip[9] = kIpProtocolTcp;
  fields.source.address.Store(ip + 12);
  fields.destination.address.Store(ip + 16);
  shape_ = ShapeOf(0, ip_offset + kIpv4MinHeaderBytes);
  uint8_t* const tcp = &bytes_[tcp_offset()];
  base::StoreBe16(tcp, fields.source.port);
  base::StoreBe16(tcp + 2, fields.destination.port);
  tcp[13] = kTcpAck;
  UseTimestamps(fields.timestamps);
}

inline void TcpTemplate::UseTimestamps(bool in_use) {
  uint8_t* const tcp = &bytes_[tcp_offset()];
  const size_t tcp_bytes = kTcpMinHeaderBytes + (in_use ? kTcpTimestampsBytes : 0);
  if (in_use) EmitTimestamps(tcp + kTcpMinHeaderBytes, {});
  tcp[12] = static_cast<uint8_t>(tcp_bytes / 4 << 4);
  shape_ = ShapeOf(tcp_offset() + tcp_bytes, tcp_offset());
  PatchLengths(bytes_.data(), 0);
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_TCP_TEMPLATE_H_
