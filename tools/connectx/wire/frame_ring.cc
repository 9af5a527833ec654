// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/frame_ring.h"

#include <cstring>

namespace xtreme::connectx {

FrameRing::FrameRing(uint32_t slots)
    : mask_(slots - 1), slots_(std::make_unique_for_overwrite<Slot[]>(slots)) {}

bool FrameRing::Push(std::span<const uint8_t> frame, int64_t time_ns) {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  if (head - seen_tail_ > mask_) {
    // Acquire: the consumer has finished reading the slots it gave back before we overwrite them.
    seen_tail_ = tail_.load(std::memory_order_acquire);
    if (head - seen_tail_ > mask_) return false;
  }
  Slot& slot = slots_[head & mask_];
  slot.time_ns = time_ns;
  slot.length_bytes = static_cast<uint32_t>(frame.size());
  std::memcpy(slot.bytes, frame.data(), frame.size());
  // Release: the slot's bytes are visible before the index that covers them.
  head_.store(head + 1, std::memory_order_release);
  return true;
}

bool FrameRing::Empty() const {
  return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
}

FrameRing::Frame FrameRing::Front() const {
  const Slot& slot = slots_[tail_.load(std::memory_order_relaxed) & mask_];
  return {{slot.bytes, slot.length_bytes}, slot.time_ns};
}

void FrameRing::Pop() {
  // Release: our reads of the slot are done before the producer may overwrite it.
  tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace xtreme::connectx
