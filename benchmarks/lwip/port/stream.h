// SPDX-License-Identifier: Apache-2.0
//
// TCP of one lwIP (see peer.h), opened with wire NULL: one listener and one connection at a time.
//
// Frames that are sent wait for XtremeLwipNextFrame: a stack cannot be entered from within itself.
// Thread: one for all instances.

#ifndef XTREME_BENCHMARKS_LWIP_PORT_STREAM_H_
#define XTREME_BENCHMARKS_LWIP_PORT_STREAM_H_

#include <stdint.h>

// Listens on our port. Whoever comes gets an answer as long as each run of bytes that he sent
// (`echo`), and FIN for FIN. 0, or not.
typedef int (*XtremeLwipListen)(int echo);
// Starts connecting to the peer's port. 0, or not.
typedef int (*XtremeLwipConnect)(void);
// Sends `length` bytes at `bytes`, copied, at once. 0, or not.
typedef int (*XtremeLwipWrite)(const void* bytes, uint16_t length);
typedef void (*XtremeLwipClose)(void);
// The oldest frame that waits, until the next call; NULL: none does.
typedef const uint8_t* (*XtremeLwipNext)(uint16_t* length);
// Half a second has passed.
typedef void (*XtremeLwipTick)(void);

struct XtremeLwipCounts {
  uint64_t bytes;        // Received.
  uint64_t established;  // Connections, from either side.
  uint64_t ended;
};
typedef struct XtremeLwipCounts (*XtremeLwipCount)(void);

#endif  // XTREME_BENCHMARKS_LWIP_PORT_STREAM_H_
