// SPDX-License-Identifier: Apache-2.0
//
// PcbOptions: how a connection behaves. Whoever owns a set may change it in place and tell the
// connections that go by it (Stack::OnOptionsChanged), as far as the handshake did not settle it.
// Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_PCB_OPTIONS_H_
#define XTREME_STACK_TCP_PCB_OPTIONS_H_

#include <cstdint>

#include "stack/base/time.h"
#include "stack/tcp/congestion/algorithm.h"
#include "stack/tcp/rtt.h"

namespace xtreme::tcp {

// How a connection behaves. One set serves any number of connections; it outlives them.
struct PcbOptions {
  RttEstimator::Options rto;
  TimestampClock timestamp_clock;
  CongestionAlgorithm congestion = CongestionAlgorithm::kCubic;

  uint16_t mss = 1460;                   // the most payload this end takes in a segment
  uint32_t receive_window = 256 * 1024;  // bytes that the application may owe credit for
  uint32_t scaled_window = 0;  // what it may come to, if more: the scale is agreed on but once
  uint32_t send_queue = 1024 * 1024;     // bytes that may wait or be unacknowledged
  // Bytes that may wait unsent: none is taken while there are as many, and there is ample room with
  // half of them (tcp(7), TCP_NOTSENT_LOWAT).
  uint32_t unsent_low_water = UINT32_MAX;

  bool timestamps = true;   // offered: RFC 7323 section 3
  bool sack = true;         // offered: RFC 2018 section 2
  bool nagle = false;       // RFC 9293 section 3.7.4; order flow wants it off
  bool cork = false;        // what does not fill a segment waits for more, up to 200 ms
  bool quick_ack = false;   // acknowledge every segment at once
  uint8_t quick_acks = 16;  // so many at once as a connection begins: the peer's slow start

  // RFC 9293 section 3.8.6.3: below 500 ms; at least every second full segment is acknowledged.
  base::Nanoseconds delayed_ack = base::Milliseconds(40);
  // What the peer may wait with its acknowledgement, as a probe assumes. RFC 8985 section 7.2.
  base::Nanoseconds peer_delayed_ack = base::Milliseconds(200);
  base::Nanoseconds connect_timeout = base::Seconds(60);
  // Bytes that stay unacknowledged, or a window that stays closed, this long end the connection:
  // RFC 5482. kNever: as long as the retransmissions below last.
  base::Nanoseconds user_timeout = base::kNever;
  uint8_t retransmissions = 15;  // RFC 9293 section 3.8.3, R2

  base::Nanoseconds keepalive_idle = base::kNever;  // off: RFC 9293 section 3.8.4
  base::Nanoseconds keepalive_interval = base::Seconds(75);
  uint8_t keepalive_probes = 9;

  // After the path's MTU was lowered, segments as long as the handshake agreed on are tried again
  // (RFC 1191 section 6.3: not before 10 minutes). kNever: they stay short.
  base::Nanoseconds path_mtu_timeout = base::Seconds(600);

  // How long a closed connection waits for the peer's acknowledgements and FIN before it is reset.
  base::Nanoseconds close_timeout = base::Seconds(60);
  // How long for FIN alone, from FIN-WAIT-2 on; kNever: as above; below 0: it is reset then.
  base::Nanoseconds fin_wait_timeout = base::kNever;
  // Of a listener: an acknowledgement without data does not end a handshake before the timer of
  // SYN-ACK has expired so often (tcp(7), TCP_DEFER_ACCEPT). At most SynQueue::kMaxResends.
  uint8_t deferrals = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_PCB_OPTIONS_H_
