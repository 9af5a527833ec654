// SPDX-License-Identifier: Apache-2.0
//
// What operators may look at besides counters, each kept only by rings whose options ask for it:
// times of polls, and the tap that shows frames and losses.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/poll_times.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine {
namespace {

// Counters of which more means that somebody lost something.
bool CountsLosses(std::string_view scope, std::string_view name) {
  if (scope == "drop" || scope == "port") return true;
  return scope == "queue" && (name == "rx_empty" || name == "rx_too_long" ||
                              name.ends_with("_errors") || name.ends_with("_malformed"));
}

}  // namespace

void Ring::OpenPollTimes() {
  if (!core_->options.histograms) return;
  poll_times_ = std::make_unique<PollTimes>();
  core_->attention |= kPollsTimed;
}

void Ring::TimePoll() {
  RingCore& core = *core_;
  const RingClock& clock = core.clock;
  PollTimes& times = *poll_times_;
  const base::Nanoseconds now = clock.ToTime(core.poll_ticks());
  if (times.last_ticks != 0) {
    const int64_t gap_ns = (now - clock.ToTime(times.last_ticks)).count();
    times.gap.Count(static_cast<uint64_t>(std::max<int64_t>(gap_ns, 0)));
  }
  times.last_ticks = core.poll_ticks();
  const uint64_t frames = core.device.queue->counters().rx_frames;
  if (std::exchange(times.frames, frames) == frames) return;
  const nic::RxFrame& first = frames_[0];
  if ((first.flags & nic::kRxTimestamp) == 0 || !clock.host().in_sync) return;
  const int64_t age_ns = now.count() - clock.host().ToNanoseconds(first.hw_clock);
  times.wire_to_poll.Count(static_cast<uint64_t>(std::max<int64_t>(age_ns, 0)));
}

// A sleep is no gap.
void Ring::ForgetLastPoll() {
  if (poll_times_ != nullptr) poll_times_->last_ticks = 0;
}

void Ring::VisitPollTimes(const CounterVisitor& visit) const {
  if (poll_times_ == nullptr) return;
  const auto in = [&visit](std::string_view scope) {
    return [&visit, scope](std::string_view name, std::string_view meaning, uint64_t value) {
      visit(scope, name, meaning, value);
    };
  };
  poll_times_->gap.Visit(in("poll_gap_ns"));
  poll_times_->wire_to_poll.Visit(in("wire_to_poll_ns"));
}

// The tap is one thread's at a time: of the control thread's during a reset, which takes what the
// old queue still has.
bool Ring::HasTap() const { return core_->device.tap != nullptr && !resetting_; }

void Ring::SetTapClocks(bool other_device) {
  if (!HasTap()) return;
  constexpr uint64_t kOne = uint64_t{1} << 32;
  const RingClock& clock = core_->clock;
  const DeviceScale device = DeviceScale::Of(clock.host());
  const uint64_t ticks = clock.Ticks();
  const base::Nanoseconds now = clock.ToTime(ticks);
  const bool tells_tsc = clock.TicksAreTsc();
  core_->device.tap->SetClocks(
      {.base_ticks = device.base_raw,
       .base_ns = device.base_ns,
       .ns_per_tick_q32 = clock.host().in_sync ? device.ns_per_tick_q32 : 0,
       .unused_bits = static_cast<uint32_t>(device.unused_bits)},
      {.base_ticks = ticks,
       .base_ns = now.count(),
       .ns_per_tick_q32 = tells_tsc ? (clock.ToTime(ticks + kOne) - now).count() : 0},
      other_device);
}

// What was lost since the last time, at its place among the frames.
void Ring::NoteLosses() {
  if (!HasTap()) return;
  stats::FrameTap& tap = *core_->device.tap;
  size_t place = 0;
  VisitCounters([&](std::string_view scope, std::string_view name, std::string_view meaning,
                    uint64_t value) {
    if (!CountsLosses(scope, name)) return;
    if (place == losses_noted_.size()) losses_noted_.push_back(0);
    const uint64_t before = std::exchange(losses_noted_[place++], value);
    if (value == before) return;
    tap.Note(absl::StrCat(value - before, " ", std::string(scope), " ", std::string(name), ": ",
                          std::string(meaning)));
  });
}

}  // namespace xtreme::engine
