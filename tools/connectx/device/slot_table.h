// SPDX-License-Identifier: Apache-2.0
//
// Objects by number: what a QPN, a CQN or a handle finds.
//
// Invariant: a number is in use by at most one object; a freed one comes back last, so that a stale
// number is found out. Units: numbers from `first` to first + limit - 1. Thread: the caller's lock.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_SLOT_TABLE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace xtreme::connectx {

template <typename T>
class SlotTable {
 public:
  SlotTable(uint32_t first, uint32_t limit) : first_(first), limit_(limit) {}

  bool full() const { return size_ == limit_; }
  size_t size() const { return size_; }

  // Takes a number; not when full(). The object is put there by Put.
  uint32_t Reserve() {
    ++size_;
    if (slots_.size() < limit_) {
      slots_.emplace_back();
      return first_ + static_cast<uint32_t>(slots_.size()) - 1;
    }
    const uint32_t number = free_.front();
    free_.pop_front();
    return number;
  }

  T* Put(uint32_t number, std::unique_ptr<T> object) {
    return (slots_[number - first_] = std::move(object)).get();
  }

  // Nullptr when the number names nothing.
  T* Find(uint32_t number) const {
    const uint32_t index = number - first_;
    return index < slots_.size() ? slots_[index].get() : nullptr;
  }

  // The number named an object once, and names none now.
  bool WasFreed(uint32_t number) const {
    const uint32_t index = number - first_;
    return index < slots_.size() && slots_[index] == nullptr;
  }

  // Frees a number that Reserve gave, with or without an object.
  void Remove(uint32_t number) {
    slots_[number - first_].reset();
    free_.push_back(number);
    --size_;
  }

 private:
  const uint32_t first_;
  const uint32_t limit_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<T>> slots_;
  std::deque<uint32_t> free_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_SLOT_TABLE_H_
