// SPDX-License-Identifier: Apache-2.0
//
// NewReno's congestion avoidance: one segment a round trip, half on a loss. RFC 5681 sections 3.1
// and 3.2. What is sent during recovery is decided elsewhere (prr.h, new_reno_recovery.h).
#ifndef XTREME_STACK_TCP_CONGESTION_NEW_RENO_H_
#define XTREME_STACK_TCP_CONGESTION_NEW_RENO_H_

#include <algorithm>
#include <cstdint>

#include "stack/tcp/congestion/hystart.h"
#include "stack/tcp/congestion/window.h"

namespace xtreme::tcp {

class NewReno {
 public:
  void OnAck(const AckEvent& ack, CongestionWindow& window) {
    if (!ack.window_limited) return;
    const uint32_t left = window.InSlowStart() ? slow_start_.OnAck(ack, window) : ack.acked;
    // Byte counting, as RFC 5681 recommends over equation (3): a segment a window of bytes.
    counted_ += left;
    while (counted_ >= window.cwnd) {
      counted_ -= window.cwnd;
      window.Grow(window.smss);
    }
  }

  // Fast recovery begins: sets ssthresh, equation (4). The window follows it there.
  void OnLoss(const LossEvent& loss, CongestionWindow& window) { Reduce(loss, window); }

  // The retransmission timer expired. `again`: for a segment that was retransmitted already; then
  // ssthresh stays.
  void OnTimeout(const LossEvent& loss, bool again, CongestionWindow& window) {
    if (!again) Reduce(loss, window);
    window.cwnd = window.smss;
  }

  // The last reduction was for a loss that was none.
  void OnSpuriousLoss(CongestionWindow& window) {
    window.cwnd = std::max(window.cwnd, before_.cwnd);
    window.ssthresh = std::max(window.ssthresh, before_.ssthresh);
  }

 private:
  struct Before {
    uint32_t cwnd = 0;
    uint32_t ssthresh = 0;
  };

  void Reduce(const LossEvent& loss, CongestionWindow& window) {
    before_ = {window.cwnd, window.ssthresh};
    counted_ = 0;
    window.ssthresh = std::max(loss.flight / 2, 2 * window.smss);
  }

  HyStart slow_start_;
  uint32_t counted_ = 0;  // bytes acknowledged since the window grew last
  Before before_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_NEW_RENO_H_
