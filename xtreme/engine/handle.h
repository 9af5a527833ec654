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

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// Objects by handle. The table owns none of them. Never allocates after construction.
template <typename T>
class HandleTable {
 public:
  // Its places are `first` and the `capacity` - 1 after it.
  HandleTable(uint16_t ring, uint32_t capacity, uint32_t first = 0)
      : ring_(ring), first_(first), capacity_(capacity), places_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) places_[i].next_free = i + 1;
  }

  // 0: the table is full.
  Handle Insert(T* object) {
    if (free_ == capacity_) return 0;
    const uint32_t at = free_;
    Place& place = places_[at];
    free_ = place.next_free;
    place.object = object;
    ++size_;
    return MakeHandle(ring_, first_ + at, place.generation);
  }

  // Null for a stale handle.
  T* Find(Handle handle) const {
    const uint32_t at = PlaceOf(handle) - first_;
    if (at >= capacity_) return nullptr;
    const Place& place = places_[at];
    return place.generation == GenerationOf(handle) ? place.object : nullptr;
  }

  // What stands at a place now, of whatever generation; null when nothing does.
  T* At(uint32_t place) const {
    const uint32_t at = place - first_;
    return at < capacity_ ? places_[at].object : nullptr;
  }

  void Erase(Handle handle) {
    const uint32_t at = PlaceOf(handle) - first_;
    Place& place = places_[at];
    place.object = nullptr;
    place.generation = place.generation == kHandleFieldMask ? 1 : place.generation + 1;
    place.next_free = free_;
    free_ = at;
    --size_;
  }

  std::span<std::byte> memory() { return std::as_writable_bytes(std::span(places_)); }
  uint32_t size() const { return size_; }
  uint32_t capacity() const { return capacity_; }

 private:
  struct Place {
    T* object = nullptr;
    uint32_t generation = 1;
    uint32_t next_free = 0;
  };

  const uint16_t ring_;
  const uint32_t first_;
  const uint32_t capacity_;
  std::vector<Place> places_;
  uint32_t free_ = 0;
  uint32_t size_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_HANDLE_H_
