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
  // It is due of each frame where checksums are finished here.
  if (AttentionIsDue()) [[unlikely]] return PlaceStreamOtherwise(segment);
  PlaceAtOnce(segment);
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

std::optional<uint32_t> SendQueue::PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                                uint32_t flags) {
  return PostGatheredSeen(segment, key, flags, UnseenWqe());
}

}  // namespace xtreme::mlx5
