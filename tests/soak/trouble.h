// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong at a member, by its seed: faults of its wires, cables that are pulled, and times
// in which it looks at nothing. Resets of its rings are the member's, when this asks for one.
//
// Thread: the member's. Units: nanoseconds of the ring's clock.

#ifndef XTREME_TESTS_SOAK_TROUBLE_H_
#define XTREME_TESTS_SOAK_TROUBLE_H_

#include <array>
#include <cstdint>

#include "tests/soak/board.h"
#include "tests/soak/wires.h"

namespace xtreme::soak {

class Trouble {
 public:
  Trouble(Wires* wires, uint64_t seed) : wires_(wires), dice_(seed) {}

  // What is due; true: a ring is to be reset.
  bool Step(int64_t now_ns);
  // It is over: the wires are as new.
  void End();
  // Bits of frames change: of a datagram in several frames more than one might.
  bool spoils() const { return spoils_; }
  // The program does not poll.
  bool IsDeaf(int64_t now_ns) const { return now_ns < deaf_until_ns_; }

 private:
  void Impair(const connectx::Impairment& impairment);
  connectx::Impairment AnyImpairment();
  void Pull(int64_t now_ns);
  int64_t After(int64_t now_ns, uint32_t least_ms, uint32_t most_ms) {
    return now_ns + int64_t{dice_.Between(least_ms, most_ms)} * 1'000'000;
  }

  Wires* const wires_;
  Dice dice_;
  bool spoils_ = false;
  int64_t next_ns_ = 0;
  int64_t deaf_until_ns_ = 0;
  std::array<int64_t, 2> pulled_until_ns_ = {};
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_TROUBLE_H_
