// SPDX-License-Identifier: Apache-2.0
//
// KnownFlows::Write and Take, inlined into the loops of drivers: one vector compared tells whose a
// frame is, and three are copied for what its completion has in common with those before.

#ifndef XTREME_XTREME_COMPLETION_KNOWN_FLOWS_WRITE_H_
#define XTREME_XTREME_COMPLETION_KNOWN_FLOWS_WRITE_H_

#include <cstddef>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/base/bytes32.h"
#include "stack/packet/buffer.h"
#include "stack/udp/endpoint.h"
#include "stack/wire/frame.h"
#include "xtreme/completion/known_flows.h"

namespace xtreme::completion {

inline uint32_t KnownFlows::PlaceOf(const uint8_t* frame) {
  static_assert(wire::kPlainAddressesOffset == kHeaderAt + 14);
  static_assert(wire::kPlainUdpOffset == kHeaderAt + 22);
  static_assert(wire::kPlainPayloadOffset == kLeastFrameBytes);
  return Place(base::LoadNative<uint64_t>(frame + wire::kPlainAddressesOffset),
               base::LoadNative<uint32_t>(frame + wire::kPlainUdpOffset));
}

inline uint32_t KnownFlows::Place(uint64_t addresses, uint32_t ports) {
#if defined(__SSE4_2__)
  const uint64_t mixed = __builtin_ia32_crc32di(ports, addresses) >> 7;
#else
  constexpr uint64_t kOddConstant = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio.
  const uint64_t mixed = ((addresses ^ ports) * kOddConstant) >> (64 - kEntriesLog2);
#endif
  return static_cast<uint32_t>(mixed % kEntries);
}

[[gnu::always_inline]] inline bool KnownFlows::IsOf(const uint8_t* header, const uint8_t* frame,
                                                    uint32_t length, uint32_t* payload_bytes) {
  if (!base::EqualUnder(kHeaderMask.data(), frame + kHeaderAt, header)) return false;
  const uint16_t udp_bytes = base::LoadBe16(frame + wire::kPlainUdpOffset + 4);
  // Of a length below that of its header it wraps to more than any frame has.
  *payload_bytes = uint32_t{udp_bytes} - wire::kUdpHeaderBytes;
  if (*payload_bytes > length - kLeastFrameBytes) [[unlikely]] return false;
  const uint32_t ip_bytes = base::LoadBe16(frame + wire::kEthernetHeaderBytes + 2);
  return ip_bytes - *payload_bytes == wire::kIpv4MinHeaderBytes + wire::kUdpHeaderBytes;
}

[[gnu::always_inline]] inline bool KnownFlows::Take(const udp::Endpoint* endpoint,
                                                    packet::Buffer* buffer, uint8_t* frame,
                                                    uint32_t length, size_t most) const {
  const Entry& entry = entries_[PlaceOf(frame)];
  uint32_t payload_bytes = 0;
  const bool takes = IsOf(entry.header.data(), frame, length, &payload_bytes) &&
                     entry.endpoint == endpoint && payload_bytes <= most;
  if (!takes) [[unlikely]] return false;
  buffer->data = frame + wire::kPlainPayloadOffset;
  buffer->length = payload_bytes;
  entry.endpoint->CountReceived(payload_bytes);
  return true;
}

[[gnu::always_inline]] inline const KnownFlows::Entry* KnownFlows::Find(
    const uint8_t* frame, uint32_t length, uint32_t* payload_bytes) const {
  const Entry& entry = entries_[PlaceOf(frame)];
  return IsOf(entry.header.data(), frame, length, payload_bytes) ? &entry : nullptr;
}

[[gnu::always_inline]] inline bool KnownFlows::Write(packet::Buffer* buffer, uint8_t* frame,
                                                     uint32_t length, uint64_t hw_clock,
                                                     Completion* out) const {
  uint32_t payload_bytes = 0;
  const Entry* const entry = Find(frame, length, &payload_bytes);
  if (entry == nullptr) [[unlikely]] return false;
  WriteAs(*entry, buffer, frame, payload_bytes, out);
  WriteTime(hw_clock, out);
  return true;
}

[[gnu::always_inline]] inline void KnownFlows::WriteAs(const Entry& entry, packet::Buffer* buffer,
                                                       uint8_t* frame, uint32_t payload_bytes,
                                                       Completion* out) const {
  uint8_t* const payload = frame + wire::kPlainPayloadOffset;
  buffer->data = payload;
  buffer->length = payload_bytes;
  out->data = payload;
  out->length = payload_bytes;
  entry.endpoint->CountReceived(payload_bytes);
  auto* const to = reinterpret_cast<uint8_t*>(out);
  base::Store32(to, base::Load32(entry.head.data()));
  out->buffer = buffer;
  out->count = 1;
  out->poll_tsc = ticks_;
  base::Store32(to + offsetof(Completion, source_ip), base::Load32(entry.tail.data()));
  base::Store32(to + offsetof(Completion, source_port), base::Load32(entry.tail.data() + 32));
}

[[gnu::always_inline]] inline void KnownFlows::WriteTime(uint64_t hw_clock, Completion* out) const {
  out->hw_clock = hw_clock;
  out->hw_time_ns = scale_.ToNanoseconds(hw_clock);
}

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_KNOWN_FLOWS_WRITE_H_
