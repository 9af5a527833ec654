// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device_memory.h"

#include <algorithm>

namespace xtreme::mlx5 {

bool DeviceMemoryRing::MakeRun(uint32_t length) {
  const uint32_t bytes = WholeLines(length);
  if (!FindRun(bytes)) return false;
  const uint32_t unmarked = head_ - marked_;
  mark_is_due_ = unmarked + bytes > size_ / 2;
  run_ = std::min(run_, mark_is_due_ ? bytes : size_ / 2 - unmarked);
  return true;
}

bool DeviceMemoryRing::HasRoom(uint32_t length) const {
  const uint32_t bytes = WholeLines(length);
  if (tail_ == head_) return bytes <= size_;
  const uint32_t left_of_lap = size_ - (head_ & (size_ - 1));
  const uint32_t free = size_ - (head_ - tail_);
  return bytes <= std::min(left_of_lap, free) || uint64_t{left_of_lap} + bytes <= free;
}

bool DeviceMemoryRing::FindRun(uint32_t bytes) {
  if (bytes > size_) return false;
  // Empty: begin a lap, so that the longest payload fits.
  if (tail_ == head_) head_ = tail_ = (head_ + size_ - 1) & ~(size_ - 1);
  const uint32_t left_of_lap = size_ - (head_ & (size_ - 1));
  const uint32_t free = size_ - (head_ - tail_);
  // Where there is no room the run stays as it was: what is free may be more than goes unmarked.
  if (const uint32_t run = std::min(left_of_lap, free); bytes <= run) {
    run_ = run;
    return true;
  }
  // The rest of the lap is passed over.
  if (uint64_t{left_of_lap} + bytes > free) return false;
  head_ += left_of_lap;
  run_ = free - left_of_lap;
  return true;
}

}  // namespace xtreme::mlx5
