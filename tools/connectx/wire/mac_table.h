// SPDX-License-Identifier: Apache-2.0
//
// What a switch has learned: behind which of its ports a MAC address is. In memory that several
// processes write, without a lock.
//
// Invariant: an entry is one word, so it is whole whoever dies; it counts only while its port has
// the generation that it was learned with. The table forgets at random when it is full.
// Thread: any, of any process.
// Spec: IEEE 802.1Q-2018, 8.7 (learning) and 8.8 (filtering database).

#ifndef XTREME_TOOLS_CONNECTX_WIRE_MAC_TABLE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_MAC_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace xtreme::connectx {

class MacTable {
 public:
  struct Station {
    uint8_t port = 0;
    uint8_t generation = 0;  // Of the port when the address was seen there.

    friend bool operator==(const Station&, const Station&) = default;
  };

  // `mac` is 6 bytes in wire order; a group address or all zeros is not learned.
  void Learn(std::span<const uint8_t, 6> mac, Station station) {
    const uint64_t key = KeyOf(mac);
    if ((mac[0] & 1) != 0 || key == 0) return;
    const uint64_t entry = key << 16 | station.port << 8 | station.generation;
    Set& set = SetOf(key);
    std::atomic<uint64_t>* free = nullptr;
    for (std::atomic<uint64_t>& slot : set) {
      const uint64_t old = slot.load(std::memory_order_relaxed);
      if (old == entry) return;
      if (old >> 16 == key) return slot.store(entry, std::memory_order_relaxed);
      if (old == 0) free = &slot;
    }
    std::atomic<uint64_t>& victim = free != nullptr ? *free : set[key >> 16 & (kWays - 1)];
    victim.store(entry, std::memory_order_relaxed);
  }

  std::optional<Station> Find(std::span<const uint8_t, 6> mac) const {
    const uint64_t key = KeyOf(mac);
    for (const std::atomic<uint64_t>& slot : SetOf(key)) {
      const uint64_t entry = slot.load(std::memory_order_relaxed);
      if (entry == 0 || entry >> 16 != key) continue;
      return Station{static_cast<uint8_t>(entry >> 8), static_cast<uint8_t>(entry)};
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kSets = 256;
  static constexpr size_t kWays = 4;
  using Set = std::array<std::atomic<uint64_t>, kWays>;

  static uint64_t KeyOf(std::span<const uint8_t, 6> mac) {
    uint64_t key = 0;
    for (const uint8_t byte : mac) key = key << 8 | byte;
    return key;
  }
  // Fibonacci hashing: neighbouring addresses are in different sets.
  static size_t IndexOf(uint64_t key) { return (key * 0x9e3779b97f4a7c15 >> 32) % kSets; }
  Set& SetOf(uint64_t key) { return sets_[IndexOf(key)]; }
  const Set& SetOf(uint64_t key) const { return sets_[IndexOf(key)]; }

  std::array<Set, kSets> sets_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_MAC_TABLE_H_
