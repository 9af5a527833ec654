// SPDX-License-Identifier: Apache-2.0
//
// What xtreme_stats prints: rings as text, as JSON, and as Prometheus reads them.
//
// Threads: any; pure functions.

#ifndef XTREME_TOOLS_STATS_VIEWS_H_
#define XTREME_TOOLS_STATS_VIEWS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "xtreme/stats/reader.h"

namespace xtreme::stats {

enum class View {
  kSummary,
  kCounters,
  kDrops,
  kSockets,
  kGroups,
  kNetstat,
  kConfiguration,
  kHistograms,
};

// As they are called on the command line.
const std::map<std::string, View>& ViewNames();

// `now_ns`: CLOCK_MONOTONIC, for how old the values are.
std::string ToText(const std::vector<Segment>& rings, View view, int64_t now_ns);

// An array with an object for each ring; every counter, 0 or not. `now_ns`: as above.
std::string ToJson(const std::vector<Segment>& rings, int64_t now_ns);

// The text format, version 0.0.4: families with help and type, histograms with cumulative buckets.
// How many rings there are stands in it also when there are none.
std::string ToPrometheus(const std::vector<Segment>& rings, int64_t now_ns);

}  // namespace xtreme::stats

#endif  // XTREME_TOOLS_STATS_VIEWS_H_
