// SPDX-License-Identifier: Apache-2.0
//
// Of SendQueue, for its own files and TappedQueuePair: the posts that are made twice, as somebody
// sees their WQEs or nobody does.
//
// What sees is shown each WQE once, when it was entered and its doorbell rung, if that was due; and
// what it was made of, if that was a TxPrepared or a TxFrame:
//   see(halves), see(halves, prepared)   in registers of the processor;
//   see(wqe), see(wqe, prepared)         in memory, kSeenBytes of it, until the next post;
//   see(wqe, frame, bytes)               the same of so many, when the payload stands elsewhere.
// Not shown: what was not posted, and warm sends, which reach no wire. It posts nothing. By value:
// of two pointers it stays in registers wherever it goes.

#ifndef XTREME_XTREME_MLX5_SEND_QUEUE_SEEN_H_
#define XTREME_XTREME_MLX5_SEND_QUEUE_SEEN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "xtreme/mlx5/send_queue.h"
#include "xtreme/mlx5/send_queue_in_place.h"
#include "xtreme/mlx5/software_checksum.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5 {

struct UnseenWqe {
  template <typename Wqe, typename... From>
  void operator()(const Wqe&, const From&...) const {}
};

constexpr uint32_t kSeenBytes = 2 * kWqebbBytes;

// Finishes the checksums of a frame that stands whole in its WQE, and asks for none of them.
inline void SumInline(uint8_t* wqe, uint32_t header_length, uint32_t payload_length) {
  const std::span frame(wqe + kInlineOffset, header_length + payload_length);
  FinishChecksums(ChecksumsOf(wqe), frame.first(header_length), frame.subspan(header_length));
  SetChecksums(wqe, 0);
}

inline void CopyBlocks(uint8_t* to, const uint8_t* from, uint32_t wqebbs) {
  for (uint32_t at = 0; at < wqebbs * kWqebbBytes; at += kWqebbBytes) Copy64(to + at, from + at);
}

// As Ring(); calls nothing where it rings by BlueFlame, or not yet.
template <typename See, typename From>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::RingSeen(const uint8_t* wqe,
                                                                uint32_t wqebbs, uint32_t flags,
                                                                const From& from, See see) {
  const bool more = (flags & nic::kTxMore) != 0;
  if (!more && !MayRingByBlueFlame(wqebbs)) return RingByDoorbellSeen(wqe, from, see);
  Ring(wqe, wqebbs, flags);
  see(wqe, from);
  return nic::TxStatus::kPosted;
}

template <typename See, typename From>
[[gnu::noinline]] nic::TxStatus SendQueue::RingByDoorbellSeen(const uint8_t* wqe, const From& from,
                                                              See see) {
  ++otherwise_rung_;
  RingByDoorbell(wqe);
  see(wqe, from);
  return nic::TxStatus::kPosted;
}

// --- Any frame -----------------------------------------------------------------------------------

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostPlainSeen(const nic::TxFrame& frame,
                                                                     See see) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  uint8_t* const wqe = front_.next_wqe;
  const uint32_t segments = SegmentsWithInline(bytes);
  const uint32_t wqebbs = WqebbsOfSegments(segments);
  WriteControl(wqe, static_cast<uint16_t>(Index()), MLX5_OPCODE_SEND, qpn_, segments,
               Completion::kOnError);
  WriteEthernet(wqe, frame.flags, bytes);
  WriteInlineFrame(wqe, frame.header, frame.header_length, frame.payload, frame.payload_length);
  front_.next_wqe = wqe + wqebbs * kWqebbBytes;
  front_.Advance(wqebbs);
  counters_->tx_bytes += bytes;
  return RingSeen(wqe, wqebbs, frame.flags, frame, see);
}

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostOtherwiseSeen(const nic::TxFrame& frame,
                                                                         See see) {
  if (ahead_) TakeAhead();
  if (IsFull()) return Refuse();
  if ((frame.flags & nic::kTxWarm) != 0) return PostWarm(frame);
  constexpr uint32_t kChecksums = nic::kTxIpChecksum | nic::kTxL4Checksum;
  if (!options_.checksums && (frame.flags & kChecksums) != 0) return PostSummed(frame, see);
  return PostAs<MLX5_OPCODE_SEND>(frame, see);
}

// What the device is asked for and cannot do is done here.
template <typename See>
[[gnu::noinline]] nic::TxStatus SendQueue::PostSummed(const nic::TxFrame& frame, See see) {
  uint8_t header[128];
  WriteHeader(header, frame.header, frame.header_length);
  FinishChecksums(frame.flags, std::span(header).first(frame.header_length),
                  {frame.payload, frame.payload_length});
  nic::TxFrame summed = frame;
  summed.header = header;
  summed.flags &= static_cast<uint16_t>(~(nic::kTxIpChecksum | nic::kTxL4Checksum));
  return PostAs<MLX5_OPCODE_SEND>(summed, see);
}

template <uint32_t kOpcode, typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostAs(const nic::TxFrame& frame, See see) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  if (bytes <= kMaxInlineFrameBytes) return PostWhole<kOpcode>(frame, see);
  return PostLong<kOpcode>(frame, see);
}

template <uint32_t kOpcode, typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostWhole(const nic::TxFrame& frame,
                                                                 See see) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  const uint32_t segments = SegmentsWithInline(bytes);
  uint8_t* const wqe = NextWqe();
  WriteControl(wqe, static_cast<uint16_t>(Index()), kOpcode, qpn_, segments, Completion::kOnError);
  WriteEthernet(wqe, frame.flags, bytes);
  WriteInlineFrame(wqe, frame.header, frame.header_length, frame.payload, frame.payload_length);
  Commit(wqe, WqebbsOfSegments(segments), bytes, frame.flags);
  see(wqe);
  return nic::TxStatus::kPosted;
}

template <uint32_t kOpcode, typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostLong(const nic::TxFrame& frame,
                                                                See see) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  if (bytes > options_.max_frame_bytes) return nic::TxStatus::kTooLong;
  const Gather payload = PlaceOf(frame);
  if (payload.key == 0) return nic::TxStatus::kTooLong;
  const uint32_t header_segments = SegmentsWithInline(frame.header_length);
  const uint32_t segments = header_segments + 1;
  uint8_t* const wqe = NextWqe();
  WriteControl(wqe, static_cast<uint16_t>(Index()), kOpcode, qpn_, segments, Completion::kOnError);
  WriteEthernet(wqe, frame.flags, frame.header_length);
  WriteGatheredFrame(wqe, frame, payload, header_segments);
  Commit(wqe, WqebbsOfSegments(segments), bytes, frame.flags);
  see(wqe, frame, bytes);
  return nic::TxStatus::kPosted;
}

[[gnu::always_inline]] inline void SendQueue::Commit(uint8_t* wqe, uint32_t wqebbs, uint32_t bytes,
                                                     uint32_t flags) {
  const uint32_t first = Index();
  const uint32_t slot = first & mask_;
  // Where it was due; an attention that comes too early costs less than one made anew each time.
  const bool due = AttentionIsDue();
  const bool signal = NextIsSignalled();
  const bool asked = (flags & nic::kTxSignal) != 0;
  AdvanceOverEnd(wqebbs);
  if (signal || asked) {
    SetCompletion(wqe, Completion::kAlways);
    NoteSignal(front_.units(), slot, first + wqebbs);
    if (asked) asked_ = posted_frames();
    ahead_ = !AskedIsDue();
  }
  if (wqe == scratch_) SpreadOverRingEnd(slot, wqebbs);
  front_.next_wqe = wqebbs_ + size_t{Index() & mask_} * kWqebbBytes;
  counters_->tx_bytes += bytes;
  if (due) UpdateAttention();
  Ring(wqe, wqebbs, flags);
}

// --- Frames that were built ahead ----------------------------------------------------------------

// For what posts it in registers.
template <typename See>
[[gnu::always_inline]] inline auto OfPrepared(const nic::TxPrepared& prepared, See see) {
  return [&prepared, see](const auto& halves) __attribute__((always_inline)) {
    see(halves, prepared);
  };
}

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostPreparedSeen(
    const nic::TxPrepared& prepared, uint32_t flags, See see) {
  if (ahead_) TakeOneAhead();
  if (flags == 0 && front_.Ready() && prepared.direct_blocks != 0) {
    const auto seen = OfPrepared(prepared, see);
    if (prepared.direct_blocks == 2) {
      nic::PostReady<2>(front_, prepared, nic::Unedited(), seen);
    } else {
      nic::PostReady<3>(front_, prepared, nic::Unedited(), seen);
    }
    return nic::TxStatus::kPosted;
  }
  if (MayPostInPlace(prepared, flags)) {
    return prepared.direct_blocks == 3 ? PostInPlace<3>(prepared, see)
                                       : PostInPlace<2>(prepared, see);
  }
  if (AttentionIsDue() || (flags & ~uint32_t{nic::kTxMore}) != 0) {
    return PostSpecial(prepared, flags, see);
  }
  return PostInMemory(prepared, flags, see);
}

template <typename See>
[[gnu::noinline]] nic::TxStatus SendQueue::PostInMemory(const nic::TxPrepared& prepared,
                                                        uint32_t flags, See see) {
  uint8_t* const wqe = front_.next_wqe;
  const uint32_t wqebbs = prepared.blocks();
  CopyBlocks(wqe, prepared.image.data(), wqebbs);
  base::StoreBe16(wqe + 1, static_cast<uint16_t>(Index()));
  front_.next_wqe = wqe + wqebbs * kWqebbBytes;
  front_.Advance(wqebbs);
  counters_->tx_bytes += prepared.frame_bytes();
  return RingSeen(wqe, wqebbs, flags, prepared, see);
}

// As PostReady() does; and the signal, if it is due, and the next lap of the ring. For one of them
// it is here.
template <uint32_t kBlocks, typename See>
[[gnu::noinline]] nic::TxStatus SendQueue::PostInPlace(const nic::TxPrepared& prepared, See see) {
  const uint32_t first = Index();
  const uint32_t behind = BlocksBehind();
  if (behind < kBlocks) [[unlikely]] return PostAtEnd<kBlocks>(prepared, see);
  const bool signal = NextIsSignalled();
  const auto edit = [signal](auto& halves) {
    if (signal) [[likely]] halves[0] |= nic::HalfLine{0, kAskForCompletion};
  };
  nic::PostReady<kBlocks>(front_, prepared, edit, OfPrepared(prepared, see));
  return AttendInPlace(signal, first, first + kBlocks);
}

// The same of a WQE that ends with the ring, or goes over its end.
template <uint32_t kBlocks, typename See>
[[gnu::noinline]] nic::TxStatus SendQueue::PostAtEnd(const nic::TxPrepared& prepared, See see) {
  const uint32_t first = Index();
  const bool signal = NextIsSignalled();
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadReady(front_, prepared, halves);
  if (signal) halves[0] |= nic::HalfLine{0, kAskForCompletion};
  WriteInPlace(first, halves);
  const uint32_t record = nic::Advance(front_, prepared.step);
  if (kBlocks > 2) ++front_.wide;
  BeginLap();
  nic::RingReady(front_, record, halves);
  see(halves, prepared);
  if (signal) return AttendInPlace(signal, first, first + kBlocks);
  return AttendAhead(front_.units(), ToSignal());
}

template <typename See>
[[gnu::noinline]] nic::TxStatus SendQueue::PostSpecial(const nic::TxPrepared& prepared,
                                                       uint32_t flags, See see) {
  if (IsFull()) return Refuse();
  if ((flags & nic::kTxWarm) != 0) return PostWarm(prepared, flags);
  return PostAs<MLX5_OPCODE_SEND>(prepared, flags, see);
}

template <uint32_t kOpcode, typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostAs(const nic::TxPrepared& prepared,
                                                              uint32_t flags, See see) {
  uint8_t* const wqe = NextWqe();
  CopyBlocks(wqe, prepared.image.data(), prepared.blocks());
  base::StoreBe16(wqe + 1, static_cast<uint16_t>(Index()));
  if (kOpcode != MLX5_OPCODE_SEND) SetOpcode(wqe, kOpcode);
  if (!options_.checksums) {
    SumInline(wqe, prepared.header_bytes, prepared.frame_bytes() - prepared.header_bytes);
  }
  Commit(wqe, prepared.blocks(), prepared.frame_bytes(), flags);
  see(wqe, prepared);
  return nic::TxStatus::kPosted;
}

// Where the payload's segment is behind 42 or 46 bytes of header, as UDP's with a VLAN tag are.
constexpr uint32_t kUsualDataAt = 80;

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostStoredSeen(const nic::TxTemplate& flow,
                                                                      const uint8_t* payload,
                                                                      uint32_t payload_length,
                                                                      uint32_t flags, See see) {
  if (!options_.checksums) [[unlikely]] return nic::TxStatus::kTooLong;
  if (AttentionIsDue()) [[unlikely]] {
    // Before there is need of the room that a completion gives back.
    if (ahead_) TakeAhead();
    if (IsFull()) return Refuse();
  }
  if (!device_memory_.HasRun(payload_length) && !MakeRoomToStore(payload_length)) [[unlikely]] {
    return nic::TxStatus::kTooLong;
  }
  const uint32_t address = device_memory_.Write(payload, payload_length);
  ++counters_->tx_device_memory;
  counters_->tx_device_memory_bytes += payload_length;
  if (payload_length != flow.stored_length) [[unlikely]] SetStoredLength(flow, payload_length);
  constexpr uint32_t kAddress = offsetof(mlx5_wqe_data_seg, addr);
  if (MayPostDirectly(flow.stored, flags) && flow.data_at == kUsualDataAt) [[likely]] {
    constexpr size_t kAt = kUsualDataAt + kAddress;
    const auto edit = [address](auto& halves) __attribute__((always_inline)) {
      halves[kAt / 32][kAt % 32 / 8] = base::HostToBigEndian(uint64_t{address});
    };
    nic::PostReady(front_, flow.stored, edit, OfPrepared(flow.stored, see));
    return nic::TxStatus::kPosted;
  }
  base::StoreBe64(flow.stored.image.data() + flow.data_at + kAddress, address);
  return PostPreparedSeen(flow.stored, flags, see);
}

// --- TCP -----------------------------------------------------------------------------------------

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostSegmentsSeen(
    const nic::TxSegments& segments, See see) {
  if (IsFull()) return Refuse();
  uint32_t bytes = 0;
  for (const nic::TxGather& piece : segments.payload) bytes += piece.length;
  const bool fits = bytes != 0 && bytes <= options_.max_segmented_bytes &&
                    segments.payload.size() <= nic::kMaxTxGathers &&
                    segments.header_length <= kMaxTcpHeaderBytes &&
                    segments.header_length + segments.segment_bytes <= options_.max_frame_bytes;
  if (!fits) return nic::TxStatus::kTooLong;
  uint8_t* const wqe = NextWqe();
  const uint32_t count = WriteSegments(wqe, segments);
  WriteControl(wqe, static_cast<uint16_t>(Index()), MLX5_OPCODE_TSO, qpn_, count,
               Completion::kOnError);
  ++counters_->tx_segmented;
  Commit(wqe, WqebbsOfSegments(count), segments.header_length + bytes, segments.flags);
  see(wqe);
  return nic::TxStatus::kPosted;
}

template <uint32_t kBlocks, typename See>
[[gnu::always_inline]] inline void SendQueue::PostStreamInPlace(const nic::StreamSegment& segment,
                                                                See see) {
  const uint32_t first = Index();
  nic::HalfLine halves[2 * kBlocks];
  const bool signal = EnterStream(segment, halves);
  if (unrung_ == nullptr) {  // As in Ring().
    nic::RingReady(front_, front_.record_now(), halves);
  } else {
    ++otherwise_rung_;
    RingByDoorbell(WqeAt(first));
  }
  see(halves);
  AttendInPlace(signal, first, first + kBlocks);
}

// Behind a signalled one at once, not with the next post as others do: beside a send over TCP it is
// little, and the next one is ready.
template <typename See>
[[gnu::always_inline]] inline bool SendQueue::PostStreamOtherwiseSeen(
    const nic::StreamSegment& segment, See see) {
  if (ahead_) TakeAhead();
  if (IsFull() || !MayPostStreams()) return false;
  switch ((segment.wqe_bytes() + kWqebbBytes - 1) / kWqebbBytes) {
    case 2: PostStreamInPlace<2>(segment, see); break;
    case 3: PostStreamInPlace<3>(segment, see); break;
    default: PostStreamInPlace<4>(segment, see); break;
  }
  if (ahead_) TakeAhead();
  return true;
}

// What needs more than to be placed does of each frame where checksums are finished here.
template <typename See>
[[gnu::always_inline]] inline bool SendQueue::PlaceStreamSeen(const nic::StreamSegment& segment,
                                                              See see) {
  if (AttentionIsDue()) [[unlikely]] return PlaceStreamOtherwise(segment, see);
  const uint8_t* const wqe = front_.next_wqe;
  PlaceAtOnce(segment);
  see(wqe);
  return true;
}

// Behind one with a signal, with one, or at the ring's end.
template <typename See>
[[gnu::noinline]] bool SendQueue::PlaceStreamOtherwise(const nic::StreamSegment& segment, See see) {
  constexpr uint32_t kBlocks = 2;
  if (!options_.checksums) return false;
  if (ahead_) {
    TakeAhead();
    return PlaceStreamSeen(segment, see);
  }
  if (IsFull()) return false;
  const uint32_t first = Index();
  nic::HalfLine halves[2 * kBlocks];
  const bool signal = EnterStream(segment, halves);
  Ring(WqeAt(first), kBlocks, nic::kTxMore);
  see(halves);
  AttendInPlace(signal, first, first + kBlocks);
  return true;
}

// What is long may have a place on the device, which Post() finds. Nor is anything clear where
// checksums are finished here.
template <typename See>
[[gnu::always_inline]] inline std::optional<uint32_t> SendQueue::PostGatheredSeen(
    const nic::StreamSegment& segment, uint32_t key, uint32_t flags, See see) {
  constexpr uint32_t kBlocks = nic::kGatheredBlocks;
  const uint32_t bytes = segment.frame_bytes();
  const bool may = !device_memory_.present() && bytes <= options_.max_frame_bytes;
  if (!may || !IsClear()) [[unlikely]] return std::nullopt;
  uint8_t* const wqe = front_.next_wqe;
  const uint32_t first = Index();
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadGathered(front_, segment, key, halves);
  const bool asked = (flags & nic::kTxSignal) != 0;
  if (asked) halves[0] |= nic::HalfLine{0, kAskForCompletion};
  auto* const to = reinterpret_cast<nic::HalfLine*>(wqe);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 2 * kBlocks; ++i) to[i] = halves[i];
  nic::Advance<kBlocks>(front_, bytes);
  ++counters_->tx_gathered;
  const uint32_t posted = posted_frames();
  if (asked) {
    asked_ = posted;
    NoteSignal(front_.units(), first & mask_, first + kBlocks);
  }
  Ring(wqe, kBlocks, flags);
  see(halves);
  return posted;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_SEEN_H_
