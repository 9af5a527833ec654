// SPDX-License-Identifier: Apache-2.0
//
// Rings for programs: JSON and Prometheus.

#include <map>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/stats/rings.h"
#include "tools/stats/views.h"

namespace xtreme::stats {
namespace {

using nlohmann::ordered_json;

ordered_json SocketToJson(const Segment& ring, const SocketCounters& socket) {
  ordered_json counters = ordered_json::object();
  for (const auto& [name, value] : CountersOf(ring, socket)) counters[name] = value;
  return {{"handle", HandleText(socket.handle)},
          {"protocol", ProtocolText(socket.protocol)},
          {"local", AddressText(socket.local_ip, socket.local_port)},
          {"remote", AddressText(socket.remote_ip, socket.remote_port)},
          {"state", socket.state},
          {"counters", counters}};
}

ordered_json DistributionToJson(const Distribution& distribution) {
  ordered_json buckets = ordered_json::array();
  for (const auto& [bound, count] : distribution.buckets) {
    if (count == 0) continue;
    buckets.push_back({{"below", bound == 0 ? ordered_json() : ordered_json(bound)},
                       {"count", count}});
  }
  return {{"count", distribution.count()}, {"sum", distribution.sum}, {"max", distribution.max},
          {"buckets", buckets}};
}

ordered_json RingToJson(const Segment& ring, int64_t now_ns) {
  ordered_json object = {{"program", ring.program},
                         {"pid", ring.pid},
                         {"ring", ring.ring},
                         {"interface", ring.interface},
                         {"alive", ring.alive},
                         {"closed", ring.closed},
                         {"torn", ring.torn},
                         {"published_ns", ring.published_ns},
                         {"age_ns", AgeNs(ring, now_ns)},
                         {"description", ring.description},
                         {"counters", ordered_json::object()},
                         {"histograms", ordered_json::object()},
                         {"sockets", ordered_json::array()},
                         {"sockets_left_out", ring.sockets_left_out},
                         {"groups", ordered_json::array()},
                         {"groups_left_out", ring.groups_left_out}};
  for (const Counter& counter : ring.counters) {
    if (!IsOfDistribution(counter)) object["counters"][counter.scope][counter.name] = counter.value;
  }
  for (const Distribution& distribution : DistributionsOf(ring)) {
    object["histograms"][distribution.scope] = DistributionToJson(distribution);
  }
  for (const SocketCounters& socket : ring.sockets) {
    object["sockets"].push_back(SocketToJson(ring, socket));
  }
  for (const Group& group : ring.groups) {
    object["groups"].push_back({{"group", AddressText(group.group_ip, group.port)},
                                {"socket", HandleText(group.socket)},
                                {"vlan", group.vlan_id}});
  }
  return object;
}

// --- Prometheus ----------------------------------------------------------------------------------

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// What a segment calls a counter is anybody's: as Prometheus takes names, and texts of help.
std::string NameOf(std::string name) {
  for (char& c : name) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!allowed) c = '_';
  }
  return name;
}

std::string HelpOf(std::string_view meaning) {
  std::string help;
  for (const char c : meaning) help.append(c == '\\' ? 2 : 1, c);
  return help;
}

std::string LabelsOf(const Segment& ring) {
  return fmt::format("program=\"{}\",pid=\"{}\",ring=\"{}\",interface=\"{}\"",
                     Escaped(ring.program), ring.pid, ring.ring, Escaped(ring.interface));
}

// Lines of one name, which have to stand together. Of two that segments give one name and the same
// labels there is the first alone, and so of two kinds: who reads takes none of a text with both.
class Families {
 public:
  // `lines`: all of `name` with `labels`.
  void Add(const std::string& name, const char* type, std::string_view help,
           const std::string& labels, std::string_view lines) {
    Family& family = families_[name];
    if (family.text.empty()) {
      family.type = type;
      family.text = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, HelpOf(help), name, type);
    }
    if (family.type == type && family.labels.insert(labels).second) family.text += lines;
  }
  void AddValue(const std::string& name, bool level, std::string_view help,
                const std::string& labels, uint64_t value) {
    const std::string full = level ? name : name + "_total";
    Add(full, level ? "gauge" : "counter", help, labels,
        fmt::format("{}{{{}}} {}\n", full, labels, value));
  }
  std::string Text() const {
    std::string text;
    for (const auto& [name, family] : families_) text += family.text;
    return text;
  }

 private:
  struct Family {
    std::string_view type;
    std::string text;
    std::set<std::string> labels;
  };

  std::map<std::string, Family> families_;
};

void AddDistribution(const Distribution& distribution, const std::string& labels,
                     Families* families) {
  const std::string name = NameOf("xtreme_" + distribution.scope);
  std::string lines;
  uint64_t below = 0;
  std::set<uint64_t> bounds;
  for (const auto& [bound, count] : distribution.buckets) {
    if (!bounds.insert(bound).second) continue;
    below += count;
    // Bounds are inclusive there, and values are whole nanoseconds.
    const std::string le = bound == 0 ? "+Inf" : fmt::format("{}", bound - 1);
    lines += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, le, below);
  }
  lines += fmt::format("{}_sum{{{}}} {}\n", name, labels, distribution.sum);
  lines += fmt::format("{}_count{{{}}} {}\n", name, labels, below);
  families->Add(name, "histogram", "nanoseconds", labels, lines);
}

void AddRing(const Segment& ring, int64_t now_ns, Families* families) {
  const std::string labels = LabelsOf(ring);
  const std::string age = "xtreme_ring_age_seconds";
  families->Add(age, "gauge", "since its counters were published, once a second while it runs",
                labels,
                fmt::format("{}{{{}}} {:.3f}\n", age, labels,
                            static_cast<double>(AgeNs(ring, now_ns)) / 1e9));
  families->AddValue("xtreme_ring_alive", true, "whether the ring's process is there", labels,
                     ring.alive);
  families->AddValue("xtreme_sockets", true, "sockets that are open", labels,
                     ring.sockets.size() + ring.sockets_left_out);
  for (const Counter& counter : ring.counters) {
    if (IsOfDistribution(counter)) continue;
    families->AddValue(NameOf(fmt::format("xtreme_{}_{}", counter.scope, counter.name)),
                       IsLevel(counter.scope, counter.name), counter.meaning, labels,
                       counter.value);
  }
  for (const Distribution& distribution : DistributionsOf(ring)) {
    AddDistribution(distribution, labels, families);
  }
  for (const SocketCounters& socket : ring.sockets) {
    const std::string protocol = ProtocolText(socket.protocol);
    const std::string socket_labels =
        fmt::format("{},socket=\"{}\",local=\"{}\"", labels, HandleText(socket.handle),
                    AddressText(socket.local_ip, socket.local_port));
    for (size_t i = 0; i < socket.values.size(); ++i) {
      const Counter& name = ring.socket_names[i];
      if (name.scope != protocol) continue;
      families->AddValue(NameOf(fmt::format("xtreme_socket_{}_{}", protocol, name.name)), false,
                         name.meaning, socket_labels, socket.values[i]);
    }
  }
}

}  // namespace

std::string ToJson(const std::vector<Segment>& rings, int64_t now_ns) {
  ordered_json all = ordered_json::array();
  for (const Segment& ring : rings) all.push_back(RingToJson(ring, now_ns));
  return all.dump(2) + "\n";
}

std::string ToPrometheus(const std::vector<Segment>& rings, int64_t now_ns) {
  Families families;
  const std::string count = "xtreme_rings";
  families.Add(count, "gauge", "rings that are published", "",
               fmt::format("{} {}\n", count, rings.size()));
  for (const Segment& ring : rings) AddRing(ring, now_ns, &families);
  return families.Text();
}

}  // namespace xtreme::stats
