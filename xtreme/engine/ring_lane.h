// SPDX-License-Identifier: Apache-2.0
//
// RingLane: one thread's way into a ring it does not own: what it posts comes out as POSTED.
//
// Outlives the ring. Threads: Post one producer at a time, the rest the ring's owner.

#ifndef XTREME_XTREME_ENGINE_RING_LANE_H_
#define XTREME_XTREME_ENGINE_RING_LANE_H_

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "xtreme/engine/lane.h"
#include "xtreme/engine/mailbox.h"

namespace xtreme::engine {

class RingLane {
 public:
  explicit RingLane(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  // The one producer thread. 0; EAGAIN: full; EPIPE: the ring or the lane is closed.
  int Post(uint64_t value) {
    if (closed_.load(std::memory_order_acquire) || mailbox_->closed()) return EPIPE;
    if (!lane_.Push(value)) return EAGAIN;
    mailbox_->Knock();
    return 0;
  }

  // The ring's owner.
  void Close() { closed_.store(true, std::memory_order_release); }
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  Lane& lane() { return lane_; }

 private:
  Lane lane_;
  std::atomic<bool> closed_{false};
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_LANE_H_
