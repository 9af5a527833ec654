// SPDX-License-Identifier: Apache-2.0
//
// Handles: 64 bits that name an object of a ring, and tell when it is gone.
//
//   63..48 number of the ring   47..24 place in its table   23..0 generation, never 0
//
// The upper half of the places are those of TCP, so that a handle tells which table has its object.
// Invariant: a place's generation changes when its object goes, so an old handle finds nothing.

#ifndef XTREME_XTREME_ENGINE_HANDLE_H_
#define XTREME_XTREME_ENGINE_HANDLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace xtreme::engine {

using Handle = uint64_t;

inline constexpr uint32_t kHandleFieldMask = (1u << 24) - 1;

constexpr Handle MakeHandle(uint16_t ring, uint32_t place, uint32_t generation) {
  return uint64_t{ring} << 48 | uint64_t{place} << 24 | generation;
}
constexpr uint16_t RingOf(Handle handle) { return static_cast<uint16_t>(handle >> 48); }
constexpr uint32_t PlaceOf(Handle handle) {
  return static_cast<uint32_t>(handle >> 24) & kHandleFieldMask;
}
constexpr uint32_t GenerationOf(Handle handle) {
  return static_cast<uint32_t>(handle) & kHandleFieldMask;
}

inline constexpr uint32_t kFirstTcpPlace = 1u << 23;
// Whether a socket's handle is that of a connection or listener; else it is a UDP socket's.
constexpr bool IsTcp(Handle handle) { return PlaceOf(handle) >= kFirstTcpPlace; }

// The objects of a table, as their handles find them. Each has a `Handle handle`, which the table
// writes: while the object is nobody's it says which place is free next, and of which generation
// the next handle of its own place is, so that no place needs more memory than its object.
//
// Invariant: what stands there then is no handle of that place. Never allocates after construction.
template <typename Object, uint32_t kFirst = 0>
class HandleTable {
 public:
  // Its places are `kFirst` and the `capacity` - 1 after it.
  HandleTable(uint16_t ring, uint32_t capacity)
      : capacity_(capacity), objects_(std::make_unique<Object[]>(capacity)), ring_(ring) {
    for (uint32_t at = 0; at < capacity; ++at) {
      objects_[at].handle = FreeWord(kFirst + at + 1, /*generation=*/1);
    }
  }

  // Whose handle is made, and nothing else; null: all are taken.
  Object* Take() {
    if (free_ == kFirst + capacity_) return nullptr;
    Object& object = objects_[free_ - kFirst];
    const Handle handle = MakeHandle(ring_, free_, GenerationOf(object.handle));
    free_ = PlaceOf(object.handle);
    object.handle = handle;
    ++size_;
    used_ = std::max(used_, PlaceOf(handle) - kFirst + 1);
    return &object;
  }
  // The object whose handle this was is nobody's.
  void Free(Handle handle) {
    const uint32_t place = PlaceOf(handle);
    const uint32_t generation = GenerationOf(handle);
    const uint32_t next = generation == kHandleFieldMask ? 1 : generation + 1;
    objects_[place - kFirst].handle = FreeWord(std::exchange(free_, place), next);
    --size_;
  }

  // Null for a stale handle. The number of its ring is not looked at.
  Object* Find(Handle handle) const {
    const uint32_t at = PlaceOf(handle) - kFirst;
    if (at >= capacity_) [[unlikely]] return nullptr;
    constexpr uint32_t kRingBits = 16;
    Object& object = objects_[at];
    return (object.handle ^ handle) << kRingBits == 0 ? &object : nullptr;
  }
  // What stands at a place now, of whatever generation, or nobody's; null when there is none.
  Object* At(uint32_t place) const {
    return place - kFirst < capacity_ ? &objects_[place - kFirst] : nullptr;
  }

  // Calls `visit` with each that is taken, from the first place on; it may free that.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    // Places fill from the first on: the last one ends the walk.
    uint32_t left = size_;
    for (uint32_t at = 0; left > 0 && at < capacity_; ++at) {
      if (PlaceOf(objects_[at].handle) != kFirst + at) continue;
      --left;
      visit(objects_[at]);
    }
  }

  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(objects_.get(), capacity_));
  }
  uint32_t size() const { return size_; }
  uint32_t capacity() const { return capacity_; }
  // The first so many places are those that were ever taken.
  uint32_t used() const { return used_; }

 private:
  // No place is free behind the last one: then `next` is the one after all.
  static Handle FreeWord(uint32_t next, uint32_t generation) {
    return MakeHandle(/*ring=*/0, next, generation);
  }

  const uint32_t capacity_;
  const std::unique_ptr<Object[]> objects_;
  const uint16_t ring_;
  uint32_t free_ = kFirst;
  uint32_t size_ = 0;
  uint32_t used_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_HANDLE_H_
