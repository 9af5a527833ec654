// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device_memory.h"

#include <algorithm>

namespace xtreme::mlx5 {

DeviceMemoryRing::DeviceMemoryRing(const DeviceMemory& memory, uint32_t frames)
    : memory_(memory),
      size_(memory.bytes_log2 == 0 ? 0 : 1u << memory.bytes_log2),
      piece_mask_(frames - 1),
      pieces_(size_ == 0 ? nullptr : std::make_unique<Piece[]>(frames)) {}

void DeviceMemoryRing::Reclaim(uint32_t completed) {
  for (; oldest_ != newest_; ++oldest_) {
    const Piece& piece = pieces_[oldest_ & piece_mask_];
    if (static_cast<int32_t>(completed - piece.frame) < 0) return;
    tail_ = piece.end;
  }
  // Empty: begin a lap, so that the longest payload fits.
  head_ = tail_ = 0;
}

bool DeviceMemoryRing::MakeRun(uint32_t bytes, uint32_t completed) {
  Reclaim(completed);
  const uint32_t left_of_lap = size_ - (head_ & (size_ - 1));
  const uint32_t free = size_ - (head_ - tail_);
  run_ = std::min(left_of_lap, free);
  if (bytes <= run_) return true;
  // The rest of the lap is passed over.
  if (uint64_t{left_of_lap} + bytes > free) return false;
  head_ += left_of_lap;
  run_ = free - left_of_lap;
  return true;
}

}  // namespace xtreme::mlx5
