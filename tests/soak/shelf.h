// SPDX-License-Identifier: Apache-2.0
//
// Received packets that are kept for a while: nobody may write to them meanwhile.
//
// Thread: the member's. Units: nanoseconds of the ring's clock.

#ifndef XTREME_TESTS_SOAK_SHELF_H_
#define XTREME_TESTS_SOAK_SHELF_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/model/pattern.h"

namespace xtreme::soak {

class Shelf {
 public:
  explicit Shelf(size_t most) : most_(most) {}

  bool full() const { return kept_.size() >= most_; }
  bool empty() const { return kept_.empty(); }
  // Not full.
  void Keep(Completion* packet, int64_t until_ns) {
    Packet kept = packet->Keep();
    const uint64_t digest = DigestOf(kept);
    kept_.push_back({std::move(kept), digest, until_ns});
  }
  // Lets go of those whose time is over; false: one is not what it was.
  bool Release(int64_t now_ns) {
    bool same = true;
    for (size_t i = 0; i < kept_.size();) {
      if (kept_[i].until_ns > now_ns) {
        ++i;
        continue;
      }
      same = same && DigestOf(kept_[i].packet) == kept_[i].digest;
      std::swap(kept_[i], kept_.back());
      kept_.pop_back();
    }
    return same;
  }

 private:
  struct Kept {
    Packet packet;
    uint64_t digest;
    int64_t until_ns;
  };

  static uint64_t DigestOf(const Packet& packet) {
    uint64_t digest = 0;
    const auto add = [&digest](const uint8_t* bytes, size_t length) {
      for (size_t i = 0; i < length; ++i) digest = digest * 0x100000001b3u + bytes[i];
    };
    add(packet.bytes().data(), packet.bytes().size());
    const xtreme_buffer* link = xtreme_buffer_next(packet.head());
    for (; link != nullptr; link = xtreme_buffer_next(link)) {
      add(xtreme_buffer_data(link), xtreme_buffer_length(link));
    }
    return digest;
  }

  const size_t most_;
  std::vector<Kept> kept_;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_SHELF_H_
