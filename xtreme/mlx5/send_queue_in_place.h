// SPDX-License-Identifier: Apache-2.0
//
// Of SendQueue, for its own files and TappedQueuePair: what is due with a WQE beside the post, its
// signal and the ring's end, where it goes from registers to its place at once; and the posts that
// are made twice, as somebody sees their WQEs or nobody does.
//
// The invariant: EnterInPlace(), the doorbell, AttendInPlace(), and nothing is posted in between.

#ifndef XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_
#define XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "xtreme/mlx5/send_queue.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5 {

// What SetCompletion(kAlways) sets, in the second word of a WQE.
constexpr uint64_t kAskForCompletion = uint64_t{MLX5_WQE_CTRL_CQ_UPDATE}
                                       << (offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) - 8) * 8;

[[gnu::always_inline]] inline nic::TxStatus SendQueue::AttendAhead(uint64_t units,
                                                                   uint32_t to_signal) {
  if (AskedIsDue()) [[unlikely]] {
    ahead_ = false;
    return AttendAfter();
  }
  const uint32_t room = frames_ + completed_ - FramesOf(units);
  const uint32_t plain = std::min(std::min(room, to_signal), BeforeEnd());
  ahead_ = true;
  if (plain == 0) [[unlikely]] ahead_ = room == 0;
  behind_ahead_ = units + plain;
  attention_at_ = units;  // The front is not ready: it was due with the last frame.
  return nic::TxStatus::kPosted;
}

inline void SendQueue::NoteSignal(uint64_t units, uint32_t slot, uint32_t end, uint32_t next) {
  marks_[slot] = {FramesOf(units), device_memory_.TakeMark(), end};
  signal_at_ = static_cast<uint32_t>(units) + next;
  ++*completions_due_;
}

template <size_t kHalves>
[[gnu::always_inline]] inline void SendQueue::WriteInPlace(uint32_t first,
                                                           const nic::HalfLine (&halves)[kHalves]) {
  auto* at = reinterpret_cast<nic::HalfLine*>(front_.next_wqe);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kHalves / 2; ++i) {
    const size_t place = size_t{(first + i) & mask_} * kWqebbBytes;
    if (i != 0) at = reinterpret_cast<nic::HalfLine*>(wqebbs_ + place);
    at[0] = halves[2 * i];
    at[1] = halves[2 * i + 1];
  }
}

template <size_t kHalves>
[[gnu::always_inline]] inline void SendQueue::EnterInPlace(bool signal,
                                                           nic::HalfLine (&halves)[kHalves]) {
  if (signal) [[likely]] halves[0] |= nic::HalfLine{0, kAskForCompletion};
  WriteInPlace(Index(), halves);
  front_.Advance(kHalves / 2);
  BeginLap();
}

[[gnu::always_inline]] inline nic::TxStatus SendQueue::AttendInPlace(bool signal, uint32_t first,
                                                                     uint32_t end) {
  const uint64_t units = front_.units();
  if (!signal) {
    // Not where the next one may reach the ring's end: that is enough for one.
    ahead_ = BeforeEnd() != 0 && !AskedIsDue();
    return AttendAfter();
  }
  const uint32_t next = options_.signal_every - 1;  // Not to be read again behind stores.
  NoteSignal(units, first & mask_, end, next);
  return AttendAhead(units, next);
}

inline bool SendQueue::MayPostPlain(const nic::TxFrame& frame) const {
  constexpr uint32_t kSpecial = nic::kTxSignal | nic::kTxWarm;
  const uint32_t bytes = frame.header_length + frame.payload_length;
  return (frame.flags & kSpecial) == 0 && bytes <= kMaxInlineFrameBytes && !AttentionIsDue();
}

[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostPlain(const nic::TxFrame& frame) {
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
  return Ring(wqe, wqebbs, frame.flags);
}

// Of the posts that are made twice.
struct UnseenWqe {
  void operator()(const uint8_t*) const {}
  template <size_t kHalves>
  void operator()(const uint8_t*, const nic::HalfLine (&)[kHalves]) const {}
};

// Where the payload's segment is behind 42 or 46 bytes of header, as UDP's with a VLAN tag are.
constexpr uint32_t kUsualDataAt = 80;

template <typename See>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostStoredSeen(
    const nic::TxTemplate& flow, const uint8_t* payload, uint32_t payload_length, uint32_t flags,
    const See& see) {
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
  const uint8_t* const wqe = front_.next_wqe;
  constexpr uint32_t kAddress = offsetof(mlx5_wqe_data_seg, addr);
  if (MayPostDirectly(flow.stored, flags) && flow.data_at == kUsualDataAt) [[likely]] {
    constexpr size_t kAt = kUsualDataAt + kAddress;
    nic::PostReady(
        front_, flow.stored,
        [&](auto& halves) __attribute__((always_inline)) {
          halves[kAt / 32][kAt % 32 / 8] = base::HostToBigEndian(uint64_t{address});
        },
        [&](const auto& halves) __attribute__((always_inline)) { see(wqe, halves); });
    return nic::TxStatus::kPosted;
  }
  base::StoreBe64(flow.stored.image.data() + flow.data_at + kAddress, address);
  const nic::TxStatus status = PostPrepared(flow.stored, flags);
  if (status == nic::TxStatus::kPosted) see(wqe);
  return status;
}

// What is long may have a place on the device, which Post() finds. Nor is anything clear where
// checksums are finished here.
template <typename See>
[[gnu::always_inline]] inline std::optional<uint32_t> SendQueue::PostGatheredSeen(
    const nic::StreamSegment& segment, uint32_t key, uint32_t flags, const See& see) {
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
  see(wqe, halves);
  return posted;
}

[[gnu::always_inline]] inline void SendQueue::PlaceAtOnce(const nic::StreamSegment& segment) {
  constexpr uint32_t kBlocks = 2;
  constexpr uint32_t kLast = nic::StreamSegment::kAfterTcp / sizeof(nic::HalfLine);
  static_assert(nic::StreamSegment::kAfterTcp + sizeof(nic::HalfLine) == kBlocks * kWqebbBytes);
  uint8_t* const wqe = front_.next_wqe;
  auto* const halves = reinterpret_cast<nic::HalfLine*>(wqe);
  halves[0] = nic::StreamStart(front_, segment);
  halves[1] = nic::StreamAddresses(segment);
  halves[2] = segment.tcp;
  if (segment.payload_length != 0) [[unlikely]] {
    const uint32_t before = nic::StreamSegment::kLongestHeader - segment.header_bytes;
    __builtin_memcpy(&halves[kLast], segment.payload + before, sizeof(nic::HalfLine));
  }
  nic::Advance<kBlocks>(front_, segment.frame_bytes());
  Ring(wqe, kBlocks, nic::kTxMore);
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_
