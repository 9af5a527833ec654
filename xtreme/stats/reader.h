// SPDX-License-Identifier: Apache-2.0
//
// Reads published segments (layout.h) of other processes, living or dead.
//
// Invariant: a segment is what somebody else wrote; nothing in it is believed before it is checked,
// and no work or memory follows from it beyond the file's own length, at most kMaxFileBytes. A file
// that changes or shrinks meanwhile is an error, never a fault: it is read, not mapped.
// Threads: any.

#ifndef XTREME_XTREME_STATS_READER_H_
#define XTREME_XTREME_STATS_READER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/stats/layout.h"

namespace xtreme::stats {

inline constexpr std::string_view kFilePrefix = "xtreme.";

struct Counter {
  std::string scope;
  std::string name;
  std::string meaning;
  uint64_t value = 0;
};

struct SocketCounters {
  uint64_t handle = 0;
  std::array<uint8_t, 16> local_ip = {};
  std::array<uint8_t, 16> remote_ip = {};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint8_t protocol = 0;
  std::string state;
  std::vector<uint64_t> values;  // In the order of Segment::socket_names.
};

struct Group {
  uint64_t socket = 0;
  std::array<uint8_t, 16> group_ip = {};
  uint16_t port = 0;
  uint16_t vlan_id = 0;
};

struct Segment {
  uint32_t pid = 0;
  uint32_t ring = 0;
  std::string interface;
  std::string program;
  std::string description;
  int64_t published_ns = 0;        // CLOCK_MONOTONIC of the writer's machine.
  bool closed = false;             // The ring was closed; these are its last values.
  bool torn = false;               // The writer was caught, or killed, while it wrote.
  bool alive = false;              // The writing process is there. ReadSegment only.
  uint32_t sockets_left_out = 0;
  std::vector<Counter> counters;
  std::vector<Counter> socket_names;  // Their values are 0.
  std::vector<SocketCounters> sockets;
  uint32_t groups_left_out = 0;
  std::vector<Group> groups;
};

// The segment in `bytes`. InvalidArgument: what of it is wrong.
absl::StatusOr<Segment> ParseSegment(std::span<const uint8_t> bytes);

// Reads one file; again, a few times, when the writer wrote meanwhile. NotFound, PermissionDenied:
// the file. InvalidArgument: it is not a segment.
absl::StatusOr<Segment> ReadSegment(const std::string& path);

// Whether a program or an interface called `wanted` is published as `shown`: cut where it is too
// long, and with a ? for each byte that is not printable. An empty one is any.
bool IsNamed(std::string_view wanted, std::string_view shown);

// The paths of all segments of a directory, sorted. A directory that cannot be read has none.
std::vector<std::string> ListSegments(const std::string& directory);

// Removes the segments of killed processes that the caller may remove; how many.
int RemoveStale(const std::string& directory);

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_READER_H_
