// SPDX-License-Identifier: Apache-2.0
//
// PacedUse: a socket's share in a send queue with a rate; the last one's end ends the queue.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_PACED_USE_H_
#define XTREME_XTREME_ENGINE_PACED_USE_H_

#include <memory>

namespace xtreme::engine {

struct PacedQueue;

struct EndPacedUse {
  void operator()(PacedQueue* queue) const;
};

// Null: the socket sends by the ring's own queue.
using PacedUse = std::unique_ptr<PacedQueue, EndPacedUse>;

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PACED_USE_H_
