// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"
#include "tools/stats/rings.h"
#include "tools/stats/views.h"

namespace xtreme::stats {
namespace {

std::string Heading(const Segment& ring, int64_t now_ns) {
  const double age_s = static_cast<double>(AgeNs(ring, now_ns)) / 1e9;
  const char* state = ring.closed ? "closed" : ring.alive ? "running" : "dead";
  return fmt::format("{} {} ring {} on {}: {}, published {:.1f} s ago{}\n", ring.program, ring.pid,
                     ring.ring, ring.interface, state, age_s,
                     ring.torn ? ", caught while it was written" : "");
}

// A time that a reader can take in.
std::string Time(uint64_t ns) {
  if (ns < 10'000) return fmt::format("{} ns", ns);
  if (ns < 10'000'000) return fmt::format("{} us", ns / 1'000);
  return fmt::format("{} ms", ns / 1'000'000);
}

uint64_t SumOf(const Segment& ring, std::string_view scope, std::string_view prefix = "") {
  uint64_t sum = 0;
  for (const Counter& counter : ring.counters) {
    if (counter.scope == scope && counter.name.starts_with(prefix)) sum += counter.value;
  }
  return sum;
}

std::string Summary(const Segment& ring) {
  const auto queue = [&ring](std::string_view name) { return ValueOf(ring, "queue", name); };
  std::string text;
  text += fmt::format("  received {} frames, {} bytes; {} packets handed out\n",
                      queue("rx_frames"), queue("rx_bytes"), ValueOf(ring, "ring", "packets"));
  text += fmt::format("  sent     {} frames, {} bytes; {} by BlueFlame, {} doorbells, {} refused\n",
                      queue("tx_frames"), queue("tx_bytes"), queue("tx_blueflame"),
                      queue("tx_doorbells"), SumOf(ring, "ring", "refused_"));
  text += fmt::format("  lost     {} by the port (all programs), {} times no buffer posted, {} by "
                      "the library\n",
                      SumOf(ring, "port"), queue("rx_empty"), SumOf(ring, "drop"));
  text += fmt::format("  pool     {} of {} buffers free, {} at least; {} posted at least\n",
                      ValueOf(ring, "pool", "free"), ValueOf(ring, "pool", "buffers"),
                      ValueOf(ring, "pool", "low_water"), queue("rx_low_water"));
  const auto trouble = [&ring](std::string_view name) { return ValueOf(ring, "ring", name); };
  if (trouble("link_downs") + trouble("removals") + trouble("queues_stopped") != 0) {
    text += fmt::format("  trouble  a port went down {} times, a queue stopped {} times; {} "
                        "devices or interfaces gone\n",
                        trouble("link_downs"), trouble("queues_stopped"), trouble("removals"));
  }
  text += fmt::format("  sockets  {}\n", ring.sockets.size() + ring.sockets_left_out);
  for (const Distribution& each : DistributionsOf(ring)) {
    if (each.count() == 0) continue;
    text += fmt::format("  {:<8} below {} half of the time, {} in 99 of 100, {} at most\n",
                        each.scope.substr(0, each.scope.rfind("_ns")), Time(each.Quantile(0.5)),
                        Time(each.Quantile(0.99)), Time(each.max));
  }
  return text;
}

std::string Counters(const Segment& ring) {
  std::string text;
  std::string_view scope;
  for (const Counter& counter : ring.counters) {
    if (counter.value == 0 || IsOfDistribution(counter)) continue;
    if (counter.scope != scope) text += fmt::format("  {}\n", counter.scope);
    scope = counter.scope;
    text += fmt::format("    {:>16} {:<24} {}\n", counter.value, counter.name, counter.meaning);
  }
  return text;
}

// By layer, as completions of kind RING name it.
std::string_view LayerOf(const Counter& counter) {
  if (counter.scope == "port") return "port";
  const bool of_reassembly = counter.scope == "reassembly" && counter.name != "fragments" &&
                             counter.name != "reassembled";
  if (counter.scope == "drop" || of_reassembly) return "library";
  const bool of_queue = counter.name == "rx_empty" || counter.name == "tx_full" ||
                        counter.name == "rx_too_long" || counter.name.ends_with("_errors") ||
                        counter.name.ends_with("_malformed");
  if (counter.scope == "queue" && of_queue) return "queue";
  return counter.scope == "ring" && counter.name.starts_with("refused_") ? "refused" : "";
}

std::string Drops(const Segment& ring) {
  constexpr std::array<std::string_view, 4> kLayers = {"port", "queue", "library", "refused"};
  std::string text;
  for (std::string_view layer : kLayers) {
    for (const Counter& counter : ring.counters) {
      if (counter.value == 0 || LayerOf(counter) != layer) continue;
      text += fmt::format("  {:<8} {:>16} {:<24} {}\n", layer, counter.value, counter.name,
                          counter.meaning);
    }
  }
  return text.empty() ? "  nothing was lost\n" : text;
}

std::string Sockets(const Segment& ring) {
  std::string text;
  for (const SocketCounters& socket : ring.sockets) {
    text += fmt::format("  {} {} {} > {} {}", HandleText(socket.handle),
                        ProtocolText(socket.protocol),
                        AddressText(socket.local_ip, socket.local_port),
                        AddressText(socket.remote_ip, socket.remote_port), socket.state);
    for (const auto& [name, value] : CountersOf(ring, socket)) {
      if (value != 0) text += fmt::format(" {}={}", name, value);
    }
    text += "\n";
  }
  if (ring.sockets_left_out != 0) text += fmt::format("  and {} more\n", ring.sockets_left_out);
  return text;
}

std::string Groups(const Segment& ring) {
  std::string text;
  for (const Group& group : ring.groups) {
    text += fmt::format("  {} {}{}\n", AddressText(group.group_ip, group.port),
                        HandleText(group.socket),
                        group.vlan_id == 0 ? "" : fmt::format(" vlan {}", group.vlan_id));
  }
  if (ring.groups_left_out != 0) text += fmt::format("  and {} more\n", ring.groups_left_out);
  return text;
}

std::string Configuration(const Segment& ring) {
  std::string text;
  std::string_view left = ring.description;
  while (!left.empty()) {
    const size_t end = std::min(left.find("; "), left.size());
    text += fmt::format("  {}\n", left.substr(0, end));
    left.remove_prefix(std::min(end + 2, left.size()));
  }
  return text;
}

std::string Histograms(const Segment& ring) {
  constexpr uint64_t kWidth = 50;
  std::string text;
  for (const Distribution& each : DistributionsOf(ring)) {
    text += fmt::format("  {}: {} values, {} ns in all, {} ns at most\n", each.scope, each.count(),
                        each.sum, each.max);
    uint64_t most = 1;
    for (const auto& [bound, count] : each.buckets) most = std::max(most, count);
    for (const auto& [bound, count] : each.buckets) {
      if (count == 0) continue;
      const std::string bar((count * kWidth + most - 1) / most, '#');
      text += fmt::format("    {:>10} {:>14} {}\n", bound == 0 ? "more" : "< " + Time(bound), count,
                          bar);
    }
  }
  return text.empty() ? "  none: the ring's option `histograms` is off\n" : text;
}

// Sockets of all rings in one table.
std::string Netstat(const std::vector<Segment>& rings) {
  std::string text = fmt::format("{:<6}{:<24}{:<24}{:<13}{:<6}{}\n", "Proto", "Local Address",
                                 "Foreign Address", "State", "Ring", "PID/Program");
  for (const Segment& ring : rings) {
    for (const SocketCounters& socket : ring.sockets) {
      text += fmt::format("{:<6}{:<24}{:<24}{:<13}{:<6}{}/{}\n", ProtocolText(socket.protocol),
                          AddressText(socket.local_ip, socket.local_port),
                          AddressText(socket.remote_ip, socket.remote_port), socket.state,
                          ring.ring, ring.pid, ring.program);
    }
    if (ring.sockets_left_out != 0) {
      text += fmt::format("and {} more of ring {} of {}/{}\n", ring.sockets_left_out, ring.ring,
                          ring.pid, ring.program);
    }
  }
  return text;
}

std::string BodyOf(const Segment& ring, View view) {
  switch (view) {
    case View::kSummary: return Summary(ring);
    case View::kCounters: return Counters(ring);
    case View::kDrops: return Drops(ring);
    case View::kSockets: return Sockets(ring);
    case View::kGroups: return Groups(ring);
    case View::kConfiguration: return Configuration(ring);
    case View::kHistograms: return Histograms(ring);
    case View::kNetstat: break;
  }
  return "";
}

}  // namespace

const std::map<std::string, View>& ViewNames() {
  static const auto& names = *new std::map<std::string, View>{
      {"summary", View::kSummary},         {"counters", View::kCounters},
      {"drops", View::kDrops},             {"sockets", View::kSockets},
      {"groups", View::kGroups},           {"netstat", View::kNetstat},
      {"configuration", View::kConfiguration}, {"histograms", View::kHistograms}};
  return names;
}

std::string ToText(const std::vector<Segment>& rings, View view, int64_t now_ns) {
  if (view == View::kNetstat) return Netstat(rings);
  std::string text;
  for (const Segment& ring : rings) text += Heading(ring, now_ns) + BodyOf(ring, view);
  return text;
}

}  // namespace xtreme::stats
