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

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_IN_PLACE_H_
