// SPDX-License-Identifier: Apache-2.0
//
// What every item of the hardware list does with a ring: bring it up with a socket, ask the peer,
// count the answers.
//
// The peer is `hardware --serve`: it answers each datagram with itself, and sends what a command
// asks for (Command). Units: nanoseconds of CLOCK_MONOTONIC. Threads: the one that opened the ring.

#ifndef XTREME_BENCHMARKS_HARDWARE_BENCH_RING_H_
#define XTREME_BENCHMARKS_HARDWARE_BENCH_RING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/xtreme.hpp"

namespace xtreme::hardware {

inline constexpr uint16_t kServerPort = 7'070;
inline constexpr uint16_t kGroupPort = 7'071;
inline constexpr char kGroup[] = "239.77.70.70";

// A datagram that begins with `magic` is one; all others are echoed.
struct Command {
  static constexpr uint64_t kMagic = 0x7861'6d65'7274'7821;
  enum Kind : uint32_t { kBurst = 1, kGroupBurst = 2, kLongFrames = 3 };
  uint64_t magic = kMagic;
  uint32_t kind = kBurst;
  // Datagrams of 64 bytes, to who asks or to the group. Long ones go to the group too, a frame each
  // and by the peer's kernel; none does where its interface's MTU is below kLongMtu.
  uint32_t count = 0;
};
inline constexpr int kLongMtu = 4'000;

struct RoundTrips {
  uint64_t asked = 0;
  std::vector<int64_t> times_ns;  // Of those that were answered, sorted.

  int64_t Quantile(double part) const;
};

class BenchRing {
 public:
  using Settings = std::map<std::string, std::string>;

  // A started ring with one socket that is connected to `peer`. A text: what went wrong.
  static std::optional<std::string> Open(const std::string& interface, const std::string& peer,
                                         const Settings& settings, BenchRing* ring);

  // Asks `count` times with `bytes` bytes, one at a time. An answer that differs counts as none.
  RoundTrips Ask(uint32_t count, size_t bytes);
  // Sends a command.
  void Tell(const Command& command);
  // PACKETs that come until none did for `patience_ms`.
  uint64_t CountPackets(int64_t patience_ms);
  // Waits for an event of the ring; false: it did not come in time.
  bool AwaitEvent(int event, int64_t patience_ms);
  // Joins kGroup on a socket of its own; a text: what went wrong.
  std::optional<std::string> JoinGroup(uint32_t flags, uint32_t flow_tag = 0);
  // What an operation that succeeded had to say; empty: nothing.
  const std::string& remark() const { return remark_; }

  uint64_t Counter(const std::string& scope, const std::string& name) const;
  Ring& ring() { return *ring_; }

 private:
  std::optional<std::string> AwaitOperations(int count);
  bool Answer(std::span<const uint8_t> question, int64_t deadline_ns);

  std::optional<Ring> ring_;
  UdpSocket socket_;
  UdpSocket group_;
  std::string remark_;
};

// Answers until `seconds` are over; 0: for ever. The exit code.
int Serve(const std::string& interface, uint64_t seconds);

}  // namespace xtreme::hardware

#endif  // XTREME_BENCHMARKS_HARDWARE_BENCH_RING_H_
