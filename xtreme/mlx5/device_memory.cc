// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device_memory.h"

#include "xtreme/mlx5/copy.h"
#include "xtreme/mlx5/doorbell.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kLineBytes = 64;

constexpr uint32_t WholeLines(uint32_t bytes) {
  return (bytes + kLineBytes - 1) & ~(kLineBytes - 1);
}

// Whole lines in ascending order, each with two stores: write-combining buffers then leave full.
// Of `from` no byte beyond `bytes` is read.
void CopyLines(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  size_t at = 0;
  for (; at + 4 * kLineBytes <= bytes; at += 4 * kLineBytes) {
    Copy64(to + at, from + at);
    Copy64(to + at + kLineBytes, from + at + kLineBytes);
    Copy64(to + at + 2 * kLineBytes, from + at + 2 * kLineBytes);
    Copy64(to + at + 3 * kLineBytes, from + at + 3 * kLineBytes);
  }
  for (; at + kLineBytes <= bytes; at += kLineBytes) Copy64(to + at, from + at);
  if (at == bytes) return;
  alignas(kLineBytes) uint8_t rest[kLineBytes] = {};
  CopyShort(rest, from + at, bytes - static_cast<uint32_t>(at));
  Copy64(to + at, rest);
}

}  // namespace

DeviceMemoryRing::DeviceMemoryRing(const DeviceMemory& memory, uint32_t frames)
    : memory_(memory),
      size_(memory.bytes_log2 == 0 ? 0 : 1u << memory.bytes_log2),
      piece_mask_(frames - 1),
      pieces_(size_ == 0 ? nullptr : std::make_unique<Piece[]>(frames)) {}

uint32_t DeviceMemoryRing::PlaceFor(uint32_t bytes) const {
  const uint32_t left_of_lap = size_ - (head_ & (size_ - 1));
  return bytes <= left_of_lap ? head_ : head_ + left_of_lap;
}

void DeviceMemoryRing::Reclaim(uint32_t completed) {
  for (; oldest_ != newest_; ++oldest_) {
    const Piece& piece = pieces_[oldest_ & piece_mask_];
    if (static_cast<int32_t>(completed - piece.frame) < 0) return;
    tail_ = piece.end;
  }
  // Empty: begin a lap, so that the longest payload fits.
  head_ = tail_ = 0;
}

std::optional<uint32_t> DeviceMemoryRing::Write(const uint8_t* payload, uint32_t length,
                                                uint32_t frame, uint32_t completed) {
  const uint32_t bytes = WholeLines(length);
  if (bytes > size_) return std::nullopt;
  if (!HasRoom(bytes)) Reclaim(completed);
  if (!HasRoom(bytes)) return std::nullopt;
  const uint32_t place = PlaceFor(bytes);
  head_ = place + bytes;
  pieces_[newest_++ & piece_mask_] = {.frame = frame, .end = head_};
  const uint32_t address = place & (size_ - 1);
  CopyLines(memory_.bytes + address, payload, length);
  FlushDeviceMemory();
  return address;
}

}  // namespace xtreme::mlx5
