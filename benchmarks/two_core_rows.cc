// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/two_core_rows.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/timing.h"
#include "benchmarks/two_cores.h"

namespace xtreme::benchmarks {
namespace {

constexpr char kName[] = "rtt_two_cores";
constexpr int kTries = 5;

}  // namespace

Row UnmeasuredRoundTrip(const TwoCoreRoundTrip& trip, const absl::Status& why) {
  return Unmeasured(kName, trip.unit, {.most_of_peer = trip.most_cache_lines}, why);
}

std::vector<Row> RoundTripRows(const TwoCoreRoundTrip& trip, bool quick) {
  if (std::thread::hardware_concurrency() < 2) {
    return {UnmeasuredRoundTrip(trip, absl::UnavailableError("one core only"))};
  }
  const double ticks_per_ns = MeasureTicksPerNs();
  const uint32_t rounds = quick ? 256 : 100'000;
  auto sockets = trip.kernel(quick ? 16 : 1'024);
  double line = 1e9, ring = 1e9, kernel = 1e9;
  for (int i = 0; i < kTries; ++i) {
    line = std::min(line, CacheLineRoundTrip(rounds, ticks_per_ns));
    ring = std::min(ring, trip.ours(rounds, ticks_per_ns));
    if (sockets.ok()) kernel = std::min(kernel, TimeBatch(**sockets, 1, ticks_per_ns));
  }
  Row to_line{.name = kName,
              .unit = trip.unit,
              .value = ring,
              .peer = "cache line to the other core and back",
              .peer_value = line,
              .goal = {.most_of_peer = trip.most_cache_lines},
              .note = "two rings on one core, their null devices on the other"};
  Row to_kernel = to_line;
  to_kernel.peer = trip.kernel_peer;
  to_kernel.goal = {.peer_at_least = 20};
  to_kernel.peer_value = std::nullopt;
  to_kernel.note = "";
  if (sockets.ok()) to_kernel.peer_value = kernel;
  if (!sockets.ok()) to_kernel.note = absl::StrCat("no peer: ", sockets.status().message());
  return {to_line, to_kernel};
}

}  // namespace xtreme::benchmarks
