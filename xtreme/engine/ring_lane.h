// SPDX-License-Identifier: Apache-2.0
//
// RingLane: one thread's way into a ring it does not own: what it posts comes out as POSTED, what
// it fires is sent by the owner's next poll.
//
// Outlives the ring. Threads: Post and Fire one producer at a time, the rest the ring's owner.

#ifndef XTREME_XTREME_ENGINE_RING_LANE_H_
#define XTREME_XTREME_ENGINE_RING_LANE_H_

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "xtreme/engine/handle.h"
#include "xtreme/engine/lane.h"
#include "xtreme/engine/mailbox.h"

namespace xtreme::engine {

class RingLane {
 public:
  // `ring`: the number of its ring.
  RingLane(std::shared_ptr<Mailbox> mailbox, uint16_t ring)
      : mailbox_(std::move(mailbox)), ring_(ring) {}

  // The one producer thread. 0; EAGAIN: full; EPIPE: the ring or the lane is closed.
  int Post(uint64_t value) { return Push({.value = value}); }
  // Fires a prepared send of the lane's ring with these flags (SendFlag). As Post(), and EBADF: it
  // is another ring's, whose place and generation may be those of an order here. What became of it
  // is told on the ring.
  int Fire(Handle prepared, uint64_t cookie, uint32_t flags) {
    if (RingOf(prepared) != ring_) return EBADF;
    return Push({.value = cookie, .work = WorkOf(prepared, flags)});
  }

  // What an entry asks for: 0 to hand out its value, else to fire. The ring's number, which it
  // knows, makes room for the flags in the handle; a generation is never 0.
  static constexpr uint64_t WorkOf(Handle prepared, uint32_t flags) {
    return (prepared & kWithoutRing) | uint64_t{flags} << 48;
  }
  static constexpr Handle HandleOf(uint64_t work, uint16_t ring) {
    return (work & kWithoutRing) | uint64_t{ring} << 48;
  }
  static constexpr uint32_t FlagsOf(uint64_t work) { return static_cast<uint32_t>(work >> 48); }

  // The ring's owner.
  void Close() { closed_.store(true, std::memory_order_release); }
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  Lane& lane() { return lane_; }

 private:
  static constexpr uint64_t kWithoutRing = (uint64_t{1} << 48) - 1;

  int Push(const LaneEntry& entry) {
    if (closed_.load(std::memory_order_acquire) || mailbox_->closed()) return EPIPE;
    // Not past what this lane still holds.
    if (lane_.AllTaken() && mailbox_->LeaveAtDoor(entry)) {
      lane_.CountOneBeside();
      return 0;
    }
    if (!lane_.Push(entry)) return EAGAIN;
    mailbox_->Knock();
    return 0;
  }

  Lane lane_;
  std::atomic<bool> closed_{false};
  const std::shared_ptr<Mailbox> mailbox_;
  const uint16_t ring_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_LANE_H_
