// SPDX-License-Identifier: Apache-2.0
//
// The state of a connection, and what it says of itself when it is asked.
//
// Units: bytes, nanoseconds.
#ifndef XTREME_STACK_TCP_CONNECTION_REPORT_H_
#define XTREME_STACK_TCP_CONNECTION_REPORT_H_

#include <cstdint>

#include "stack/base/time.h"

namespace xtreme::tcp {

// RFC 9293 section 3.3.2. LISTEN is not one of them: a listener is no connection.
enum class State : uint8_t {
  kClosed,
  kSynSent,
  kSynReceived,
  kEstablished,
  kFinWait1,
  kFinWait2,
  kCloseWait,
  kClosing,
  kLastAck,
  kTimeWait,
};

const char* NameOf(State state);

// What a connection can be asked, without a system call. tcp_info(7)'s counterpart.
struct ConnectionReport {
  State state = State::kClosed;
  base::Nanoseconds srtt;
  base::Nanoseconds rttvar;
  base::Nanoseconds rto;
  base::Nanoseconds oldest_unacknowledged;  // its age; 0: nothing is
  uint32_t smss = 0;
  uint32_t path_mtu = 0;          // of IP, as a router said; 0: none has
  uint32_t congestion_window = 0;
  uint32_t slow_start_threshold = 0;
  uint32_t send_window = 0;
  uint32_t receive_window = 0;
  uint32_t in_flight = 0;
  uint32_t unsent = 0;
  uint32_t owed_credit = 0;
  uint32_t retransmits = 0;
  bool in_recovery = false;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONNECTION_REPORT_H_
