// SPDX-License-Identifier: Apache-2.0
//
// A queue of a fixed number of entries: never allocates after construction. One thread.
#ifndef XTREME_STACK_TCP_FIFO_H_
#define XTREME_STACK_TCP_FIFO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stack/base/ring_index.h"

namespace xtreme::tcp {

template <typename T>
class Fifo {
 public:
  // Room for at least `capacity` entries, 1 to 2^31.
  explicit Fifo(uint32_t capacity)
      : indices_(base::RingSize::Covering(capacity)),
        entries_(std::make_unique<T[]>(indices_.size().entries())) {}

  bool empty() const { return indices_.empty(); }
  bool full() const { return indices_.full(); }
  uint32_t size() const { return indices_.used(); }
  size_t memory_bytes() const { return indices_.size().entries() * sizeof(T); }
  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(entries_.get(), indices_.size().entries()));
  }

  // It is not full.
  void Push(const T& entry) {
    entries_[indices_.producer_slot()] = entry;
    indices_.Produce(1);
  }
  // It is not empty.
  T Pop() {
    const T entry = entries_[indices_.consumer_slot()];
    indices_.Consume(1);
    return entry;
  }

  // It is not empty.
  T& front() { return entries_[indices_.consumer_slot()]; }

  // Calls `visit(T&)` for each entry, the oldest first.
  template <typename Visitor>
  void ForEach(Visitor&& visit) {
    for (uint32_t i = indices_.consumer(); i != indices_.producer(); ++i) {
      visit(entries_[indices_.size().Slot(i)]);
    }
  }

 private:
  base::RingIndices indices_;
  std::unique_ptr<T[]> entries_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_FIFO_H_
