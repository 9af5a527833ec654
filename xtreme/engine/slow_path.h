// SPDX-License-Identifier: Apache-2.0
//
// The slow path: what reached the kernel's socket behind a port, handed on to the ring.
//
// Invariant: at most kMostWaiting datagrams of a socket are on their way at once, so that a ring
// which is not polled holds no more; what finds no room is counted by the ring, as is what the
// kernel dropped before. Threads: the control thread; what arrives, the ring's owner.

#ifndef XTREME_XTREME_ENGINE_SLOW_PATH_H_
#define XTREME_XTREME_ENGINE_SLOW_PATH_H_

#include <cstdint>

#include "xtreme/engine/handle.h"

namespace xtreme::engine {

class ControlThread;
struct ControlSide;

inline constexpr uint32_t kMostWaiting = 256;

// Hands on what the port held for `socket` gets, until its fd is unwatched: before `side` goes.
void ServePort(ControlThread& control, ControlSide& side, Handle socket);

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SLOW_PATH_H_
