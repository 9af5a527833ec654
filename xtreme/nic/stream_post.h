// SPDX-License-Identifier: Apache-2.0
//
// A whole post of a TCP segment whose headers are not built ahead: its WQE is put together in
// registers of the processor and goes from there to the queue and to BlueFlame (doorbell.h), or to
// the queue alone, to be rung for with others (QueuePair::PlaceStream()).
//
// The invariant: headers are Ethernet without a tag, IPv4 without options, and TCP with timestamps
// or without, 66 bytes or 54, whose checksums are the device's. So TCP's own begin a half line of
// the WQE, of 32 bytes as they are, and what differs from segment to segment stands in two halves.
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
  static constexpr uint32_t kLongestHeader = 66, kShortestHeader = 54;
  static constexpr uint32_t kAfterTcp = kFrameAt + kTcpAt + sizeof(HalfLine);  // In the WQE.
  static constexpr uint32_t kMostPayloadBytes = kStreamWqeBytes - kAfterTcp;
  // Beyond what there is of it, of the shorter header by what stands in `tcp`.
  static constexpr uint32_t kPayloadReadable =
      kMostPayloadBytes + kLongestHeader - kShortestHeader;
  // The same of PlaceStream(): behind the shorter header the most there may be.
  static constexpr uint32_t kPayloadPlaced = sizeof(HalfLine) + kLongestHeader - kShortestHeader;

  const uint8_t* headers;    // As they are but for lengths and `tcp`.
  uint32_t header_bytes;     // kLongestHeader or kShortestHeader.
  HalfLine tcp;              // TCP's as it goes out; behind the shorter one, 12 bytes of payload.
  const uint8_t* payload;    // kPayloadReadable, or Placed, bytes can be read, whatever the length.
  // 1 .. kMostPayloadBytes; of PlaceStream() 0 .. kPayloadPlaced, of PostGathered() whatever the
  // port's MTU allows.
  uint32_t payload_length;

  uint32_t frame_bytes() const { return header_bytes + payload_length; }
  uint32_t wqe_bytes() const { return kFrameAt + frame_bytes(); }
};

// The first half line of its WQE, of `units` of 16 bytes: control and Ethernet segment, which says
// how much of the frame stands in the WQE, and two bytes of that.
[[gnu::always_inline]] inline HalfLine StreamStart(const TxFront& front,
                                                   const StreamSegment& segment,
                                                   uint32_t inline_bytes, uint32_t units) {
  const uint64_t index = uint64_t{front.first_block()} << 40;
  const uint64_t control = base::HostToBigEndian(front.stream_control + index + units);
  const uint64_t length = base::HostToBigEndian(static_cast<uint16_t>(inline_bytes));
  const uint64_t first = base::LoadNative<uint16_t>(segment.headers);
  return HalfLine{control, 0, front.stream_offloads, length << 32 | first << 48};
}

// The same of a frame that stands whole in its WQE.
[[gnu::always_inline]] inline HalfLine StreamStart(const TxFront& front,
                                                   const StreamSegment& segment) {
  constexpr uint32_t kUnit = 16;
  const uint32_t units = (segment.wqe_bytes() + kUnit - 1) / kUnit;
  return StreamStart(front, segment, segment.frame_bytes(), units);
}

// The second: the rest of the Ethernet header and IPv4's, whose total length is its eighth word.
[[gnu::always_inline]] inline HalfLine StreamAddresses(const StreamSegment& segment) {
  typedef uint16_t Words __attribute__((vector_size(32), may_alias));
  constexpr uint32_t kIpAt = 14;
  HalfLine half;
  __builtin_memcpy(&half, segment.headers + sizeof(HalfLine) - StreamSegment::kFrameAt,
                   sizeof(half));
  Words words = reinterpret_cast<Words>(half);
  const uint32_t total = segment.header_bytes - kIpAt + segment.payload_length;
  words[7] = base::HostToBigEndian(static_cast<uint16_t>(total));
  return reinterpret_cast<HalfLine>(words);
}

// Its WQE in registers.
template <size_t kHalves>
[[gnu::always_inline]] inline void LoadStream(const TxFront& front, const StreamSegment& segment,
                                              HalfLine (&halves)[kHalves]) {
  constexpr uint32_t kBefore = StreamSegment::kAfterTcp / sizeof(HalfLine);
  static_assert(StreamSegment::kAfterTcp % sizeof(HalfLine) == 0);
  const uint8_t* const rest =
      segment.payload + (StreamSegment::kLongestHeader - segment.header_bytes);
  halves[0] = StreamStart(front, segment);
  halves[1] = StreamAddresses(segment);
  halves[2] = segment.tcp;
#pragma GCC unroll 8
  for (uint32_t i = kBefore; i < kHalves; ++i) {
    __builtin_memcpy(&halves[i], rest + (i - kBefore) * sizeof(HalfLine), sizeof(HalfLine));
  }
}

// The WQE of one whose payload is gathered by `key`: behind the headers, of either kind, stands the
// data segment that names it.
inline constexpr uint32_t kGatheredBlocks = 2;
[[gnu::always_inline]] inline void LoadGathered(const TxFront& front, const StreamSegment& segment,
                                                uint32_t key,
                                                HalfLine (&halves)[2 * kGatheredBlocks]) {
  constexpr uint32_t kUnits = StreamSegment::kAfterTcp / 16 + 1;
  static_assert(StreamSegment::kAfterTcp % sizeof(HalfLine) == 0);
  const uint64_t payload = reinterpret_cast<uintptr_t>(segment.payload);
  halves[0] = StreamStart(front, segment, segment.header_bytes, kUnits);
  halves[1] = StreamAddresses(segment);
  halves[2] = segment.tcp;
  halves[3] = HalfLine{base::HostToBigEndian(uint64_t{segment.payload_length} << 32 | key),
                       base::HostToBigEndian(payload)};
}

template <uint32_t kBlocks, typename See>
[[gnu::always_inline]] inline void PostStreamBlocks(TxFront& front, const StreamSegment& segment,
                                                    const See& see) {
  HalfLine halves[2 * kBlocks];
  LoadStream(front, segment, halves);
  auto* const wqe = reinterpret_cast<HalfLine*>(front.next_wqe);
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 2 * kBlocks; ++i) wqe[i] = halves[i];
  const uint32_t record = Advance<kBlocks>(front, segment.frame_bytes());
  RingReady(front, record, halves);
  see(halves);
}

// Posts it and rings for it. The front is a StreamFront() and Ready(). What stands behind the
// payload where that is read is written to the WQE and sent nowhere. `see`: as PostReady() has it.
template <typename See = Unseen>
[[gnu::always_inline]] inline void PostStream(TxFront& front, const StreamSegment& segment,
                                              const See& see = {}) {
  constexpr uint32_t kBlockBytes = 64;
  const uint32_t bytes = segment.wqe_bytes();
  if (bytes <= 2 * kBlockBytes) return PostStreamBlocks<2>(front, segment, see);
  if (bytes <= 3 * kBlockBytes) return PostStreamBlocks<3>(front, segment, see);
  PostStreamBlocks<4>(front, segment, see);
}

}  // namespace xtreme::nic

#endif  // XTREME_XTREME_NIC_STREAM_POST_H_
