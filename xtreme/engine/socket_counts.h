// SPDX-License-Identifier: Apache-2.0
//
// SocketCounts: how many sockets there are of each address and port, of keys as udp::BindingKey()
// makes them. A ring is on one VLAN: those that differ in it alone are the same here.
//
// Open addressing with linear probing over a power of two of slots, of which a quarter is free;
// what goes shifts back what came after it, so that a look is never longer for what there was.
// Threads: the ring's owner. Allocates only where a key comes that was not there.

#ifndef XTREME_XTREME_ENGINE_SOCKET_COUNTS_H_
#define XTREME_XTREME_ENGINE_SOCKET_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "stack/base/small_hash_map.h"

namespace xtreme::engine {

// `Count` holds the most that there can be of one key.
template <typename Count>
class SocketCounts {
 public:
  uint32_t Of(uint64_t key) const { return slots_[Find(At(key))].count; }

  // `change` more, or fewer, on `key`; how many there are then.
  uint32_t Add(uint64_t key, int change) {
    const Slot wanted = At(key);
    size_t at = Find(wanted);
    if (slots_[at].count == 0) {
      if (++keys_ > slots_.size() - slots_.size() / 4) {
        Grow();
        at = Find(wanted);
      }
      slots_[at] = wanted;
    }
    Slot& slot = slots_[at];
    slot.count = static_cast<Count>(slot.count + change);
    const uint32_t now = slot.count;
    if (now == 0) Free(at);
    return now;
  }

 private:
  struct Slot {
    uint32_t address = 0;
    uint16_t port = 0;
    Count count = 0;  // 0: free.
  };
  static constexpr size_t kFirstSlots = 16;

  static Slot At(uint64_t key) {
    return {.address = static_cast<uint32_t>(key >> 32), .port = static_cast<uint16_t>(key)};
  }
  size_t HomeOf(const Slot& slot) const {
    return base::MixBits(uint64_t{slot.address} << 32 | slot.port) & (slots_.size() - 1);
  }
  size_t After(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  // Where `wanted` stands, or would.
  size_t Find(const Slot& wanted) const {
    size_t at = HomeOf(wanted);
    while (slots_[at].count != 0 &&
           (slots_[at].address != wanted.address || slots_[at].port != wanted.port)) {
      at = After(at);
    }
    return at;
  }
  void Grow() {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : before) {
      if (slot.count != 0) slots_[Find(slot)] = slot;
    }
  }
  void Free(size_t hole) {
    --keys_;
    for (size_t at = After(hole); slots_[at].count != 0; at = After(at)) {
      // Back into the hole, unless its home lies behind it.
      const size_t mask = slots_.size() - 1;
      const size_t from_home = (at - HomeOf(slots_[at])) & mask;
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

#endif  // XTREME_XTREME_ENGINE_SOCKET_COUNTS_H_
