// SPDX-License-Identifier: Apache-2.0
//
// ListenerCounts: how many sockets listen on each address and port.
//
// Open addressing with linear probing over a power of two of slots, of which a quarter is free;
// what goes shifts back what came after it, so that a look is never longer for what there was.
// Threads: the ring's owner. Allocates only where a key comes that was not there.

#ifndef XTREME_XTREME_ENGINE_LISTENER_COUNTS_H_
#define XTREME_XTREME_ENGINE_LISTENER_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "stack/base/small_hash_map.h"

namespace xtreme::engine {

class ListenerCounts {
 public:
  uint32_t Of(uint64_t key) const { return slots_[Find(key)].count; }

  // `change` more, or fewer, on `key`; how many there are then.
  uint32_t Add(uint64_t key, int change) {
    size_t at = Find(key);
    if (slots_[at].count == 0) {
      if (++keys_ > slots_.size() - slots_.size() / 4) {
        Grow();
        at = Find(key);
      }
      slots_[at].key = key;
    }
    const uint32_t now = slots_[at].count += static_cast<uint32_t>(change);
    if (now == 0) Free(at);
    return now;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t count = 0;  // 0: free.
  };
  static constexpr size_t kFirstSlots = 16;

  size_t HomeOf(uint64_t key) const { return base::MixBits(key) & (slots_.size() - 1); }
  size_t After(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  // Where `key` stands, or would.
  size_t Find(uint64_t key) const {
    size_t at = HomeOf(key);
    while (slots_[at].count != 0 && slots_[at].key != key) at = After(at);
    return at;
  }
  void Grow() {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : before) {
      if (slot.count != 0) slots_[Find(slot.key)] = slot;
    }
  }
  void Free(size_t hole) {
    --keys_;
    for (size_t at = After(hole); slots_[at].count != 0; at = After(at)) {
      // Back into the hole, unless its home lies behind it.
      const size_t mask = slots_.size() - 1;
      const size_t from_home = (at - HomeOf(slots_[at].key)) & mask;
      if (from_home < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole].count = 0;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kFirstSlots);
  size_t keys_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LISTENER_COUNTS_H_
