// SPDX-License-Identifier: Apache-2.0
//
// Indices of a ring of 2^n entries that run freely and are masked only when a slot is touched.
//
// The invariant: consumer <= producer <= consumer + entries, in arithmetic modulo 2^32. So empty
// and full differ without a spare entry, and the lap of an index (the owner bit of a CQE) can be
// read off it. Units: entries. Not thread safe: a ring shared by two threads keeps one atomic index
// each.
#ifndef XTREME_STACK_BASE_RING_INDEX_H_
#define XTREME_STACK_BASE_RING_INDEX_H_

#include <bit>
#include <cstdint>

namespace xtreme::base {

// The number of entries of a ring: a power of two up to 2^31, the most at which `used` and "one lap
// ahead" still differ in 32 bits.
class RingSize {
 public:
  static constexpr uint32_t kMaxLog2 = 31;

  // 2^`log2` entries; `log2` at most kMaxLog2.
  constexpr explicit RingSize(uint32_t log2) : log2_(log2) {}

  // The smallest size of at least `entries`, which is 1 to 2^31.
  static constexpr RingSize Covering(uint32_t entries) {
    return RingSize(static_cast<uint32_t>(std::bit_width(entries - 1)));
  }

  constexpr uint32_t log2() const { return log2_; }
  constexpr uint32_t entries() const { return 1u << log2_; }
  constexpr uint32_t mask() const { return entries() - 1; }
  // Where the entry with free-running `index` lies.
  constexpr uint32_t Slot(uint32_t index) const { return index & mask(); }
  // How many times the ring had been filled before `index`; its lowest bit is the owner bit.
  constexpr uint32_t Lap(uint32_t index) const { return index >> log2_; }

 private:
  uint32_t log2_;
};

// The producer's and the consumer's index of one ring.
class RingIndices {
 public:
  constexpr explicit RingIndices(RingSize size) : size_(size) {}

  constexpr RingSize size() const { return size_; }
  constexpr uint32_t producer() const { return producer_; }
  constexpr uint32_t consumer() const { return consumer_; }
  constexpr uint32_t producer_slot() const { return size_.Slot(producer_); }
  constexpr uint32_t consumer_slot() const { return size_.Slot(consumer_); }

  constexpr uint32_t used() const { return producer_ - consumer_; }
  constexpr uint32_t free() const { return size_.entries() - used(); }
  constexpr bool empty() const { return producer_ == consumer_; }
  constexpr bool full() const { return used() == size_.entries(); }

  // `entries` is at most free().
  constexpr void Produce(uint32_t entries) { producer_ += entries; }
  // `entries` is at most used().
  constexpr void Consume(uint32_t entries) { consumer_ += entries; }

 private:
  RingSize size_;
  uint32_t producer_ = 0;
  uint32_t consumer_ = 0;
};

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_RING_INDEX_H_
