// SPDX-License-Identifier: Apache-2.0
//
// SendQueue's own part of the posts of TCP segments that are put together in registers: those with
// which more is due, and those without a doorbell.

#include "xtreme/mlx5/send_queue_seen.h"

namespace xtreme::mlx5 {

bool SendQueue::PostStreamOtherwise(const nic::StreamSegment& segment) {
  return PostStreamOtherwiseSeen(segment, UnseenWqe());
}

bool SendQueue::PlaceStream(const nic::StreamSegment& segment) {
  return PlaceStreamSeen(segment, UnseenWqe());
}

std::optional<uint32_t> SendQueue::PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                                uint32_t flags) {
  return PostGatheredSeen(segment, key, flags, UnseenWqe());
}

// An attention that comes too early is made anew.
[[gnu::noinline]] bool SendQueue::ClearAttention() {
  if (ahead_) TakeAhead();
  UpdateAttention();
  return !AttentionIsDue();
}

}  // namespace xtreme::mlx5
