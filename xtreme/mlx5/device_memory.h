// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemoryRing: on-device memory as a ring that payloads are written to and sent from.
//
// Invariant: tail <= head <= tail + size (free-running counts of bytes); what lies between belongs
// to frames that are not known to have completed. A payload lies in one piece, on whole cache
// lines: the rest of a lap that is too short for it is passed over. What may be written from head
// on is known ahead, so that one comparison decides. Frames complete in order, so the ring
// remembers none of them: who is told of a completion says how far the head was then. When half of
// it was written since a frame was to have a completion, the next one is to have one: room comes
// back before the ring is full, however seldom others have.
// Units: bytes. Written by us, read by the device. Thread: the ring's owner. Never allocates.

#ifndef XTREME_XTREME_MLX5_DEVICE_MEMORY_H_
#define XTREME_XTREME_MLX5_DEVICE_MEMORY_H_

#include <cstdint>

#include "stack/base/copy.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5 {

using base::Bytes32;
using base::Copy64;
using base::CopyShort;
using base::Store32;

class DeviceMemoryRing {
 public:
  explicit DeviceMemoryRing(const DeviceMemory& memory)
      : memory_(memory), size_(memory.bytes_log2 == 0 ? 0 : 1u << memory.bytes_log2) {}

  bool present() const { return size_ != 0; }
  uint32_t key() const { return memory_.key; }

  // Whether the next payload has room as far as is known; else MakeRun() finds out.
  bool HasRun(uint32_t length) const { return WholeLines(length) <= run_; }
  // False: there is none.
  bool MakeRun(uint32_t length);
  // What MakeRun() would say.
  bool HasRoom(uint32_t length) const;
  // Behind a MakeRun() that found room: the frame of the next payload is to have a completion.
  bool mark_is_due() const { return mark_is_due_; }
  // Copies a payload that has room and flushes it towards the device. Its address under key().
  uint32_t Write(const uint8_t* payload, uint32_t length);

  // The last frame that was written will have a completion: where what was written ends.
  uint32_t TakeMark() { return marked_ = head_; }
  // Every frame has completed whose payload was written before TakeMark() said `mark`; marks come
  // back in order.
  void Release(uint32_t mark) {
    // When it was empty the head went on to the next lap: beyond older marks.
    if (static_cast<int32_t>(mark - tail_) > 0) tail_ = mark;
  }

 private:
  static constexpr uint32_t kLineBytes = 64;

  static uint32_t WholeLines(uint32_t length) {
    return (length + kLineBytes - 1) & ~(kLineBytes - 1);
  }
  // Finds `bytes` in one piece from head_ on. False: there are none, and nothing has changed.
  bool FindRun(uint32_t bytes);
  void CopyLines(uint8_t* to, const uint8_t* from, uint32_t bytes);

  const DeviceMemory memory_;
  const uint32_t size_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  uint32_t run_ = 0;  // Bytes from head_ on that are free, in one piece, and want no mark.
  uint32_t marked_ = 0;
  bool mark_is_due_ = false;
  // Where the last line of a payload is put together: what it has stands at the end of the first
  // line here, and the second, which nobody sends, behind it.
  alignas(kLineBytes) uint8_t last_[2 * kLineBytes] = {};
};

// Whole lines in ascending order, each with two stores: write-combining buffers then leave full.
// Of `from` no byte beyond `bytes` is read: the last line is put together elsewhere, and first, or
// its load would wait behind all those stores until its own bytes are in memory.
[[gnu::always_inline]] inline void DeviceMemoryRing::CopyLines(uint8_t* to, const uint8_t* from,
                                                               uint32_t bytes) {
  const auto copy = [&]<int kLines>() {
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) Copy64(to + i * kLineBytes, from + i * kLineBytes);
    to += kLines * kLineBytes;
    from += kLines * kLineBytes;
  };
  const uint32_t rest = bytes % kLineBytes;
  if (bytes >= kLineBytes) [[likely]] {
    Copy64(last_, from + bytes - kLineBytes);
  } else {
    CopyShort(last_ + kLineBytes - rest, from, rest);
  }
  uint32_t left = bytes;
  for (; left >= 8 * kLineBytes; left -= 8 * kLineBytes) copy.template operator()<8>();
  if ((left & 4 * kLineBytes) != 0) copy.template operator()<4>();
  if ((left & 2 * kLineBytes) != 0) copy.template operator()<2>();
  if ((left & kLineBytes) != 0) copy.template operator()<1>();
  if (rest != 0) Copy64(to, last_ + kLineBytes - rest);
}

[[gnu::always_inline]] inline uint32_t DeviceMemoryRing::Write(const uint8_t* payload,
                                                               uint32_t length) {
  const uint32_t bytes = WholeLines(length);
  const uint32_t address = head_ & (size_ - 1);
  head_ += bytes;
  run_ -= bytes;
  CopyLines(memory_.bytes + address, payload, length);
  nic::FlushDeviceMemory();
  return address;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_DEVICE_MEMORY_H_
