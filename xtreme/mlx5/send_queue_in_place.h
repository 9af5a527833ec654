// SPDX-License-Identifier: Apache-2.0
//
// Of SendQueue, for its own files: what is due with a WQE beside the post, its signal and the
// ring's end, where it goes from registers to its place at once.
//
// The invariant: EnterInPlace(), the doorbell, AttendInPlace(), and nothing is posted in between.

#ifndef XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_
#define XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "xtreme/mlx5/send_queue.h"

namespace xtreme::mlx5 {

// What SetCompletion(kAlways) sets, in the second word of a WQE.
constexpr uint64_t kAskForCompletion = uint64_t{MLX5_WQE_CTRL_CQ_UPDATE}
                                       << (offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) - 8) * 8;

[[gnu::always_inline]] inline nic::TxStatus SendQueue::AttendToSignal(uint64_t units) {
  ahead_ = !AskedIsDue();
  if (!ahead_) [[unlikely]] return AttendAfter();
  const uint32_t room = frames_ + completed_ - FramesOf(units);
  behind_ahead_ = units + std::min(std::min(room, options_.signal_every - 1), BeforeEnd());
  attention_at_ = units;  // The front is not ready: it was due with the signal.
  return nic::TxStatus::kPosted;
}

inline void SendQueue::NoteSignal(uint64_t units, uint32_t slot, uint32_t end) {
  marks_[slot] = {FramesOf(units), device_memory_.TakeMark(), end};
  signal_at_ = static_cast<uint32_t>(units) + options_.signal_every - 1;
  ++*completions_due_;
}

template <size_t kHalves>
[[gnu::always_inline]] inline void SendQueue::EnterInPlace(bool signal,
                                                           nic::HalfLine (&halves)[kHalves]) {
  constexpr uint32_t kBlocks = kHalves / 2;
  const uint32_t first = Index();
  const auto place = [&](uint32_t block) {
    return reinterpret_cast<nic::HalfLine*>(wqebbs_ + size_t{block & mask_} * kWqebbBytes);
  };
  if (signal) [[likely]] halves[0] |= nic::HalfLine{0, kAskForCompletion};
  // The place of `first`: attention is due before the front's would be beyond the ring.
  auto* at = reinterpret_cast<nic::HalfLine*>(front_.next_wqe);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (i != 0) at = place(first + i);
    at[0] = halves[2 * i];
    at[1] = halves[2 * i + 1];
  }
  front_.next_wqe = reinterpret_cast<uint8_t*>(place(first + kBlocks));
  AdvanceOverEnd(kBlocks);
}

[[gnu::always_inline]] inline nic::TxStatus SendQueue::AttendInPlace(bool signal, uint32_t first,
                                                                     uint32_t end) {
  if (!signal) return AttendAfter();
  const uint64_t units = front_.units();
  NoteSignal(units, first & mask_, end);
  return AttendToSignal(units);
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_
