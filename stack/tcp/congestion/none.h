// SPDX-License-Identifier: Apache-2.0
//
// No congestion control: only the peer's window holds the sender back. For a network whose capacity
// is the session's own, such as a cross-connect to an exchange; nowhere else.
#ifndef XTREME_STACK_TCP_CONGESTION_NONE_H_
#define XTREME_STACK_TCP_CONGESTION_NONE_H_

#include "stack/tcp/congestion/window.h"

namespace xtreme::tcp {

class NoCongestionControl {
 public:
  void OnAck(const AckEvent&, CongestionWindow& window) { Open(window); }
  void OnLoss(const LossEvent&, CongestionWindow& window) { Open(window); }
  void OnTimeout(const LossEvent&, bool, CongestionWindow& window) { Open(window); }
  void OnSpuriousLoss(CongestionWindow& window) { Open(window); }

  static void Open(CongestionWindow& window) {
    window.cwnd = window.ssthresh = kMaxCongestionWindow;
  }
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_NONE_H_
