// SPDX-License-Identifier: Apache-2.0
//
// A map from a small key to a pointer, for demultiplexing: open addressing with linear probing over
// a power of two of slots, deletion by shifting back, so there are no tombstones and a lookup never
// gets slower with age.
//
// The invariant: between a key's home slot and its slot no slot is free, and at least a quarter of
// the slots are free. Only the constructor and `Reserve` allocate: a lookup or an insertion never
// does. The map owns no pointee. One thread.
#ifndef XTREME_STACK_BASE_SMALL_HASH_MAP_H_
#define XTREME_STACK_BASE_SMALL_HASH_MAP_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace xtreme::base {

// Spreads the entropy of `key` over 64 bits: the two halves of the product with an odd constant,
// folded.
constexpr uint64_t MixBits(uint64_t key) {
  constexpr uint64_t kOddConstant = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
  const unsigned __int128 product = static_cast<unsigned __int128>(key) * kOddConstant;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// `Key` is copyable, comparable by ==, and has `uint64_t Hash() const`, whose low bits are used.
template <typename Key, typename Value>
class SmallHashMap {
 public:
  // Room for `capacity` keys without growing.
  explicit SmallHashMap(size_t capacity) { Allocate(capacity); }

  SmallHashMap(SmallHashMap&&) = default;
  SmallHashMap& operator=(SmallHashMap&&) = default;

  size_t size() const { return size_; }
  // How many keys fit. At least what was asked for.
  size_t capacity() const { return CapacityOf(slot_count()); }
  // Bytes of the table.
  size_t memory_bytes() const { return slot_count() * sizeof(Slot); }

  // The pointer stored for `key`, or null.
  Value* Find(const Key& key) const {
    for (size_t i = key.Hash() & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.value == nullptr || slot.key == key) return slot.value;
    }
  }

  // Stores `value`, which is not null, for `key`; replaces what was there. False when the map is
  // full and the key is new: call Reserve from the slow path.
  bool Insert(const Key& key, Value* value) {
    Slot& slot = slots_[SlotFor(key)];
    if (slot.value == nullptr) {
      if (size_ == capacity()) return false;
      ++size_;
      slot.key = key;
    }
    slot.value = value;
    return true;
  }

  // Removes `key` and returns what was stored for it, or null when there was nothing.
  Value* Erase(const Key& key) {
    size_t hole = SlotFor(key);
    Value* erased = slots_[hole].value;
    if (erased == nullptr) return nullptr;
    for (size_t i = Next(hole); slots_[i].value != nullptr; i = Next(i)) {
      // An entry may move back into the hole unless its home lies after the hole, in probing order.
      const size_t home = slots_[i].key.Hash() & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole].value = nullptr;
    --size_;
    return erased;
  }

  // Makes room for `capacity` keys in all. Allocates and rehashes when there is less: slow path
  // only.
  void Reserve(size_t capacity) {
    if (capacity <= this->capacity()) return;
    SmallHashMap larger(std::max(capacity, 2 * this->capacity()));
    ForEach([&larger](const Key& key, Value* value) { larger.Insert(key, value); });
    *this = std::move(larger);
  }

  // Calls `visit(key, value)` for each, in no order. The map must not change meanwhile.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (size_t i = 0; i < slot_count(); ++i) {
      if (slots_[i].value != nullptr) visit(slots_[i].key, slots_[i].value);
    }
  }

 private:
  struct Slot {
    Key key{};
    Value* value = nullptr;  // null: the slot is free
  };

  static constexpr size_t kMinSlots = 4;

  static constexpr size_t CapacityOf(size_t slots) { return slots - slots / 4; }

  void Allocate(size_t capacity) {
    const size_t slots = std::max(kMinSlots, std::bit_ceil(capacity + (capacity + 2) / 3));
    slots_ = std::make_unique<Slot[]>(slots);
    mask_ = slots - 1;
  }

  size_t slot_count() const { return mask_ + 1; }
  size_t Next(size_t i) const { return (i + 1) & mask_; }

  // The slot that holds `key`, or the free one where it would go.
  size_t SlotFor(const Key& key) const {
    size_t i = key.Hash() & mask_;
    while (slots_[i].value != nullptr && !(slots_[i].key == key)) i = Next(i);
    return i;
  }

  std::unique_ptr<Slot[]> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_SMALL_HASH_MAP_H_
