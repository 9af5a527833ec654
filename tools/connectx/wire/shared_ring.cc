// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/shared_ring.h"

#include <algorithm>
#include <cstring>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kRecordAlignment = 8;

struct RecordHeader {
  uint32_t length_bytes;
  uint32_t complement;  // Of the length: a stray write is seen.
  int64_t time_ns;
};
static_assert(sizeof(RecordHeader) % kRecordAlignment == 0);

uint64_t AlignDown(uint64_t index) { return index & ~uint64_t{kRecordAlignment - 1}; }

uint64_t RecordBytes(size_t frame_bytes) {
  return AlignDown(sizeof(RecordHeader) + frame_bytes + kRecordAlignment - 1);
}

}  // namespace

SharedRingProducer::SharedRingProducer(SharedRingIndices* indices, std::span<uint8_t> bytes)
    : indices_(indices),
      bytes_(bytes),
      head_(AlignDown(indices->head.load(std::memory_order_acquire))) {}

bool SharedRingProducer::Push(std::span<const uint8_t> frame, int64_t time_ns) {
  const uint64_t record_bytes = RecordBytes(frame.size());
  // Acquire: the consumer has read what it gave back before we write over it. More in use than the
  // ring has is a consumer that lies, and only cheats itself.
  const uint64_t used = head_ - indices_->tail.load(std::memory_order_acquire);
  if (used > bytes_.size() || bytes_.size() - used < record_bytes) return false;
  const auto length = static_cast<uint32_t>(frame.size());
  const RecordHeader header{.length_bytes = length, .complement = ~length, .time_ns = time_ns};
  CopyIn(head_, &header, sizeof(header));
  CopyIn(head_ + sizeof(header), frame.data(), frame.size());
  head_ += record_bytes;
  // Release: the record is whole before the index that covers it. Dying before this line leaves
  // nothing.
  indices_->head.store(head_, std::memory_order_release);
  return true;
}

void SharedRingProducer::CopyIn(uint64_t index, const void* from, size_t length) {
  const size_t at = index & (bytes_.size() - 1);
  const size_t first = std::min(length, bytes_.size() - at);
  std::memcpy(&bytes_[at], from, first);
  std::memcpy(bytes_.data(), static_cast<const uint8_t*>(from) + first, length - first);
}

SharedRingConsumer::SharedRingConsumer(SharedRingIndices* indices, std::span<const uint8_t> bytes)
    : indices_(indices), bytes_(bytes) {
  Discard(indices_->head.load(std::memory_order_acquire));
}

SharedRingConsumer::Result SharedRingConsumer::Pop(std::span<uint8_t> memory, Frame* frame) {
  const uint64_t head = indices_->head.load(std::memory_order_acquire);
  if (head == tail_) return Result::kEmpty;
  const uint64_t waiting = head - tail_;
  if (waiting > bytes_.size() || waiting < sizeof(RecordHeader)) return Discard(head);
  // One copy of the header: the peer may write to the original while we look at it.
  RecordHeader header;
  CopyOut(tail_, &header, sizeof(header));
  const size_t longest = std::min(memory.size(), kMaxFrameBytes);
  if (header.complement != ~header.length_bytes || header.length_bytes > longest ||
      RecordBytes(header.length_bytes) > waiting) {
    return Discard(head);
  }
  CopyOut(tail_ + sizeof(header), memory.data(), header.length_bytes);
  *frame = {memory.first(header.length_bytes), header.time_ns};
  tail_ += RecordBytes(header.length_bytes);
  // Release: we have read the record before the producer may write over it.
  indices_->tail.store(tail_, std::memory_order_release);
  return Result::kFrame;
}

SharedRingConsumer::Result SharedRingConsumer::Discard(uint64_t head) {
  tail_ = AlignDown(head);
  indices_->tail.store(tail_, std::memory_order_release);
  return Result::kCorrupt;
}

void SharedRingConsumer::CopyOut(uint64_t index, void* to, size_t length) const {
  const size_t at = index & (bytes_.size() - 1);
  const size_t first = std::min(length, bytes_.size() - at);
  std::memcpy(to, &bytes_[at], first);
  std::memcpy(static_cast<uint8_t*>(to) + first, bytes_.data(), length - first);
}

}  // namespace xtreme::connectx
