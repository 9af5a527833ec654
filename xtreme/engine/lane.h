// SPDX-License-Identifier: Apache-2.0
//
// Lane: one thread's way into a ring it does not own: a single-producer queue of two 64-bit words.
//
// Invariant: entries come out once and in order. One is there when the top bit of its work is its
// lap's: the producer writes that word last, so the owner finds an entry by the line it stands in,
// and touches no other of the producer's. The owner writes `head`, which the producer reads only
// when its own copy says full.
// Threads: one producer at a time, one consumer (the ring's owner).

#ifndef XTREME_XTREME_ENGINE_LANE_H_
#define XTREME_XTREME_ENGINE_LANE_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace xtreme::engine {

// What a lane carries: a value, and what is to be done with it: 63 bits.
struct LaneEntry {
  uint64_t value = 0;
  uint64_t work = 0;
};

class Lane {
 public:
  static constexpr uint32_t kCapacity = 4096;

  // Producer. False: full.
  bool Push(const LaneEntry& entry) {
    const uint32_t tail = tail_;
    if (tail - cached_head_ >= room_) {
      cached_head_ = head_.load(std::memory_order_acquire);
      // What was taken came after what stands beside.
      if (cached_head_ != beside_at_) room_ = kCapacity;
      if (tail - cached_head_ >= room_) return false;
    }
    Slot& slot = slots_[tail % kCapacity];
    slot.value = entry.value;
    slot.work.store(entry.work | LapOf(tail), std::memory_order_release);
    tail_ = tail + 1;
    return true;
  }

  // Producer. Whether the owner has taken out everything, as far as it tells.
  bool AllTaken() {
    if (cached_head_ != tail_) cached_head_ = head_.load(std::memory_order_acquire);
    return cached_head_ == tail_;
  }

  // Producer, where AllTaken(): an entry stands elsewhere, before those of the lane, and is one of
  // the kCapacity that may wait.
  void CountOneBeside() {
    room_ = kCapacity - 1;
    beside_at_ = tail_;
  }

  // Owner. Calls `take(entry)` on entries, oldest first, as long as `may()`, on no more than fit;
  // how many.
  template <typename May, typename Take>
  uint32_t DrainWhile(May&& may, Take&& take) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    uint32_t count = 0;
    for (;; ++count) {
      const Slot& slot = slots_[(head + count) % kCapacity];
      const uint64_t work = slot.work.load(std::memory_order_acquire);
      if (!IsThere(work, head + count) || !may()) break;
      take(LaneEntry{.value = slot.value, .work = work & ~kLap});
    }
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
    const uint32_t head = head_.load(std::memory_order_relaxed);
    return !IsThere(slots_[head % kCapacity].work.load(std::memory_order_acquire), head);
  }

 private:
  static constexpr uint64_t kLap = uint64_t{1} << 63;

  struct Slot {
    uint64_t value = 0;
    std::atomic<uint64_t> work{0};
  };

  // Of entry number `at`: set in the first lap, which finds 0.
  static constexpr uint64_t LapOf(uint32_t at) { return (at / kCapacity) % 2 == 0 ? kLap : 0; }
  static constexpr bool IsThere(uint64_t work, uint32_t at) { return (work & kLap) == LapOf(at); }

  // The producer's.
  alignas(64) uint32_t tail_ = 0;
  uint32_t cached_head_ = 0;
  uint32_t room_ = kCapacity;  // Entries that may wait here.
  uint32_t beside_at_ = 0;     // tail_ as one was counted beside.
  // Written by the owner.
  alignas(64) std::atomic<uint32_t> head_{0};
  // Written by the producer.
  alignas(64) std::array<Slot, kCapacity> slots_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LANE_H_
