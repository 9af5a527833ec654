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
#include <utility>
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

// Whether `handle`, of whatever ring, is that of the object at its place, whose own is `of`, or
// kNobodys.
constexpr bool IsSamePlace(Handle of, Handle handle) {
  constexpr uint32_t kRingBits = 16;
  return (of ^ handle) << kRingBits == 0;
}
// Of an object whose place is nobody's: no table is so long.
inline constexpr Handle kNobodys = ~Handle{0};

// Which places of a table are taken; its owner has an object for each, which knows its handle.
// Never allocates after construction.
class HandlePlaces {
 public:
  // They are `first` and the `capacity` - 1 after it.
  HandlePlaces(uint16_t ring, uint32_t capacity, uint32_t first = 0)
      : ring_(ring), first_(first), capacity_(capacity), places_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) places_[i].next_free = i + 1;
  }

  // 0: all are taken.
  Handle Take() {
    if (free_ == capacity_) return 0;
    const uint32_t at = free_;
    free_ = std::exchange(places_[at].next_free, kTaken);
    ++size_;
    return MakeHandle(ring_, first_ + at, places_[at].generation);
  }
  void Free(Handle handle) {
    const uint32_t at = PlaceOf(handle) - first_;
    Place& place = places_[at];
    place.generation = place.generation == kHandleFieldMask ? 1 : place.generation + 1;
    place.next_free = std::exchange(free_, at);
    --size_;
  }
  // `at`: from 0 on.
  bool IsTaken(uint32_t at) const { return places_[at].next_free == kTaken; }

  // Calls `visit` with each that is taken, from 0 on; it may free that.
  template <typename Visit>
  void ForEachTaken(Visit&& visit) const {
    // Places fill from the first on: the last one ends the walk.
    uint32_t left = size_;
    for (uint32_t at = 0; left > 0 && at < capacity_; ++at) {
      if (!IsTaken(at)) continue;
      --left;
      visit(at);
    }
  }

  std::span<std::byte> memory() { return std::as_writable_bytes(std::span(places_)); }
  uint32_t size() const { return size_; }
  uint32_t capacity() const { return capacity_; }

 private:
  static constexpr uint32_t kTaken = ~uint32_t{0};
  struct Place {
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
