// SPDX-License-Identifier: Apache-2.0
//
// A lock-free ring of Ethernet frames between one producer thread and one consumer thread, in fixed
// slots: a frame is copied in once and read in place.
//
// Invariant: the producer writes only slots in [head, tail + size), the consumer reads only slots
// in [tail, head); both indices run freely and only their difference counts.
// Units: frames; times are whatever nanoseconds the producer hands in.
// Thread: Push by one thread at a time, Front and Pop by one thread at a time, Empty by either.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_FRAME_RING_H_
#define XTREME_TOOLS_CONNECTX_WIRE_FRAME_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class FrameRing {
 public:
  // One frame in place; valid until Pop.
  struct Frame {
    std::span<const uint8_t> bytes;
    int64_t time_ns;
  };

  // `slots` is a power of two. The memory of a slot is touched when the slot is first used.
  explicit FrameRing(uint32_t slots);

  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  // Copies `frame` (at most kMaxFrameBytes) in. False: the ring is full.
  bool Push(std::span<const uint8_t> frame, int64_t time_ns);

  // True if nothing waits.
  bool Empty() const;

  // The oldest frame; the ring must not be empty.
  Frame Front() const;
  // Gives the oldest frame's slot back to the producer.
  void Pop();

 private:
  struct alignas(64) Slot {
    int64_t time_ns;
    uint32_t length_bytes;
    uint8_t bytes[kMaxFrameBytes];
  };

  const uint32_t mask_;
  const std::unique_ptr<Slot[]> slots_;

  // Written by the producer.
  alignas(64) std::atomic<uint32_t> head_{0};
  uint32_t seen_tail_ = 0;  // A lower bound of tail_, so that most pushes read no foreign line.

  // Written by the consumer.
  alignas(64) std::atomic<uint32_t> tail_{0};
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_FRAME_RING_H_
