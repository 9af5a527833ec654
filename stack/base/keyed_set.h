// SPDX-License-Identifier: Apache-2.0
//
// A set of objects by a key that each of them knows, for demultiplexing: SmallHashMap in half the
// memory. A slot is one word, the address of the object and above it bits of its key's hash, so
// that a lookup touches no other object than the one it looks for, but once in 65,536.
//
// The invariant: between a key's home slot and its slot no slot is free, and at least a quarter of
// the slots are free. Only the constructor and `Reserve` allocate. Objects have addresses of 48
// bits, as Linux gives them to all that do not ask for more: a debug build looks. The set owns
// none. One thread.
#ifndef XTREME_STACK_BASE_KEYED_SET_H_
#define XTREME_STACK_BASE_KEYED_SET_H_

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace xtreme::base {

// `Key` is copyable, comparable by ==, and has `uint64_t Hash() const`, of which all bits are used,
// and `static Key Of(const Object&)`, which does not change while the object is in the set.
template <typename Key, typename Object>
class KeyedSet {
 public:
  // Room for `capacity` objects without growing.
  explicit KeyedSet(size_t capacity) { Allocate(capacity); }

  KeyedSet(KeyedSet&&) = default;
  KeyedSet& operator=(KeyedSet&&) = default;

  size_t size() const { return size_; }
  // How many objects fit. At least what was asked for.
  size_t capacity() const { return slot_count() - slot_count() / 4; }
  // Bytes of the table.
  size_t memory_bytes() const { return slot_count() * sizeof(Slot); }

  // The object of `key`, or null.
  Object* Find(const Key& key) const { return At(slots_[SlotFor(key)]); }

  // Adds `object`, in place of the one that has its key. False when the set is full and the key is
  // new: call Reserve from the slow path.
  bool Insert(Object* object) {
    const auto address = static_cast<Slot>(reinterpret_cast<uintptr_t>(object));
    assert((address & ~kAddress) == 0 && "an address of more than 48 bits");
    const Key key = Key::Of(*object);
    Slot& slot = slots_[SlotFor(key)];
    if (slot == kFree) {
      if (size_ == capacity()) return false;
      ++size_;
    }
    slot = (key.Hash() & ~kAddress) | address;
    return true;
  }

  // Takes the object of `key` out, if there is one.
  void Erase(const Key& key) {
    size_t hole = SlotFor(key);
    if (slots_[hole] == kFree) return;
    for (size_t i = Next(hole); slots_[i] != kFree; i = Next(i)) {
      // One may move back into the hole unless its home lies after the hole, in probing order.
      const size_t home = Key::Of(*At(slots_[i])).Hash() & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = kFree;
    --size_;
  }

  // Makes room for `capacity` objects in all. Allocates and rehashes when there is less: slow path
  // only.
  void Reserve(size_t capacity) {
    if (capacity <= this->capacity()) return;
    KeyedSet larger(std::max(capacity, 2 * this->capacity()));
    for (size_t i = 0; i < slot_count(); ++i) {
      if (slots_[i] != kFree) larger.Insert(At(slots_[i]));
    }
    *this = std::move(larger);
  }

 private:
  using Slot = uint64_t;
  static constexpr Slot kFree = 0;
  static constexpr Slot kAddress = (Slot{1} << 48) - 1;
  static constexpr size_t kMinSlots = 4;

  void Allocate(size_t capacity) {
    const size_t slots = std::max(kMinSlots, std::bit_ceil(capacity + (capacity + 2) / 3));
    slots_ = std::make_unique<Slot[]>(slots);
    mask_ = slots - 1;
  }

  size_t slot_count() const { return mask_ + 1; }
  size_t Next(size_t i) const { return (i + 1) & mask_; }
  static Object* At(Slot slot) {
    return reinterpret_cast<Object*>(static_cast<uintptr_t>(slot & kAddress));
  }

  // The slot of the object of `key`, or the free one where it would go.
  size_t SlotFor(const Key& key) const {
    const uint64_t hash = key.Hash();
    for (size_t i = hash & mask_;; i = Next(i)) {
      const Slot slot = slots_[i];
      if (slot == kFree) return i;
      if (((slot ^ hash) & ~kAddress) == 0 && Key::Of(*At(slot)) == key) return i;
    }
  }

  std::unique_ptr<Slot[]> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_KEYED_SET_H_
