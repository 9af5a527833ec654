// SPDX-License-Identifier: Apache-2.0
//
// UdpOptions: what a UDP socket is opened with, field for field as xtreme_udp_options.
//
// Ports and addresses in host order. Threads: a plain value.

#ifndef XTREME_XTREME_ENGINE_UDP_OPTIONS_H_
#define XTREME_XTREME_ENGINE_UDP_OPTIONS_H_

#include <cstdint>

#include "stack/wire/address.h"

namespace xtreme::engine {

inline constexpr uint32_t kMostFlowTag = (1 << 24) - 1;

struct UdpOptions {
  wire::Endpoint local;         // Any: the interface's addresses. Port 0: one is leased.
  uint64_t user_data = 0;
  bool reuse = false;
  bool multicast_loop = false;
  bool broadcast = false;
  uint8_t multicast_ttl = 1;    // 0: 1.
  uint8_t ttl = 64;             // 0: 64.
  uint8_t tos = 0;
  uint32_t max_held = 0;        // 0: no limit.
  // Of its rules, in every CQE of its frames, for who takes the ring's queues; 0: the ring's own,
  // which is a hint to the socket. Up to kMostFlowTag.
  uint32_t flow_tag = 0;
  // What goes to the interface's own addresses is the kernel's to hand out, as among sockets with
  // SO_REUSEPORT: no rule takes it, and this socket's share comes as SLOW_PATH.
  bool kernel_unicast = false;
  // A kernel socket bound to `local` already, whose port is used instead of one leased; it is
  // duplicated, and what reaches it comes as SLOW_PATH. -1: none.
  int kernel_socket = -1;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_UDP_OPTIONS_H_
