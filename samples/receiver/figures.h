// SPDX-License-Identifier: Apache-2.0
//
// Figures: what a run of a feed handler came to, as numbers; on the terminal and as JSON.
// Units: messages where nothing else is said, nanoseconds, bytes. Threads: one.

#ifndef XTREME_SAMPLES_RECEIVER_FIGURES_H_
#define XTREME_SAMPLES_RECEIVER_FIGURES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "samples/feed/handler.h"

namespace receiver {

struct Percentiles {
  uint64_t count = 0;
  uint64_t p50_ns = 0;
  uint64_t p90_ns = 0;
  uint64_t p99_ns = 0;
  uint64_t p999_ns = 0;
  uint64_t most_ns = 0;
};

// What one run allocated and copied; the difference of two readings is what came between.
struct Costs {
  uint64_t receiving_allocations = 0;  // By the handler's thread outside of feed::Handler.
  uint64_t handling_allocations = 0;   // In feed::Handler: books, and what is held.
  uint64_t received_copied_bytes = 0;  // From where the device put them to where they are handled.
};

struct Figures {
  uint64_t datagrams = 0;
  uint64_t messages = 0;  // Delivered in order.
  uint64_t missing = 0;
  uint64_t gaps = 0;
  uint64_t recovered_by_line = 0;     // One line lost it, the other brought it.
  uint64_t recovered_by_request = 0;  // All lines lost it.
  uint64_t requests = 0;
  uint64_t retries = 0;
  uint64_t refused = 0;  // Datagrams and messages that are none.
  uint64_t held_copied_bytes = 0;
  std::array<uint64_t, 2> wins{};  // Datagrams.
  std::array<uint64_t, 2> lost{};
  Percentiles from_publisher;
  Percentiles from_device;
  Costs costs;
};

// A counter of what was dropped, or of anything else worth showing at the end.
using NamedCount = std::pair<std::string, uint64_t>;

struct Outcome {
  std::string program;
  std::string ended;  // "done", or why it ended before.
  double seconds = 0;
  Figures figures;
  std::vector<std::string> books;   // One line a symbol.
  std::vector<NamedCount> counts;
};

Percentiles Summarise(const feed::Histogram& histogram);

template <typename Reference>
Figures Collect(const feed::Handler<Reference>& handler) {
  const auto& arbiter = handler.arbiter();
  Figures figures;
  figures.datagrams = arbiter.counters().packets;
  figures.messages = arbiter.counters().messages;
  figures.missing = handler.counters().missing;
  figures.gaps = arbiter.counters().gaps;
  figures.recovered_by_request = handler.counters().recovered_by_request;
  figures.requests = handler.requester().counters().requests;
  figures.retries = handler.requester().counters().retries;
  figures.refused = handler.counters().refused_datagrams + handler.counters().refused_messages;
  figures.held_copied_bytes = arbiter.counters().copied_bytes;
  for (size_t i = 0; i < figures.wins.size(); ++i) {
    figures.wins[i] = arbiter.line(i).wins;
    figures.lost[i] = arbiter.line(i).lost;
  }
  // What both lines lost stands in both lines' losses.
  const uint64_t lost_by_both = figures.recovered_by_request + figures.missing;
  const uint64_t lost = figures.lost[0] + figures.lost[1];
  figures.recovered_by_line = lost - std::min(lost, 2 * lost_by_both);
  figures.from_publisher = Summarise(handler.from_publisher());
  figures.from_device = Summarise(handler.from_device());
  return figures;
}

// One line about the last second, `before` being the figures at its start.
std::string ProgressLine(double seconds, const Figures& before, const Figures& now);
// Several lines at the end, the last of which is "ended: done" or why.
std::string Summary(const Outcome& outcome);
// "" or what failed.
std::string WriteJson(const std::string& file, const Outcome& outcome);

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_FIGURES_H_
