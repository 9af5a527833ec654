// SPDX-License-Identifier: Apache-2.0
//
// The congestion window, and what an algorithm is told. Units: bytes; SMSS is the payload of a full
// segment. RFC 5681 section 2.
#ifndef XTREME_STACK_TCP_CONGESTION_WINDOW_H_
#define XTREME_STACK_TCP_CONGESTION_WINDOW_H_

#include <algorithm>
#include <cstdint>

#include "stack/base/time.h"
#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

// The most a window is ever counted to: that of RFC 7323 section 2.3.
inline constexpr uint32_t kMaxCongestionWindow = 1u << 30;

// RFC 6928 section 2.
constexpr uint32_t InitialWindow(uint32_t smss) {
  return std::min(10 * smss, std::max(2 * smss, uint32_t{14'600}));
}

struct CongestionWindow {
  explicit CongestionWindow(uint32_t smss_bytes)
      : smss(smss_bytes), cwnd(InitialWindow(smss_bytes)) {}

  uint32_t smss;
  uint32_t cwnd;
  uint32_t ssthresh = kMaxCongestionWindow;  // "arbitrarily high": RFC 5681 section 3.1
  // A stage of congestion avoidance began. Time without need for the window ends it, whoever
  // began it: an acknowledgement then touches no line but the window's. RFC 9438 section 5.8.
  bool in_epoch = false;

  bool InSlowStart() const { return cwnd < ssthresh; }
  void Grow(uint64_t bytes) {
    cwnd = static_cast<uint32_t>(std::min<uint64_t>(cwnd + bytes, kMaxCongestionWindow));
  }

  // Slow start by what was acknowledged, at most eight segments an acknowledgement, for nothing
  // paces what it lets out: RFC 5681 section 3.1 with RFC 9406 section 4.2's L. Returns what is
  // left of `acked` for congestion avoidance: a window that meets ssthresh stops there.
  uint32_t SlowStart(uint32_t acked, uint32_t divisor = 1) {
    const uint32_t room = ssthresh - cwnd;
    const uint32_t step = std::min(acked, 8 * smss) / divisor;
    Grow(std::min(step, room));
    return step <= room ? 0 : std::min(step - room, acked);
  }
};

// An acknowledgement of something new, outside recovery.
struct AckEvent {
  uint32_t acked = 0;  // bytes that it newly acknowledges
  base::Nanoseconds now;
  base::Nanoseconds srtt;     // 0: unknown
  base::Nanoseconds rtt{-1};  // of a segment that it acknowledges; negative: unknown
  Seq una;                    // SND.UNA after it
  Seq nxt;                    // SND.NXT
  // Whether the window was what held the sender back: one that is not used does not grow (RFC 9438
  // section 5.8, RFC 7661 section 4).
  bool window_limited = true;
};

// A loss was detected.
struct LossEvent {
  uint32_t flight = 0;  // FlightSize: bytes outstanding
  base::Nanoseconds now;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_WINDOW_H_
