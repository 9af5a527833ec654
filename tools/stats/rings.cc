// SPDX-License-Identifier: Apache-2.0

#include "tools/stats/rings.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <tuple>

#include "fmt/format.h"
#include "xtreme/stats/histogram.h"

namespace xtreme::stats {
namespace {

bool IsSelected(const Selection& selection, const Segment& ring) {
  return (!selection.pid || *selection.pid == ring.pid) &&
         (!selection.ring || *selection.ring == ring.ring) &&
         IsNamed(selection.program, ring.program) && IsNamed(selection.interface, ring.interface);
}

bool IsSelected(const std::string& wanted, const SocketCounters& socket) {
  return wanted == HandleText(socket.handle) ||
         wanted == AddressText(socket.local_ip, socket.local_port) ||
         wanted == fmt::format(":{}", socket.local_port);
}

// A count that fell began anew: it is of another process with that number (a container's 1).
uint64_t Rise(uint64_t before, uint64_t after) { return after >= before ? after - before : after; }

// The counts of `before` taken from those of `after`.
void Subtract(const Segment& before, Segment* after) {
  for (size_t i = 0; i < after->counters.size(); ++i) {
    Counter& counter = after->counters[i];
    if (i >= before.counters.size() || before.counters[i].name != counter.name) return;
    if (IsLevel(counter.scope, counter.name)) continue;
    counter.value = Rise(before.counters[i].value, counter.value);
  }
  for (SocketCounters& socket : after->sockets) {
    const auto earlier = std::find_if(before.sockets.begin(), before.sockets.end(),
                                      [&](const auto& s) { return s.handle == socket.handle; });
    if (earlier == before.sockets.end()) continue;
    for (size_t i = 0; i < std::min(socket.values.size(), earlier->values.size()); ++i) {
      socket.values[i] = Rise(earlier->values[i], socket.values[i]);
    }
  }
}

}  // namespace

std::string WhyUnreadable(const std::string& directory) {
  DIR* const listed = opendir(directory.c_str());
  if (listed == nullptr) return fmt::format("{}: {}", directory, strerror(errno));
  closedir(listed);
  return {};
}

std::vector<Segment> Collect(const Selection& selection, std::vector<std::string>* problems) {
  std::vector<Segment> rings;
  for (const std::string& path : ListSegments(selection.directory)) {
    auto segment = ReadSegment(path);
    if (segment.ok()) {
      rings.push_back(*std::move(segment));
    } else if (!absl::IsNotFound(segment.status())) {  // Closed since it was listed.
      const std::string why(segment.status().message());
      problems->push_back(why.find(path) == why.npos ? path + ": " + why : why);
    }
  }
  return Select(selection, std::move(rings));
}

std::vector<Segment> Select(const Selection& selection, std::vector<Segment> rings) {
  std::erase_if(rings, [&](const Segment& ring) { return !IsSelected(selection, ring); });
  if (!selection.socket.empty()) {
    for (Segment& ring : rings) {
      std::erase_if(ring.sockets, [&](const SocketCounters& socket) {
        return !IsSelected(selection.socket, socket);
      });
    }
    std::erase_if(rings, [](const Segment& ring) { return ring.sockets.empty(); });
  }
  std::sort(rings.begin(), rings.end(), [](const Segment& a, const Segment& b) {
    return std::tie(a.pid, a.ring) < std::tie(b.pid, b.ring);
  });
  return rings;
}

int64_t AgeNs(const Segment& ring, int64_t now_ns) {
  if (ring.published_ns >= now_ns) return 0;
  int64_t age_ns = 0;
  return __builtin_sub_overflow(now_ns, ring.published_ns, &age_ns) ? INT64_MAX : age_ns;
}

bool IsLevel(std::string_view scope, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLevels = {
      {{"pool", "buffers"},
       {"pool", "free"},
       {"pool", "low_water"},
       {"queue", "device_memory_bytes"},
       {"queue", "paced_queues"},
       {"queue", "rx_low_water"}}};
  return std::find(kLevels.begin(), kLevels.end(), std::pair(scope, name)) != kLevels.end() ||
         (scope.ends_with("_ns") && name == kMaxName);
}

std::vector<Segment> RisesSince(const std::vector<Segment>& before, std::vector<Segment> after) {
  for (Segment& ring : after) {
    const auto earlier = std::find_if(before.begin(), before.end(), [&](const Segment& b) {
      return b.pid == ring.pid && b.ring == ring.ring && b.program == ring.program;
    });
    if (earlier != before.end()) Subtract(*earlier, &ring);
  }
  return after;
}

std::string AddressText(const std::array<uint8_t, 16>& ip, uint16_t port) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  const bool is_v4 = std::equal(kMapped.begin(), kMapped.end(), ip.begin());
  const bool any = std::all_of(ip.begin() + (is_v4 ? 12 : 0), ip.end(),
                               [](uint8_t byte) { return byte == 0; });
  std::array<char, INET6_ADDRSTRLEN> text = {'*'};
  if (!any) {
    inet_ntop(is_v4 ? AF_INET : AF_INET6, ip.data() + (is_v4 ? 12 : 0), text.data(), text.size());
  }
  const std::string address = is_v4 || any ? text.data() : fmt::format("[{}]", text.data());
  return address + (port == 0 ? ":*" : fmt::format(":{}", port));
}

std::string HandleText(uint64_t handle) { return fmt::format("{:#x}", handle); }

std::string ProtocolText(uint8_t protocol) {
  if (protocol == IPPROTO_UDP) return "udp";
  return protocol == IPPROTO_TCP ? "tcp" : fmt::format("{}", protocol);
}

uint64_t ValueOf(const Segment& ring, std::string_view scope, std::string_view name) {
  for (const Counter& counter : ring.counters) {
    if (counter.scope == scope && counter.name == name) return counter.value;
  }
  return 0;
}

std::vector<std::pair<std::string, uint64_t>> CountersOf(const Segment& ring,
                                                         const SocketCounters& socket) {
  std::vector<std::pair<std::string, uint64_t>> counters;
  const std::string scope = ProtocolText(socket.protocol);
  for (size_t i = 0; i < socket.values.size(); ++i) {
    const Counter& name = ring.socket_names[i];
    if (name.scope == scope) counters.emplace_back(name.name, socket.values[i]);
  }
  return counters;
}

bool IsOfDistribution(const Counter& counter) {
  return counter.scope.ends_with("_ns") &&
         (counter.name.starts_with(kBucketPrefix) || counter.name == kLastBucket ||
          counter.name == kSumName || counter.name == kMaxName);
}

std::vector<Distribution> DistributionsOf(const Segment& ring) {
  std::vector<Distribution> all;
  for (const Counter& counter : ring.counters) {
    if (!IsOfDistribution(counter)) continue;
    if (all.empty() || all.back().scope != counter.scope) all.push_back({.scope = counter.scope});
    Distribution& distribution = all.back();
    if (counter.name == kSumName) {
      distribution.sum = counter.value;
    } else if (counter.name == kMaxName) {
      distribution.max = counter.value;
    } else {
      const size_t digits = std::min(kBucketPrefix.size(), counter.name.size());
      uint64_t bound = 0;
      std::from_chars(counter.name.data() + digits, counter.name.data() + counter.name.size(),
                      bound);
      distribution.buckets.emplace_back(counter.name == kLastBucket ? 0 : bound, counter.value);
    }
  }
  return all;
}

uint64_t Distribution::count() const {
  uint64_t all = 0;
  for (const auto& [bound, values] : buckets) all += values;
  return all;
}

uint64_t Distribution::Quantile(double part) const {
  const auto wanted = static_cast<double>(count()) * part;
  uint64_t below = 0;
  for (const auto& [bound, values] : buckets) {
    below += values;
    if (static_cast<double>(below) < wanted || below == 0) continue;
    return bound == 0 ? max : std::min(bound, std::max<uint64_t>(max, 1));
  }
  return 0;
}

}  // namespace xtreme::stats
