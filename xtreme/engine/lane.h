// SPDX-License-Identifier: Apache-2.0
//
// Lane: one thread's way into a ring it does not own: a single-producer queue of two 64-bit words.
//
// Invariant: entries come out once and in order; the producer writes `tail`, the owner writes
// `head`, each reads the other's only when its own copy says full or empty.
// Threads: one producer at a time, one consumer (the ring's owner).

#ifndef XTREME_XTREME_ENGINE_LANE_H_
#define XTREME_XTREME_ENGINE_LANE_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace xtreme::engine {

// What a lane carries: a value, and what is to be done with it.
struct LaneEntry {
  uint64_t value = 0;
  uint64_t work = 0;
};

class Lane {
 public:
  static constexpr uint32_t kCapacity = 4096;

  // Producer. False: full.
  bool Push(const LaneEntry& entry) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ == kCapacity) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ == kCapacity) return false;
    }
    entries_[tail % kCapacity] = entry;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // Owner. Calls `take(entry)` on entries, oldest first, as long as `may()`; how many.
  template <typename May, typename Take>
  uint32_t DrainWhile(May&& may, Take&& take) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t waiting = tail_.load(std::memory_order_acquire) - head;
    uint32_t count = 0;
    for (; count < waiting && may(); ++count) take(entries_[(head + count) % kCapacity]);
    if (count > 0) head_.store(head + count, std::memory_order_release);
    return count;
  }
  // The same on up to `max`.
  template <typename Take>
  uint32_t Drain(uint32_t max, Take&& take) {
    return DrainWhile([&max] { return max-- != 0; }, take);
  }

  // Owner.
  bool empty() const {
    return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_relaxed);
  }

 private:
  // Written by the producer.
  alignas(64) std::atomic<uint32_t> tail_{0};
  uint32_t cached_head_ = 0;
  // Written by the owner.
  alignas(64) std::atomic<uint32_t> head_{0};
  alignas(64) std::array<LaneEntry, kCapacity> entries_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LANE_H_
