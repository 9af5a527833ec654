// SPDX-License-Identifier: Apache-2.0
//
// The layout of a published segment: the counters of one ring and its sockets, in one file named
// "xtreme.PID.RING", or one beside it, that other programs read.
//
//   SegmentHeader
//   CounterName[ring_counters]      what each value of the ring is called
//   CounterName[socket_counters]    and each value of a socket
//   uint64_t[ring_counters]         the ring's values
//   { SocketHeader, uint64_t[socket_counters] } [socket_slots]
//   GroupEntry[group_slots]         the groups that the sockets joined
//
// Invariant: header (but for `state`) and names are constant; the rest is consistent while
// `sequence` is even and the same before and after reading. Little endian; times in nanoseconds of
// CLOCK_MONOTONIC. The writer holds an flock() on the file as long as it lives.
// Threads: one writer; readers are other programs.

#ifndef XTREME_XTREME_STATS_LAYOUT_H_
#define XTREME_XTREME_STATS_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace xtreme::stats {

inline constexpr std::array<char, 8> kMagic = {'X', 'T', 'C', 'O', 'U', 'N', 'T', 'S'};
inline constexpr uint32_t kVersion = 2;  // Another one: another layout, which readers refuse.

// What a reader accepts at most.
inline constexpr uint32_t kMaxCounters = 1'024;
inline constexpr uint32_t kMaxSocketSlots = 1'024;
inline constexpr uint32_t kMaxGroupSlots = 1'024;
inline constexpr size_t kMaxFileBytes = size_t{32} << 20;

// Who may read the file besides root.
enum class Access : uint8_t { kUser = 0, kGroup = 1, kAll = 2 };

// Texts end with a zero unless they fill their field.
struct SegmentHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t pid;
  uint32_t ring;             // Number of the ring in its process.
  uint32_t ring_counters;
  uint32_t socket_counters;  // Of each socket.
  uint32_t socket_slots;
  uint32_t group_slots;
  uint32_t reserved;
  std::array<char, 32> interface;
  std::array<char, 32> program;

  // Written by the publisher.
  alignas(64) uint64_t sequence;  // Odd while it writes.
  int64_t published_ns;           // When it wrote last.
  uint32_t sockets;               // Slots in use, from the first on.
  uint32_t sockets_left_out;      // Open, but without a slot.
  uint32_t groups;                // As the sockets.
  uint32_t groups_left_out;
  uint32_t closed;                // 1: the ring was closed in good order.
  uint32_t padding;
  std::array<char, 1024> description;  // What the ring got, in one line.
};
static_assert(sizeof(SegmentHeader) == 1216);

struct CounterName {
  std::array<char, 16> scope;
  std::array<char, 40> name;
  std::array<char, 136> meaning;
};
static_assert(sizeof(CounterName) == 192);

// Addresses are IPv6's, IPv4 behind ::ffff:0:0/96; ports in host order. The values of a socket are
// those whose scope is its protocol's ("udp", "tcp"); the others are 0.
struct SocketHeader {
  uint64_t handle;
  std::array<uint8_t, 16> local_ip;
  std::array<uint8_t, 16> remote_ip;
  uint16_t local_port;
  uint16_t remote_port;              // 0: not connected.
  uint8_t protocol;                  // IPPROTO_UDP, IPPROTO_TCP.
  std::array<uint8_t, 3> reserved;
  std::array<char, 16> state;        // "open", "closing", "LISTEN", "ESTABLISHED" ...
};
static_assert(sizeof(SocketHeader) == 64);

// One membership of a socket.
struct GroupEntry {
  uint64_t socket;
  std::array<uint8_t, 16> group_ip;
  uint16_t port;                     // The socket's.
  uint16_t vlan_id;
  uint32_t reserved;
};
static_assert(sizeof(GroupEntry) == 32);

// Where things stand, and how long the file is.
struct Places {
  explicit constexpr Places(const SegmentHeader& header)
      : ring_names(sizeof(SegmentHeader)),
        socket_names(ring_names + header.ring_counters * sizeof(CounterName)),
        ring_values(socket_names + header.socket_counters * sizeof(CounterName)),
        sockets(ring_values + header.ring_counters * sizeof(uint64_t)),
        socket_bytes(sizeof(SocketHeader) + header.socket_counters * sizeof(uint64_t)),
        groups(sockets + header.socket_slots * socket_bytes),
        file_bytes(groups + header.group_slots * sizeof(GroupEntry)) {}

  size_t ring_names;
  size_t socket_names;
  size_t ring_values;
  size_t sockets;
  size_t socket_bytes;
  size_t groups;
  size_t file_bytes;
};

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_LAYOUT_H_
