// SPDX-License-Identifier: Apache-2.0
//
// Requester: when to ask for what all lines lost, how often, and when to give up.
//
// A gap is asked for when it has been open for a while (another line may fill it), in requests of
// limited length, at a limited rate, again after a time-out, and given up, all of it, after some
// tries. Time is an argument. Invariant: at most one request is outstanding.
// Units: nanoseconds, messages. Threads: one.

#ifndef XTREME_SAMPLES_FEED_REQUESTER_H_
#define XTREME_SAMPLES_FEED_REQUESTER_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace feed {

class Requester {
 public:
  struct Options {
    int64_t wait_ns = 2'000'000;        // Before a gap is asked for.
    int64_t retry_ns = 50'000'000;      // Before it is asked for again.
    int64_t interval_ns = 500'000;      // Between any two requests.
    uint16_t most_messages = 30;        // Of one request: what one datagram can answer.
    int tries = 20;                     // 0: nobody is there to ask.
  };
  struct Counters {
    uint64_t requests = 0;
    uint64_t retries = 0;
    uint64_t given_up = 0;  // Gaps.
  };
  struct Range {
    uint64_t first = 0;
    uint16_t count = 0;
  };
  enum class Action : uint8_t { kNothing, kAsk, kGiveUp };

  explicit Requester(const Options& options) : options_(options) {}

  // What to do now about the first gap, [first, end); none when they are equal. kAsk: send a
  // request for range(). kGiveUp: the gap will not be filled.
  Action Next(uint64_t first, uint64_t end, int64_t now_ns) {
    if (first == end) {
      gap_ = 0;
      return Action::kNothing;
    }
    if (first != gap_) Open(first, now_ns);
    const auto count = std::min<uint64_t>(end - first, options_.most_messages);
    range_ = {first, static_cast<uint16_t>(count)};
    const int64_t due = tries_ == 0 ? opened_ns_ + options_.wait_ns : asked_ns_ + options_.retry_ns;
    if (now_ns < due || now_ns < last_ns_ + options_.interval_ns) return Action::kNothing;
    if (tries_ == options_.tries) {
      ++counters_.given_up;
      return Action::kGiveUp;
    }
    counters_.retries += tries_ > 0;
    ++counters_.requests;
    ++tries_;
    asked_ns_ = last_ns_ = now_ns;
    return Action::kAsk;
  }

  const Range& range() const { return range_; }
  const Counters& counters() const { return counters_; }

 private:
  // While answers keep coming, the rest of a long gap needs no new waiting time.
  void Open(uint64_t first, int64_t now_ns) {
    const bool progress = gap_ != 0 && tries_ > 0;
    gap_ = first;
    opened_ns_ = progress ? now_ns - options_.wait_ns : now_ns;
    tries_ = 0;
  }

  const Options options_;
  uint64_t gap_ = 0;  // First missing message; 0: no gap.
  int64_t opened_ns_ = 0;
  int64_t asked_ns_ = 0;
  int64_t last_ns_ = INT64_MIN / 2;
  int tries_ = 0;
  Range range_;
  Counters counters_;
};

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_REQUESTER_H_
