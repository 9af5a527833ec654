// SPDX-License-Identifier: Apache-2.0
//
// Who takes part in the soak, and the page of shared memory on which its processes tell each other
// how far they are and what they sent, received and lost.
//
// Invariant: a number has one writer, the member or the receiver it is of. Members are killed at
// any instruction, so nothing here is locked. Threads and processes: any.

#ifndef XTREME_TESTS_SOAK_BOARD_H_
#define XTREME_TESTS_SOAK_BOARD_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/model/pattern.h"

namespace xtreme::soak {

inline constexpr int kMembers = 4;
inline constexpr int kRoamer = 0;  // Has two ports; its first ring has the second as its backup.
inline constexpr int kVictim = 3;  // Is killed and started again.

// A ring on its member's first interface, and where others find it.
struct Endpoint {
  int member;
  bool has_backup;  // The second.
  const char* ip;
  uint32_t buffers;
  uint32_t receive_queue;
  bool fragments;  // It puts them together itself, for the wire has no kernel at its end.
};
inline constexpr std::array<Endpoint, 6> kEndpoints = {{
    {kRoamer, true, "10.9.0.1", 1024, 128, false},
    {kRoamer, false, "10.9.0.11", 1024, 128, false},
    {1, false, "10.9.0.2", 1024, 128, false},
    {1, false, "10.9.0.2", 1024, 128, false},
    {2, false, "10.9.0.3", 256, 64, true},
    {kVictim, false, "10.9.0.4", 512, 64, true},
}};
inline constexpr int kRings = static_cast<int>(kEndpoints.size());

inline const Endpoint& EndpointAt(int at) { return kEndpoints[static_cast<size_t>(at)]; }
// The first ring of each member receives the groups.
inline bool HearsGroups(int at) {
  return at == 0 || EndpointAt(at - 1).member != EndpointAt(at).member;
}
inline uint16_t UdpPort(int at) { return static_cast<uint16_t>(7'000 + at); }
inline uint16_t TcpPort(int at) { return static_cast<uint16_t>(8'000 + at); }
inline constexpr uint16_t kGroupPort = 26'000;

enum class Phase : int {
  kComing,  // Rings are opened.
  kNoise,   // Faults of every kind.
  kCalm,    // They end; the streams that there are go on.
  kQuiet,   // What is sent now has to arrive.
  kDrain,   // The streams end.
  kEnd,     // Everything is closed and given back.
};
inline const char* NameOf(Phase phase) {
  constexpr const char* kNames[] = {"coming", "noise", "calm", "quiet", "drain", "end"};
  return kNames[static_cast<int>(phase)];
}

// Datagrams from one ring to another; short ones have no room for a number.
struct Flow {
  std::atomic<uint64_t> sent;  // By the sender, as all that ends so.
  std::atomic<uint64_t> short_sent;
  std::atomic<uint64_t> received;  // Each once,
  std::atomic<uint64_t> repeated;  // and again.
  std::atomic<uint64_t> short_received;

  uint64_t Missing() const {
    const uint64_t numbered = sent - received;
    return short_sent > short_received ? numbered + (short_sent - short_received) : numbered;
  }
};
enum Way : int { kUnicast, kMulticast, kConnected, kWays };

// What the wires, devices and rings of a member have counted of frames and datagrams.
struct Tally {
  std::atomic<uint64_t> of_sent;      // Lost until they were on the shared wire,
  std::atomic<uint64_t> of_received;  // and behind it.
  std::atomic<uint64_t> unwanted;     // They came to a device and found no rule.
  std::atomic<uint64_t> misdirected;  // They came to the second port, by its own address.
  std::atomic<uint64_t> moves;        // Of rings, from port to port.
  std::atomic<uint64_t> repeated_of_sent;  // By the wire, as these.
  std::atomic<uint64_t> repeated_of_received;

  void Set(const Tally& other) {
    of_sent = other.of_sent.load();
    of_received = other.of_received.load();
    unwanted = other.unwanted.load();
    misdirected = other.misdirected.load();
    moves = other.moves.load();
    repeated_of_sent = other.repeated_of_sent.load();
    repeated_of_received = other.repeated_of_received.load();
  }
};

struct MemberPage {
  std::atomic<Phase> reached;
  std::atomic<uint32_t> incarnation;
  std::atomic<bool> at_backup;  // Its first ring is.
  Tally tally;
  Tally tally_in_noise;  // And in the calm: of what was sent in the quiet none is among them.
  std::array<char, 512> status;      // For people.
};

struct Board {
  using Flows = std::array<std::array<std::array<Flow, kWays>, kRings>, kRings>;

  std::atomic<Phase> phase;
  std::atomic<bool> failed;
  std::array<char, 1'024> failure;
  std::array<MemberPage, kMembers> members;
  std::array<Flows, 2> flows;  // In noise, and in the quiet.

  MemberPage& member(int at) { return members[static_cast<size_t>(at)]; }
  Flow& flow(bool quiet, int from, int to, int way) {
    return flows[quiet ? 1 : 0][static_cast<size_t>(from)][static_cast<size_t>(to)]
                [static_cast<size_t>(way)];
  }
  // The first is kept.
  void Fail(const std::string& what) {
    if (!failed.exchange(true)) Write(&failure, what);
  }
  template <size_t kSize>
  static void Write(std::array<char, kSize>* to, std::string_view text) {
    const size_t length = std::min(text.size(), kSize - 1);
    std::memcpy(to->data(), text.data(), length);
    (*to)[length] = 0;
  }
};

// SplitMix64.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return model::Mix(state_ += 0x9e3779b97f4a7c15u); }
  // 0 to `count` - 1.
  uint32_t Below(uint32_t count) { return static_cast<uint32_t>(Next() % count); }
  uint32_t Between(uint32_t least, uint32_t most) { return least + Below(most - least + 1); }
  bool OneIn(uint32_t count) { return Below(count) == 0; }

 private:
  uint64_t state_;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_BOARD_H_
