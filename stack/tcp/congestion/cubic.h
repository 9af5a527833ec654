// SPDX-License-Identifier: Apache-2.0
//
// CUBIC: the window as a cubic function of the time since the last reduction. RFC 9438.
//
// Integers only, so that a run is the same on every compiler: bytes for windows, microseconds for
// time, C = 4/10 segments a cubic second, beta = 7/10, alpha = 9/17. Names follow section 4.1.
#ifndef XTREME_STACK_TCP_CONGESTION_CUBIC_H_
#define XTREME_STACK_TCP_CONGESTION_CUBIC_H_

#include <cstdint>

#include "stack/base/time.h"
#include "stack/tcp/congestion/hystart.h"
#include "stack/tcp/congestion/window.h"

namespace xtreme::tcp {

class Cubic {
 public:
  Cubic() {}  // By hand: who asks for the compiler's own has all of it cleared before.

  void OnAck(const AckEvent& ack, CongestionWindow& window);
  // Fast recovery begins: sets ssthresh. The window follows it there. Section 4.6.
  void OnLoss(const LossEvent& loss, CongestionWindow& window);
  // Section 4.8. `again`: for a segment that was retransmitted already; then ssthresh stays.
  void OnTimeout(const LossEvent& loss, bool again, CongestionWindow& window);
  // The last reduction was for a loss that was none. Section 4.9.
  void OnSpuriousLoss(CongestionWindow& window);

  // For tests: W_cubic(t) of the current epoch, in bytes, and K in microseconds.
  uint64_t WindowAt(int64_t since_epoch_us, uint32_t smss) const;
  int64_t k_us() const { return curve_.k_us; }

 private:
  // What a congestion avoidance stage goes by, and what a spurious loss restores.
  struct Curve {
    base::Nanoseconds epoch_start;
    uint32_t w_max = 0;       // where the curve is flat
    uint32_t cwnd_prior = 0;  // the window before the last reduction
    uint32_t k_us = 0;        // from the epoch's start to w_max
  };

  void BeginEpoch(base::Nanoseconds now, CongestionWindow& window);
  void Avoid(uint32_t acked, const AckEvent& ack, CongestionWindow& window);
  void Reduce(const LossEvent& loss, CongestionWindow& window);

  HyStart slow_start_;
  Curve curve_;
  uint64_t w_est_ = 0;   // the window NewReno would have, bytes x 256
  uint32_t credit_ = 0;  // of growth: below one byte, times the window
  // After a time-out or a slow start without loss: K is 0 and w_max the window (section 4.8).
  bool starts_at_plateau_ = true;
  Curve curve_before_;
  uint32_t cwnd_before_ = 0;  // 0: nothing to restore
  uint32_t ssthresh_before_ = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_CUBIC_H_
