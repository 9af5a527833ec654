// SPDX-License-Identifier: Apache-2.0
//
// Demux: from a received segment's flow to its connection, one cache line of the table per lookup.
//
// A bucket is one cache line: sixteen bits of hash for each of six connections, compared at once,
// and a pointer to each. Only a match of those bits touches the connection, to compare the whole
// key, and that line is needed next anyway. The invariant: a bucket counts the connections that
// belong to it or before it and had to go past it, so a lookup goes on only where one did. The hash
// is keyed, for peers choose their addresses and ports. No allocation but in Reserve. One thread.
#ifndef XTREME_STACK_TCP_DEMUX_H_
#define XTREME_STACK_TCP_DEMUX_H_

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "stack/base/small_hash_map.h"
#include "stack/tcp/flow_key.h"

namespace xtreme::tcp {

// `Connection` has `const FlowKey& flow_key() const`, which does not change while it is attached.
template <typename Connection>
class Demux {
 public:
  // Room for `capacity` connections. `seed` is secret and random.
  Demux(size_t capacity, uint64_t seed) : seed_(seed), mixed_seed_(base::MixBits(~seed) | 1) {
    Allocate(capacity);
  }
  Demux(Demux&&) = default;
  Demux& operator=(Demux&&) = default;

  // The connection of `key`, or null.
  Connection* Find(const FlowKey& key) const {
    const uint64_t hash = Hash(key);
    for (size_t b = Home(hash);; b = Next(b)) {
      const Bucket& bucket = buckets_[b];
      uint32_t candidates = Matches(bucket, TagOf(hash));
      for (; candidates != 0; candidates &= candidates - 1) {
        Connection* const connection = At(bucket, candidates);
        if (connection->flow_key() == key) [[likely]]
          return connection;
      }
      if (bucket.passed == 0) [[likely]]
        return nullptr;
    }
  }

  // The same without a loop, for which the caller would save registers: only the first match where
  // it hashes to is looked at. Null says nothing.
  [[gnu::always_inline]] Connection* FindFirst(const FlowKey& key) const {
    const uint64_t hash = Hash(key);
    const Bucket& bucket = buckets_[Home(hash)];
    const uint32_t candidates = Matches(bucket, TagOf(hash));
    if (candidates == 0) [[unlikely]] return nullptr;
    Connection* const connection = At(bucket, candidates);
    return connection->flow_key() == key ? connection : nullptr;
  }

  // Attaches a connection whose key nobody has. False when the table is full: call Reserve from the
  // slow path.
  bool Attach(Connection& connection) {
    if (size_ == capacity()) return false;
    const uint64_t hash = Hash(connection.flow_key());
    size_t b = Home(hash);
    for (; buckets_[b].used == kAllUsed; b = Next(b)) ++buckets_[b].passed;
    Bucket& bucket = buckets_[b];
    const size_t slot = SlotOf(~uint32_t{bucket.used} & kAllUsed);
    bucket.used |= BitOf(slot);
    bucket.tags[slot] = TagOf(hash);
    bucket.connections[slot] = &connection;
    ++size_;
    return true;
  }

  // Detaches `connection`; false when it is not attached.
  bool Detach(const Connection& connection) {
    const uint64_t hash = Hash(connection.flow_key());
    const size_t home = Home(hash);
    for (size_t b = home;; b = Next(b)) {
      Bucket& bucket = buckets_[b];
      for (uint32_t c = Matches(bucket, TagOf(hash)); c != 0; c &= c - 1) {
        if (At(bucket, c) != &connection) continue;
        Empty(home, b, SlotOf(c));
        return true;
      }
      if (bucket.passed == 0) return false;
    }
  }

  // Makes room for `capacity` connections in all. Allocates when there is less: slow path only.
  void Reserve(size_t capacity) {
    if (capacity <= this->capacity()) return;
    Demux larger(std::max(capacity, 2 * this->capacity()), seed_);
    ForEach([&larger](Connection& connection) { larger.Attach(connection); });
    *this = std::move(larger);
  }

  // Calls `visit(Connection&)` for each, in no order. The table must not change meanwhile.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (size_t b = 0; b <= mask_; ++b) {
      for (size_t slot = 0; slot < kSlots; ++slot) {
        if (buckets_[b].used & BitOf(slot)) visit(*buckets_[b].connections[slot]);
      }
    }
  }

  // For a batch of segments: asks for the line that Find will look at.
  void Prefetch(const FlowKey& key) const { __builtin_prefetch(&buckets_[Home(Hash(key))]); }

  size_t size() const { return size_; }
  // At most two of three slots are used, so a lookup seldom sees a second bucket.
  size_t capacity() const { return (mask_ + 1) * (kSlots * 2 / 3); }
  size_t memory_bytes() const { return (mask_ + 1) * sizeof(Bucket); }
  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(buckets_.get(), mask_ + 1));
  }

 private:
  static constexpr size_t kSlots = 6;
  static constexpr uint16_t kAllUsed =
      0x555;  // every other bit, as a comparison of tags gives them

  struct alignas(64) Bucket {
    std::array<uint16_t, kSlots> tags{};
    uint16_t passed = 0;  // connections that hash here or before and stand behind
    uint16_t used = 0;    // BitOf each used slot
    std::array<Connection*, kSlots> connections{};
  };
  static_assert(sizeof(Bucket) == 64);

  // One product of the two words, each with a secret of its own (W. Yi's wyhash): who does not know
  // them cannot tell which keys meet.
  uint64_t Hash(const FlowKey& key) const {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(key.addresses ^ seed_) * (key.ports ^ mixed_seed_);
    return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
  }
  static uint16_t TagOf(uint64_t hash) { return static_cast<uint16_t>(hash >> 48); }
  size_t Home(uint64_t hash) const { return hash & mask_; }
  size_t Next(size_t b) const { return (b + 1) & mask_; }

  // BitOf each used slot whose tag is `tag`.
  static uint32_t Matches(const Bucket& bucket, uint16_t tag) {
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket));
    const __m128i equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(static_cast<int16_t>(tag)));
    return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & bucket.used;
  }
  static uint16_t BitOf(size_t slot) { return static_cast<uint16_t>(1u << 2 * slot); }
  static size_t SlotOf(uint32_t matches) {
    return static_cast<size_t>(std::countr_zero(matches)) / 2;
  }
  // The connection of the first match: its slot is half of the bit's place and a slot is eight
  // bytes, so it stands at four times that place.
  static Connection* At(const Bucket& bucket, uint32_t matches) {
    constexpr size_t kScale = sizeof(Connection*) / 2;
    const auto* const slots = reinterpret_cast<const std::byte*>(&bucket.connections);
    return *reinterpret_cast<Connection* const*>(slots + kScale * std::countr_zero(matches));
  }

  void Empty(size_t home, size_t at, size_t slot) {
    buckets_[at].used &= static_cast<uint16_t>(~BitOf(slot));
    for (size_t b = home; b != at; b = Next(b)) --buckets_[b].passed;
    --size_;
  }

  void Allocate(size_t capacity) {
    const size_t slots = capacity + capacity / 2 + kSlots;
    const size_t buckets = std::bit_ceil((slots + kSlots - 1) / kSlots);
    buckets_ = std::make_unique<Bucket[]>(buckets);
    mask_ = buckets - 1;
  }

  std::unique_ptr<Bucket[]> buckets_;
  size_t mask_ = 0;
  size_t size_ = 0;
  uint64_t seed_;
  uint64_t mixed_seed_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_DEMUX_H_
