// SPDX-License-Identifier: Apache-2.0
//
// HeldBuffers: how many buffers of one socket the application holds, up to a limit.
//
// A buffer does not know its socket, so nobody is told of a release. Instead each received buffer
// gets a serial number in a table of the ring, and when the limit is reached the list is gone
// through: what is free, or was received again since, is held no more.
// Invariant: a socket without a limit has no such list and costs nothing.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_HELD_BUFFERS_H_
#define XTREME_XTREME_ENGINE_HELD_BUFFERS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "stack/base/counters.h"
#include "stack/packet/buffer.h"

namespace xtreme::engine {

// Received buffers, numbered as they come: one number for each place in the pool.
class BufferSerials {
 public:
  explicit BufferSerials(uint32_t buffers) : of_(std::make_unique<uint32_t[]>(buffers)) {}
  void Received(const packet::Buffer* buffer) { of_[buffer->index] = ++last_; }
  uint32_t Of(const packet::Buffer* buffer) const { return of_[buffer->index]; }

 private:
  std::unique_ptr<uint32_t[]> of_;
  uint32_t last_ = 0;
};

struct HeldCounters {
  uint64_t held_limit = 0;

  static constexpr auto Table() {
    using C = HeldCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"held_limit", "datagrams dropped because max_held buffers were held", &C::held_limit},
    });
  }
};
static_assert(base::DescribesEveryCounter<HeldCounters>());

class HeldBuffers {
 public:
  // Of the socket whose buffers they are; 0 if it has no limit.
  static const HeldCounters& CountersOf(const HeldBuffers* held) {
    static constexpr HeldCounters kNone;
    return held == nullptr ? kNone : held->counters;
  }

  HeldBuffers(uint32_t limit, const BufferSerials* serials)
      : limit_(limit), serials_(serials), held_(std::make_unique<Held[]>(limit)) {}

  // Whether `count` more may be held. `poll` is a number that changes from poll to poll: the list
  // is gone through at most once in each.
  bool HasRoom(uint32_t count, uint64_t poll) {
    if (count_ + count > limit_) Sweep(poll);
    return count_ + count <= limit_;
  }

  HeldCounters counters;

  // Counts `buffer` as held; false: the limit is reached.
  bool Add(const packet::Buffer* buffer, uint64_t poll) {
    if (count_ == limit_ && !Sweep(poll)) return false;
    held_[count_++] = {buffer, serials_->Of(buffer)};
    return true;
  }

 private:
  struct Held {
    const packet::Buffer* buffer = nullptr;
    uint32_t serial = 0;
  };

  bool StillHeld(const Held& held) const {
    if (serials_->Of(held.buffer) != held.serial) return false;
    const int32_t foreign =
        packet::ForeignCount(held.buffer->foreign.load(std::memory_order_relaxed));
    return static_cast<int32_t>(held.buffer->owner_references) + foreign > 0;
  }

  bool Sweep(uint64_t poll) {
    if (swept_in_ == poll) return false;
    swept_in_ = poll;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      if (StillHeld(held_[i])) held_[kept++] = held_[i];
    }
    count_ = kept;
    return count_ < limit_;
  }

  const uint32_t limit_;
  const BufferSerials* const serials_;
  std::unique_ptr<Held[]> held_;
  uint32_t count_ = 0;
  uint64_t swept_in_ = ~uint64_t{0};
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_HELD_BUFFERS_H_
