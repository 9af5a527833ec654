// SPDX-License-Identifier: Apache-2.0
//
// RingRemains: what a closed ring leaves to the control thread, because ending it needs the kernel
// or the device.
//
// Invariant: the queues go last of what the device may write to or read from; their buffers are
// given back after them. Threads: filled by the ring's owner, buried by the control thread.

#ifndef XTREME_XTREME_ENGINE_RING_REMAINS_H_
#define XTREME_XTREME_ENGINE_RING_REMAINS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "xtreme/engine/kernel.h"

namespace xtreme::nic {
class QueuePair;
}
namespace xtreme::stats {
class FrameTap;
class Publisher;
}

namespace xtreme::engine {

class ControlThread;
class Mailbox;
struct ControlSide;
struct SocketHoldings;

struct RingRemains {
  RingRemains();
  ~RingRemains();

  // Sends what is posted, for at most `patience`, then ends all of it.
  void Bury(ControlThread& control, base::Nanoseconds patience);

  struct Posted {
    std::unique_ptr<nic::QueuePair> queue;
    uint32_t frames_completed;  // Of those posted to it.
  };

  std::vector<Posted> queues;  // The ring's own last.
  std::shared_ptr<ControlSide> side;
  std::vector<std::shared_ptr<SocketHoldings>> holdings;  // TCP's.
  std::vector<std::unique_ptr<KernelPort>> ports;
  std::vector<packet::Buffer*> sending;  // A reference of each.
  packet::Buffer* guard = nullptr;       // Keeps the pool's memory.
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<stats::FrameTap> tap;         // Gets what the queue still sends.
  std::unique_ptr<stats::Publisher> publisher;  // Its file goes when everything else is gone.

 private:
  void AwaitSends(base::Nanoseconds patience);
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_REMAINS_H_
