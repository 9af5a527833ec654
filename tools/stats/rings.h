// SPDX-License-Identifier: Apache-2.0
//
// The rings that somebody asks about, as their counters are published, and how they changed.
//
// Threads: any; plain values.

#ifndef XTREME_TOOLS_STATS_RINGS_H_
#define XTREME_TOOLS_STATS_RINGS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xtreme/stats/reader.h"

namespace xtreme::stats {

// What is asked about; what is not set is everything.
struct Selection {
  std::string directory = "/dev/shm";
  std::optional<uint32_t> pid;
  std::optional<uint32_t> ring;
  std::string program;
  std::string interface;
  std::string socket;  // A handle ("0x10002"), an address ("10.0.0.1:7000") or a port (":7000").
};

// Why nobody can look into a directory: "/run/x: No such file or directory"; empty: one can.
std::string WhyUnreadable(const std::string& directory);

// The selected rings, by process and number. `problems` gets a sentence for each file that could
// not be read.
std::vector<Segment> Collect(const Selection& selection, std::vector<std::string>* problems);

// Of `rings` what is selected; of each ring the selected sockets.
std::vector<Segment> Select(const Selection& selection, std::vector<Segment> rings);

// How old a ring's values are: one that runs publishes once a second. Never less than 0, whatever
// the segment says of its time.
int64_t AgeNs(const Segment& ring, int64_t now_ns);

// Whether a counter is a level, which goes up and down, and not a count.
bool IsLevel(std::string_view scope, std::string_view name);

// `after` with what its counts rose by since `before`; levels, and what was not there, as they are.
std::vector<Segment> RisesSince(const std::vector<Segment>& before, std::vector<Segment> after);

// "10.0.0.1:7000"; "*" for an address or port that is 0.
std::string AddressText(const std::array<uint8_t, 16>& ip, uint16_t port);
std::string HandleText(uint64_t handle);
// "udp", "tcp" or the number.
std::string ProtocolText(uint8_t protocol);

// The value of a counter; 0 when there is none.
uint64_t ValueOf(const Segment& ring, std::string_view scope, std::string_view name);
// Name and value of each counter of a socket, of its protocol's.
std::vector<std::pair<std::string, uint64_t>> CountersOf(const Segment& ring,
                                                         const SocketCounters& socket);

// A published histogram, put together again.
struct Distribution {
  std::string scope;  // "poll_gap_ns"
  // Bound (exclusive, in ns) and how many were below it and not below the one before; the last
  // bound is 0: all others.
  std::vector<std::pair<uint64_t, uint64_t>> buckets;
  uint64_t sum = 0;
  uint64_t max = 0;

  uint64_t count() const;
  // The bound below which `part` of the values are; of the last bucket the greatest seen.
  uint64_t Quantile(double part) const;
};
std::vector<Distribution> DistributionsOf(const Segment& ring);
bool IsOfDistribution(const Counter& counter);

}  // namespace xtreme::stats

#endif  // XTREME_TOOLS_STATS_RINGS_H_
