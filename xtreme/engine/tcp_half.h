// SPDX-License-Identifier: Apache-2.0
//
// TcpHalf: the TCP header of a segment as nic::StreamSegment wants it, in a register of the
// processor; and which headers it may have.
//
// Spec: RFC 9293 section 3.1; RFC 7323 appendix A.

#ifndef XTREME_XTREME_ENGINE_TCP_HALF_H_
#define XTREME_XTREME_ENGINE_TCP_HALF_H_

#include <bit>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine {

// Headers that a stream's segment can have, with timestamps and without.
inline constexpr auto kLongHeaders =
    wire::TcpTemplate::ShapeOf(nic::StreamSegment::kLongestHeader, nic::StreamSegment::kTcpAt);
inline constexpr auto kShortHeaders =
    wire::TcpTemplate::ShapeOf(nic::StreamSegment::kShortestHeader, nic::StreamSegment::kTcpAt);

// Of a segment whose 20 bytes of header are followed by `behind_bytes` of options, a multiple of 4,
// of which 12 bytes can be read, however many there are.
template <typename Outgoing>
[[gnu::always_inline]] inline nic::HalfLine TcpHalfBefore(const uint8_t* headers,
                                                          const Outgoing& outgoing,
                                                          const uint8_t* behind,
                                                          uint64_t behind_bytes) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint32_t kAt = nic::StreamSegment::kTcpAt;
  const uint64_t sequence = base::HostToBigEndian(outgoing.sequence.value());
  const uint64_t first = base::LoadNative<uint32_t>(headers + kAt) | sequence << 32;  // Ports.
  const uint64_t second = uint64_t{outgoing.acknowledgement.value()} << 32 |
                          (5 + behind_bytes / 4) << 28 | uint64_t{outgoing.flags} << 16 |
                          outgoing.window;
  // Checksum and pointer.
  const uint64_t third = base::LoadNative<uint32_t>(headers + kAt + 16);
  return nic::HalfLine{first, base::HostToBigEndian(second),
                       third | uint64_t{base::LoadNative<uint32_t>(behind)} << 32,
                       base::LoadNative<uint64_t>(behind + 4)};
}

// Of a segment without other options than timestamps, which its header has if `headers` do; these
// have no tag. `payload`: without timestamps 12 bytes of it can be read, whatever the length.
// `Outgoing` is tcp::Outgoing: who includes this has it defined.
template <typename Outgoing>
[[gnu::always_inline]] inline nic::HalfLine TcpHalf(const uint8_t* headers,
                                                    const Outgoing& outgoing,
                                                    const uint8_t* payload) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint32_t kAt = nic::StreamSegment::kTcpAt;
  constexpr uint64_t kWords = 1u << 28;  // The data offset is in words of 32 bits.
  const uint64_t sequence = base::HostToBigEndian(outgoing.sequence.value());
  const uint64_t first = base::LoadNative<uint32_t>(headers + kAt) | sequence << 32;  // Ports.
  const uint64_t second = uint64_t{outgoing.acknowledgement.value()} << 32 |
                          uint64_t{outgoing.flags} << 16 | outgoing.window;
  if (!outgoing.has_timestamps) {
    // Checksum and pointer.
    const uint64_t third = base::LoadNative<uint32_t>(headers + kAt + 16);
    return nic::HalfLine{first, base::HostToBigEndian(second | 5 * kWords),
                         third | uint64_t{base::LoadNative<uint32_t>(payload)} << 32,
                         base::LoadNative<uint64_t>(payload + 4)};
  }
  return nic::HalfLine{
      first, base::HostToBigEndian(second | 8 * kWords),
      base::LoadNative<uint64_t>(headers + kAt + 16),  // And the options' kind.
      base::HostToBigEndian(uint64_t{outgoing.timestamps.value} << 32 | outgoing.timestamps.echo)};
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_HALF_H_
