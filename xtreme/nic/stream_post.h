// SPDX-License-Identifier: Apache-2.0
//
// A whole post of a TCP segment whose headers are not built ahead: its WQE is put together in
// registers of the processor and goes from there to the queue and to BlueFlame (doorbell.h).
//
// The invariant: headers are Ethernet without a tag, IPv4 without options, and TCP with timestamps,
// 66 bytes, whose checksums are the device's; so TCP's own 32 are half a cache line of the WQE, and
// the payload begins with the next. What differs from segment to segment stands in two halves.
// Byte order: headers as on the wire; arguments in host order. One thread, the queue's.
// Spec: PRM, "Send WQE"; RFC 9293 section 3.1; RFC 7323 appendix A.

#ifndef XTREME_XTREME_NIC_STREAM_POST_H_
#define XTREME_XTREME_NIC_STREAM_POST_H_

#include <cstdint>

#include "stack/base/byte_order.h"
#include "xtreme/nic/doorbell.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {

struct StreamSegment {
  static constexpr uint32_t kFrameAt = kStreamFrameAt;
  static constexpr uint32_t kTcpAt = 34;         // In the frame.
  static constexpr uint32_t kHeaderBytes = 66;
  static constexpr uint32_t kPayloadAt = kFrameAt + kHeaderBytes;
  static constexpr uint32_t kMostPayloadBytes = kStreamWqeBytes - kPayloadAt;
  static constexpr uint32_t kPayloadReadable = kMostPayloadBytes;

  const uint8_t* headers;    // As they are but for lengths and `tcp`.
  HalfLine tcp;              // Its header, as it goes out.
  const uint8_t* payload;    // kPayloadReadable bytes can be read, whatever the length.
  uint32_t payload_length;   // 1 .. kMostPayloadBytes.
};

// The first half line of its WQE: control and Ethernet segment, and two bytes of the frame.
[[gnu::always_inline]] inline HalfLine StreamStart(const TxFront& front,
                                                   const StreamSegment& segment) {
  constexpr uint32_t kUnit = 16;  // Of the length of a WQE.
  const uint32_t frame_bytes = StreamSegment::kHeaderBytes + segment.payload_length;
  const uint32_t units = (StreamSegment::kFrameAt + frame_bytes + kUnit - 1) / kUnit;
  const uint64_t index = static_cast<uint16_t>(front.producer);
  const uint64_t control = base::HostToBigEndian(front.stream_control + (index << 40) + units);
  const uint64_t length = base::HostToBigEndian(static_cast<uint16_t>(frame_bytes));
  const uint64_t first = base::LoadNative<uint16_t>(segment.headers);
  return HalfLine{control, 0, front.stream_offloads, length << 32 | first << 48};
}

// The second: the rest of the Ethernet header and IPv4's, whose total length is its eighth word.
[[gnu::always_inline]] inline HalfLine StreamAddresses(const StreamSegment& segment) {
  typedef uint16_t Words __attribute__((vector_size(32), may_alias));
  constexpr uint32_t kIpAt = 14;
  HalfLine half;
  __builtin_memcpy(&half, segment.headers + sizeof(HalfLine) - StreamSegment::kFrameAt,
                   sizeof(half));
  Words words = reinterpret_cast<Words>(half);
  const uint32_t total = StreamSegment::kHeaderBytes - kIpAt + segment.payload_length;
  words[7] = base::HostToBigEndian(static_cast<uint16_t>(total));
  return reinterpret_cast<HalfLine>(words);
}

template <uint32_t kBlocks>
[[gnu::always_inline]] inline void PostStreamBlocks(TxFront& front, const StreamSegment& segment) {
  constexpr uint32_t kBlockBytes = 64, kBefore = StreamSegment::kPayloadAt / sizeof(HalfLine);
  static_assert(StreamSegment::kPayloadAt % sizeof(HalfLine) == 0);
  HalfLine halves[2 * kBlocks];
  halves[0] = StreamStart(front, segment);
  halves[1] = StreamAddresses(segment);
  halves[2] = segment.tcp;
#pragma GCC unroll 8
  for (uint32_t i = kBefore; i < 2 * kBlocks; ++i) {
    __builtin_memcpy(&halves[i], segment.payload + (i - kBefore) * sizeof(HalfLine),
                     sizeof(HalfLine));
  }
  auto* const wqe = reinterpret_cast<HalfLine*>(front.next_wqe);
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 2 * kBlocks; ++i) wqe[i] = halves[i];
  front.next_wqe += kBlocks * kBlockBytes;
  RingReady(front, StreamSegment::kHeaderBytes + segment.payload_length, halves);
}

// Posts it and rings for it. The front is a StreamFront() and Ready(). What stands behind the
// payload where that is read is written to the WQE and sent nowhere.
[[gnu::always_inline]] inline void PostStream(TxFront& front, const StreamSegment& segment) {
  constexpr uint32_t kBlockBytes = 64;
  constexpr uint32_t kOfTwo = 2 * kBlockBytes - StreamSegment::kPayloadAt;
  if (segment.payload_length <= kOfTwo) return PostStreamBlocks<2>(front, segment);
  if (segment.payload_length <= kOfTwo + kBlockBytes) return PostStreamBlocks<3>(front, segment);
  PostStreamBlocks<4>(front, segment);
}

}  // namespace xtreme::nic

#endif  // XTREME_XTREME_NIC_STREAM_POST_H_
