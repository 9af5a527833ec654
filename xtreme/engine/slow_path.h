// SPDX-License-Identifier: Apache-2.0
//
// The slow path: what reached the kernel's socket behind a port, handed on to the ring.
//
// Invariant: at most kMostWaiting datagrams of a socket are on their way at once, so that a ring
// which is not polled holds no more; what finds no room is counted by the ring, as is what the
// kernel dropped before. Threads: the control thread; what arrives, the ring's owner.

#ifndef XTREME_XTREME_ENGINE_SLOW_PATH_H_
#define XTREME_XTREME_ENGINE_SLOW_PATH_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/kernel.h"

namespace xtreme::engine {

inline constexpr uint32_t kMostWaiting = 256;

// What is held for a UDP socket, with the watch of its port: one block of memory, as there are as
// many as sockets.
class PortHoldings final : public SocketHoldings, public ControlThread::FdWatch {
 public:
  // Hands on what the port of `path` gets to `socket` of the ring of `side`, until its fd is
  // unwatched: before `side` goes.
  static void Serve(const std::shared_ptr<PortHoldings>& path, ControlThread* control,
                    const ControlSide* side, Handle socket);

  void OnReady(uint32_t events) override;

 private:
  // False: too many wait.
  bool HandOn(const KernelDatagram& datagram);

  const ControlSide* side_ = nullptr;
  Handle socket_ = 0;
  std::shared_ptr<std::atomic<uint32_t>> waiting_;  // Null: nothing ever came, as to most.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SLOW_PATH_H_
