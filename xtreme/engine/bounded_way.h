// SPDX-License-Identifier: Apache-2.0
//
// BoundedWay: notices of one kind from the control thread to one ring.
//
// Invariant: a bounded number of them waits for the ring; what is beyond that is counted, told with
// the next that does, and gone, so that a flood of them costs a ring that does not poll nothing.
// Threads: the control thread's; what is handed on runs on that of the ring's owner.

#ifndef XTREME_XTREME_ENGINE_BOUNDED_WAY_H_
#define XTREME_XTREME_ENGINE_BOUNDED_WAY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "xtreme/engine/mailbox.h"

namespace xtreme::engine {

class BoundedWay {
 public:
  explicit BoundedWay(uint32_t most) : most_(most) {}

  // `act(Ring&, uint64_t lost)`, with what was lost before; or `weight` more is.
  template <typename Act>
  void HandOn(Mailbox& mailbox, uint64_t weight, Act act) {
    if (waiting_->load(std::memory_order_relaxed) >= most_) {
      lost_ += weight;
      return;
    }
    waiting_->fetch_add(1, std::memory_order_relaxed);
    mailbox.Push(MakeNotice([act = std::move(act), lost = std::exchange(lost_, 0),
                             waiting = waiting_](Ring& ring) {
      waiting->fetch_sub(1, std::memory_order_relaxed);
      act(ring, lost);
    }));
  }

 private:
  uint32_t most_;
  std::shared_ptr<std::atomic<uint32_t>> waiting_ = std::make_shared<std::atomic<uint32_t>>(0);
  uint64_t lost_ = 0;  // Of those the ring was not told of yet.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_BOUNDED_WAY_H_
