// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the port share: who this instance is.

#ifndef XTREME_BENCHMARKS_LWIP_PORT_INSTANCE_H_
#define XTREME_BENCHMARKS_LWIP_PORT_INSTANCE_H_

#include <stdint.h>

#include "lwip/ip_addr.h"

struct Instance {
  ip_addr_t us;
  ip_addr_t peer;
  uint16_t our_port;
  uint16_t peer_port;
};
extern struct Instance instance;

#endif  // XTREME_BENCHMARKS_LWIP_PORT_INSTANCE_H_
