// SPDX-License-Identifier: Apache-2.0
//
// TcpSettings and what listeners and connections are opened with; TcpReport, what a connection can
// be asked.
//
// Units: bytes, nanoseconds. Ports and addresses in host order. Threads: plain values.

#ifndef XTREME_XTREME_ENGINE_TCP_OPTIONS_H_
#define XTREME_XTREME_ENGINE_TCP_OPTIONS_H_

#include <cstdint>

#include "stack/base/time.h"
#include "stack/wire/address.h"

namespace xtreme::engine {

inline constexpr uint32_t kLeastReceiveWindow = 2'048;  // Bytes.
inline constexpr base::Nanoseconds kMostMinRto = base::Seconds(60);
inline constexpr uint32_t kMostSynsPerSecond = 1'000'000'000;

enum class TcpCongestion : uint8_t { kCubic, kNewReno, kNone };

// What the settings are before any is changed.
enum class TcpPreset : uint8_t {
  kDefault,
  // An order session: what does not get through at once is told at once. A silent peer is probed
  // every second and given up after three, bytes unacknowledged for three seconds end the
  // connection, so does a handshake not done in three; every segment is acknowledged at once.
  kFailFast,
  // Throughput before latency: Nagle, 4 MB of window and of send queue.
  kBulk,
};

// How a connection behaves. A time of kNever: never. A listener's are its children's.
struct TcpSettings {
  static TcpSettings Of(TcpPreset preset);

  // Any time.
  bool nodelay = true;                 // No Nagle (RFC 9293 section 3.7.4).
  bool cork = false;                   // What fills no segment waits for more, up to 200 ms.
  bool quick_ack = false;              // Every segment is acknowledged at once.
  uint8_t keepalive_probes = 9;        // 1 .. 255; unanswered ones end the connection.
  uint8_t retransmissions = 15;        // 1 .. 255, of one segment; R2 of RFC 9293 section 3.8.3.
  base::Nanoseconds keepalive_idle = base::kNever;
  base::Nanoseconds keepalive_interval = base::Seconds(75);
  base::Nanoseconds user_timeout = base::kNever;   // RFC 5482.
  base::Nanoseconds min_rto = base::Milliseconds(200);      // 100 us .. kMostMinRto, beyond SRTT.
  base::Nanoseconds delayed_ack = base::Milliseconds(40);   // 0 .. 500 ms.
  base::Nanoseconds connect_timeout = base::Seconds(60);
  // How long a closed connection waits for the peer's acknowledgements and FIN before it is reset.
  base::Nanoseconds close_timeout = base::Seconds(60);
  // The same for FIN alone, from when everything is acknowledged; kNever: it is one time, below 0:
  // the connection is reset then.
  base::Nanoseconds fin_wait_timeout = base::kNever;
  uint32_t send_queue_bytes = 1024 * 1024;         // 1 .. 2^30: waiting or unacknowledged.
  // Bytes of these that may wait unsent: no more are taken while there are as many.
  uint32_t unsent_low_water_bytes = UINT32_MAX;
  // Most that the receive window is, whatever it was opened with: 1 ..
  uint32_t window_clamp_bytes = UINT32_MAX;
  uint8_t ttl = 64;                    // 0: 64. Of connections: a listener's SYN-ACK has 64.
  uint8_t tos = 0;                     // The same: it has 0.
  // Of a listener: nobody is accepted without data before the time for an answer to SYN-ACK, which
  // doubles from 1 s on, has passed so often.
  uint8_t deferrals = 0;

  // As it is opened; later they change nothing.
  bool manual_credit = false;          // Only Credit() opens the window: see tcp.h.
  bool timestamps = true;
  bool sack = true;
  TcpCongestion congestion = TcpCongestion::kCubic;
  uint16_t mss = 0;                    // Most payload taken in a segment; 0: what the MTU allows.
  uint32_t receive_window_bytes = 256 * 1024;      // kLeastReceiveWindow .. 2^30.

  friend bool operator==(const TcpSettings&, const TcpSettings&) = default;
};

struct TcpListenerOptions {
  wire::Endpoint local;                // Any: the interface's addresses. The port is given.
  uint64_t user_data = 0;              // Of the listener, and of its children until set.
  uint32_t backlog = 128;              // 1 .. : connections accepted and not yet handed out,
  bool holds = false;                  // or handed out and not yet said to be taken by TookOne().
  // SYNs answered in a second; more are dropped (tcp/syns_withheld). 0: no limit, else up to
  // kMostSynsPerSecond.
  uint32_t syns_per_second = 0;
  TcpSettings settings;
  // A kernel socket bound to `local` already, whose port is used instead of one leased; it is
  // duplicated, and may listen: what no rule takes is its. -1: none.
  int kernel_socket = -1;
  // Nobody is answered, as if what came were lost, until Tcp::Welcome(); without it neither what
  // comes before its rule has ended. For who may find that the connections are another's.
  bool hushed = false;
};

struct TcpConnectOptions {
  wire::Endpoint peer;
  // Any address: that of the route. Port 0: one of the ring's block, else it is leased for this
  // connection.
  wire::Endpoint local;
  uint64_t user_data = 0;
  TcpSettings settings;
  int kernel_socket = -1;              // As above, where `local` has a port.
};

// RFC 9293 section 3.3.2.
enum class TcpState : uint8_t {
  kClosed,
  kListen,
  kSynSent,  // Also while the route, the next hop or the port is still looked for.
  kSynReceived,
  kEstablished,
  kFinWait1,
  kFinWait2,
  kCloseWait,
  kClosing,
  kLastAck,
  kTimeWait,
};

// tcp_info(7)'s counterpart, without a system call.
struct TcpReport {
  TcpState state = TcpState::kClosed;
  bool in_recovery = false;
  wire::Endpoint local;
  wire::Endpoint peer;
  base::Nanoseconds srtt;                   // 0: not measured yet.
  base::Nanoseconds rttvar;
  base::Nanoseconds rto;
  base::Nanoseconds oldest_unacknowledged;  // Its age; 0: everything is acknowledged.
  uint32_t mss = 0;                         // Most payload in a segment that is sent.
  uint32_t congestion_window = 0;
  uint32_t slow_start_threshold = 0;
  uint32_t send_window = 0;                 // The peer's.
  uint32_t receive_window = 0;              // What we offer.
  uint32_t in_flight = 0;                   // Sent and not acknowledged.
  uint32_t unsent = 0;
  uint32_t owed_credit = 0;                 // Handed out, or waiting to be, and not credited.
  uint32_t retransmits = 0;                 // Segments.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_OPTIONS_H_
