// SPDX-License-Identifier: Apache-2.0
//
// The headers of a flow, built once: Ethernet (with or without tag), IPv4 without options, UDP. A
// send copies them into the WQE and patches there what differs from datagram to datagram.
//
// The invariant: the first `header_bytes()` of the 64 aligned bytes are the headers of a datagram
// without payload, with checksum fields of 0, and the rest is 0. Checksum fields stay 0 where the
// NIC computes; `FillChecksums` computes where it does not. The patches take a copy of the headers,
// so one template serves any number of sends under way.
#ifndef XTREME_STACK_WIRE_FRAME_TEMPLATE_H_
#define XTREME_STACK_WIRE_FRAME_TEMPLATE_H_

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
#include "stack/wire/udp.h"

namespace xtreme::wire {

class FrameTemplate {
 public:
  static constexpr size_t kStorageBytes = 64;  // one cache line

  struct Fields {
    MacAddress destination_mac;
    MacAddress source_mac;
    std::optional<VlanTag> vlan;
    Endpoint destination;
    Endpoint source;
    uint8_t ttl = 64;
    uint8_t tos = 0;
    // Set: the identification may stay 0, for who may not be fragmented needs none (RFC 6864
    // section 4.1). Clear: patch one per datagram.
    bool dont_fragment = true;
  };

  FrameTemplate() = default;
  explicit FrameTemplate(const Fields& fields);

  const uint8_t* data() const { return bytes_.data(); }
  // 42 or 46; 0 when default-constructed.
  size_t header_bytes() const { return header_bytes_; }
  size_t ip_offset() const { return header_bytes_ - kUdpHeaderBytes - kIpv4MinHeaderBytes; }
  size_t udp_offset() const { return header_bytes_ - kUdpHeaderBytes; }

  // The next hop's address became known or changed.
  void SetDestinationMac(MacAddress mac) { mac.Store(&bytes_[0]); }

  // Writes the lengths for a payload of `payload_bytes`, at most kUdpMaxPayloadBytes, into
  // `headers`, a copy of this template.
  void PatchLengths(uint8_t* headers, size_t payload_bytes) const {
    const size_t udp_bytes = kUdpHeaderBytes + payload_bytes;
    uint8_t* const udp = headers + udp_offset();
    base::StoreBe16(udp - kIpv4MinHeaderBytes + 2,
                    static_cast<uint16_t>(kIpv4MinHeaderBytes + udp_bytes));
    base::StoreBe16(udp + 4, static_cast<uint16_t>(udp_bytes));
  }

  void PatchId(uint8_t* headers, uint16_t id) const {
    base::StoreBe16(headers + ip_offset() + 4, id);
  }

  // Computes both checksums, for a device that does not. `headers` is a copy of this template with
  // lengths patched; `payload` is what they say it is.
  void FillChecksums(uint8_t* headers, std::span<const uint8_t> payload) const;

  // Makes `headers`, a copy of this template, those of one fragment: `ip_payload_bytes` bytes from
  // `offset_bytes`, a multiple of 8, on. The IPv4 checksum is computed, for a NIC may not be asked
  // to touch a fragment. Only the first fragment carries the UDP header.
  void PatchFragment(uint8_t* headers, uint16_t id, size_t offset_bytes, size_t ip_payload_bytes,
                     bool more_fragments) const;

 private:
  alignas(kStorageBytes) std::array<uint8_t, kStorageBytes> bytes_{};
  uint8_t header_bytes_ = 0;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_FRAME_TEMPLATE_H_
