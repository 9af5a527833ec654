// SPDX-License-Identifier: Apache-2.0
//
// CongestionControl: the seam between a connection and its algorithm, chosen at construction.
//
// The invariant: the window is at least one segment. During fast recovery the algorithm is not
// asked: PRR sets the window (SetDuringRecovery), and afterwards it is ssthresh (EndRecovery).
// Units: bytes. Pure: time comes with the events. RFC 5681.
#ifndef XTREME_STACK_TCP_CONGESTION_CONGESTION_CONTROL_H_
#define XTREME_STACK_TCP_CONGESTION_CONGESTION_CONTROL_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "stack/tcp/congestion/algorithm.h"
#include "stack/tcp/congestion/cubic.h"
#include "stack/tcp/congestion/new_reno.h"
#include "stack/tcp/congestion/none.h"
#include "stack/tcp/congestion/window.h"

namespace xtreme::tcp {

class CongestionControl {
 public:
  using Algorithm = CongestionAlgorithm;

  CongestionControl(Algorithm algorithm, uint32_t smss) : window_(smss), control_(Make(algorithm)) {
    if (algorithm == Algorithm::kNone) NoCongestionControl::Open(window_);
  }

  // Something new was acknowledged, outside recovery.
  void OnAck(const AckEvent& ack) {
    std::visit([&](auto& control) { control.OnAck(ack, window_); }, control_);
  }

  // The same where the window was not needed (AckEvent::window_limited): nothing grows.
  void OnUnlimitedAck() { window_.in_epoch = false; }

  // Fast recovery begins: ssthresh() is where it goes.
  void OnLoss(const LossEvent& loss) {
    std::visit([&](auto& control) { control.OnLoss(loss, window_); }, control_);
  }
  void SetDuringRecovery(uint32_t cwnd) {
    if (!unlimited()) window_.cwnd = std::max(cwnd, window_.smss);
  }
  // What was outstanding when recovery began is acknowledged. RFC 9937 section 6.
  void EndRecovery() {
    if (!unlimited()) window_.cwnd = std::max(window_.ssthresh, window_.smss);
  }

  // The retransmission timer expired; `again`: for a segment that was retransmitted already.
  void OnTimeout(const LossEvent& loss, bool again) {
    std::visit([&](auto& control) { control.OnTimeout(loss, again, window_); }, control_);
  }

  // What the last OnLoss or OnTimeout was about had not been lost: back to before it, or, without
  // a burst where only `pipe` is in flight, to a slow start that ends there. RFC 4015 section 3.
  void OnSpuriousLoss(uint32_t pipe) {
    const uint32_t least = window_.cwnd;
    std::visit([&](auto& control) { control.OnSpuriousLoss(window_); }, control_);
    if (unlimited()) return;
    window_.ssthresh = std::max(window_.ssthresh, window_.cwnd);
    window_.cwnd = std::min(window_.cwnd, std::max(least, pipe + InitialWindow(window_.smss)));
  }

  // Nothing was sent for an RTO: begin again as a new connection, at most (RFC 5681 section 4.1),
  // in slow start up to three quarters of what was in use (RFC 7661 section 4.4.3).
  void RestartAfterIdle() {
    if (unlimited()) return;
    window_.ssthresh = std::max(window_.ssthresh, window_.cwnd / 4 * 3);
    window_.cwnd = std::min(window_.cwnd, InitialWindow(window_.smss));
  }

  // The SYN was lost: RFC 6928 section 2, RFC 5681 section 3.1.
  void StartAfterLostSyn() {
    if (!unlimited()) window_.cwnd = window_.smss;
  }

  // The handshake or path MTU discovery found another segment size; before anything was sent the
  // window follows it.
  void SetSmss(uint32_t smss, bool nothing_sent) {
    window_.smss = smss;
    if (nothing_sent && !unlimited()) window_.cwnd = InitialWindow(smss);
    window_.cwnd = std::max(window_.cwnd, smss);
  }

  uint32_t cwnd() const { return window_.cwnd; }
  uint32_t ssthresh() const { return window_.ssthresh; }
  uint32_t smss() const { return window_.smss; }
  bool InSlowStart() const { return window_.InSlowStart(); }

 private:
  using Control = std::variant<NewReno, Cubic, NoCongestionControl>;

  static Control Make(Algorithm algorithm) {
    if (algorithm == Algorithm::kNewReno) return Control(std::in_place_type<NewReno>);
    if (algorithm == Algorithm::kCubic) return Control(std::in_place_type<Cubic>);
    return Control(std::in_place_type<NoCongestionControl>);
  }

  bool unlimited() const { return std::holds_alternative<NoCongestionControl>(control_); }

  CongestionWindow window_;
  Control control_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_CONGESTION_CONTROL_H_
