// SPDX-License-Identifier: Apache-2.0
//
// A ring of frames in memory that another process writes too: one producer, one consumer, records
// of any length. Neither side trusts the other's words.
//
// Invariant: each side keeps its own index to itself and only publishes it; what it reads of the
// other side is checked against the ring's size. So a peer that dies at any instruction leaves
// whole frames or none, and one that writes nonsense costs frames, never memory.
// Units: bytes; indices run freely, their difference counts. A record is 16 bytes (length, its
// complement, time) and the frame, padded to 8.
// Thread: each side has one caller at a time.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_SHARED_RING_H_
#define XTREME_TOOLS_CONNECTX_WIRE_SHARED_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace xtreme::connectx {

// Where both sides publish how far they are. In shared memory.
struct SharedRingIndices {
  alignas(64) std::atomic<uint64_t> head;  // Written by the producer.
  alignas(64) std::atomic<uint64_t> tail;  // Written by the consumer.
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class SharedRingProducer {
 public:
  SharedRingProducer() = default;
  // Goes on where the last producer stopped. `bytes`: a power of two of them, 8-byte aligned.
  SharedRingProducer(SharedRingIndices* indices, std::span<uint8_t> bytes);

  // Copies a frame (at most kMaxFrameBytes) in. False: there is no room.
  bool Push(std::span<const uint8_t> frame, int64_t time_ns);

 private:
  void CopyIn(uint64_t index, const void* from, size_t length);

  SharedRingIndices* indices_ = nullptr;
  std::span<uint8_t> bytes_;
  uint64_t head_ = 0;
};

class SharedRingConsumer {
 public:
  enum class Result {
    kFrame,
    kEmpty,
    kCorrupt,  // No record can look like this: what waited was thrown away.
  };

  struct Frame {
    std::span<const uint8_t> bytes;  // In the memory handed to Pop.
    int64_t time_ns = 0;
  };

  SharedRingConsumer() = default;
  // Throws away what waits: it was sent to whoever consumed before.
  SharedRingConsumer(SharedRingIndices* indices, std::span<const uint8_t> bytes);

  bool Empty() const { return indices_->head.load(std::memory_order_acquire) == tail_; }

  // Takes the oldest frame: copied into `memory` (kMaxFrameBytes), where the peer cannot change it.
  Result Pop(std::span<uint8_t> memory, Frame* frame);

 private:
  void CopyOut(uint64_t index, void* to, size_t length) const;
  Result Discard(uint64_t head);

  SharedRingIndices* indices_ = nullptr;
  std::span<const uint8_t> bytes_;
  uint64_t tail_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_SHARED_RING_H_
