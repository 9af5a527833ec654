// SPDX-License-Identifier: Apache-2.0
//
// SendQueue's own part of the posts of TCP segments that are put together in registers: those with
// which more is due, and those without a doorbell.

#include "xtreme/mlx5/send_queue_in_place.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5 {

template <uint32_t kBlocks>
[[gnu::always_inline]] inline void SendQueue::PostStreamInPlace(
    const nic::StreamSegment& segment) {
  const uint32_t first = Index();
  const bool signal = NextIsSignalled();
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadStream(front_, segment, halves);
  EnterInPlace(signal, halves);
  front_.direct_bytes += segment.frame_bytes();
  if (unrung_ == nullptr) {  // As in Ring().
    nic::RingReady(front_, front_.record_now(), halves);
  } else {
    ++otherwise_rung_;
    RingByDoorbell(WqeAt(first));
  }
  AttendInPlace(signal, first, first + kBlocks);
}

// Behind a signalled one at once, not with the next post as others do: beside a send over TCP it is
// little, and the next one is ready.
bool SendQueue::PostStreamOtherwise(const nic::StreamSegment& segment) {
  if (ahead_) TakeAhead();
  if (IsFull() || !MayPostStreams()) return false;
  switch ((segment.wqe_bytes() + kWqebbBytes - 1) / kWqebbBytes) {
    case 2: PostStreamInPlace<2>(segment); break;
    case 3: PostStreamInPlace<3>(segment); break;
    default: PostStreamInPlace<4>(segment); break;
  }
  if (ahead_) TakeAhead();
  return true;
}

bool SendQueue::PlaceStream(const nic::StreamSegment& segment) {
  constexpr uint32_t kBlocks = 2;
  constexpr uint32_t kLast = nic::StreamSegment::kAfterTcp / sizeof(nic::HalfLine);
  static_assert(nic::StreamSegment::kAfterTcp + sizeof(nic::HalfLine) == kBlocks * kWqebbBytes);
  // It is due of each frame where checksums are finished here.
  if (AttentionIsDue()) [[unlikely]] return PlaceStreamOtherwise(segment);
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
  return true;
}

// Behind one with a signal, with one, or at the ring's end.
[[gnu::noinline]] bool SendQueue::PlaceStreamOtherwise(const nic::StreamSegment& segment) {
  constexpr uint32_t kBlocks = 2;
  if (!options_.checksums) return false;
  if (ahead_) {
    TakeAhead();
    return PlaceStream(segment);
  }
  if (IsFull()) return false;
  const uint32_t first = Index();
  const bool signal = NextIsSignalled();
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadStream(front_, segment, halves);
  EnterInPlace(signal, halves);
  front_.direct_bytes += segment.frame_bytes();
  Ring(WqeAt(first), kBlocks, nic::kTxMore);
  AttendInPlace(signal, first, first + kBlocks);
  return true;
}

// An attention that comes too early is made anew.
[[gnu::noinline]] bool SendQueue::ClearAttention() {
  if (ahead_) TakeAhead();
  UpdateAttention();
  return !AttentionIsDue();
}

// What is long may have a place on the device, which Post() finds. Nor is anything clear where
// checksums are finished here.
std::optional<uint32_t> SendQueue::PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                                uint32_t flags) {
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
  return posted;
}

}  // namespace xtreme::mlx5
