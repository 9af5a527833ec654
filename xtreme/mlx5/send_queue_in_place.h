// SPDX-License-Identifier: Apache-2.0
//
// Of SendQueue, for its own files and TappedQueuePair: what is due with a WQE beside the post, its
// signal, the ring's end and a completion that is taken, where it goes from registers to its place
// at once; and a segment of TCP with which nothing is.
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

[[gnu::always_inline]] inline bool SendQueue::TakeSent(const mlx5_cqe64& cqe) {
  const Mark& mark = marks_[WqeCounter(cqe) & mask_];
  // Blocks that hold no signalled frame still have the count of one that completed in an earlier
  // lap: whoever wrote this CQE, counts do not run backwards, nor beyond what was posted.
  const uint32_t under_way = posted_frames() - completed_;
  if (mark.frames - completed_ - 1 >= under_way) [[unlikely]] {
    ++counters_->tx_malformed;
    return false;
  }
  completed_ = mark.frames;
  device_memory_.Release(mark.memory);
  oldest_wqebb_ = mark.end;
  return true;
}

// Without a time, so only where nobody waits for one. Errors are Poll()'s, but nothing more is
// posted behind one.
[[gnu::always_inline]] inline void SendQueue::TakeOneAhead() {
  ahead_ = false;
  SetAttention(behind_ahead_);
  const mlx5_cqe64& cqe = completions_.Next();
  const uint8_t op_owner = completions_.NextOpOwner();
  if (!IsWrittenSent(op_owner)) [[unlikely]] {
    if (!IsWritten(op_owner)) return;
    frames_ = 0;
    SetAttention(front_.units());
    return;
  }
  const bool sent = TakeSent(cqe);
  asked_ = completed_;  // Never so old that it seems to be ahead.
  if (sent) {
    if (untold_) --*completions_due_;
    untold_ = true;  // For Poll() one is still due.
  }
  completions_.Pop();
  completions_.Publish();
}

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

template <size_t kHalves>
[[gnu::always_inline]] inline bool SendQueue::EnterStream(const nic::StreamSegment& segment,
                                                          nic::HalfLine (&halves)[kHalves]) {
  const bool signal = NextIsSignalled();
  nic::LoadStream(front_, segment, halves);
  EnterInPlace(signal, halves);
  front_.direct_bytes += segment.frame_bytes();
  return signal;
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
