// SPDX-License-Identifier: Apache-2.0
//
// One lwIP on one wire in memory. The library has one instance; whoever wants two loads two copies.
//
// Addresses in host order. Thread: one for all instances.

#ifndef XTREME_BENCHMARKS_LWIP_PORT_PEER_H_
#define XTREME_BENCHMARKS_LWIP_PORT_PEER_H_

#include <stdint.h>

// Takes a frame: the other instance's XtremeLwipReceive.
typedef void (*XtremeLwipWire)(const uint8_t* frame, uint16_t length);

struct XtremeLwipHost {
  uint8_t mac[6];
  uint32_t address;
  uint16_t port;
};

// Brings the interface up with a UDP socket bound to our port and connected to the peer, whose MAC
// address is known. `echo`: datagrams are sent back. `wire` NULL: see stream.h. 0, or not.
typedef int (*XtremeLwipOpen)(const struct XtremeLwipHost* us, const struct XtremeLwipHost* peer,
                              int echo, XtremeLwipWire wire);
// Sends a datagram of `length` bytes at `payload`. 0, or not.
typedef int (*XtremeLwipSend)(const void* payload, uint16_t length);
// Datagrams received so far.
typedef uint64_t (*XtremeLwipReceived)(void);

#endif  // XTREME_BENCHMARKS_LWIP_PORT_PEER_H_
