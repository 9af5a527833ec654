// SPDX-License-Identifier: Apache-2.0
//
// LoopbackQueue: own multicast on its way to another ring of the process that joined the group.
//
// A bounded queue of several producers. Invariant: what was pushed is taken once, or released with
// the queue; a full queue refuses and never waits. A slot's turn says whose it is: its number while
// it is free for that lap, one more while it is full.
// Threads: Push any, Drain the receiving ring's owner.
// After: D. Vyukov's bounded queue (the idea of a turn a slot).

#ifndef XTREME_XTREME_ENGINE_LOOPBACK_QUEUE_H_
#define XTREME_XTREME_ENGINE_LOOPBACK_QUEUE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/wire/frame.h"
#include "xtreme/engine/mailbox.h"

namespace xtreme::engine {

// One reference of each link of a chain in the sender's pool. Read only: others read it too.
struct LoopedDatagram {
  packet::Buffer* head = nullptr;
  wire::UdpFlow flow;
};

class LoopbackQueue {
 public:
  static constexpr uint32_t kCapacity = 256;

  explicit LoopbackQueue(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {
    for (uint32_t i = 0; i < kCapacity; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }
  ~LoopbackQueue() {
    Drain(kCapacity, [](const LoopedDatagram& datagram) {
      packet::BufferPool::ReleaseChain(datagram.head);
    });
  }
  LoopbackQueue(const LoopbackQueue&) = delete;
  LoopbackQueue& operator=(const LoopbackQueue&) = delete;

  // True: taken, with its references, and the ring knocked at. False: full, or the ring is closed.
  bool Push(const LoopedDatagram& datagram) {
    if (mailbox_->closed()) return false;
    uint32_t tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[tail % kCapacity];
      const uint32_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == tail) {
        if (!tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) continue;
        slot.datagram = datagram;
        slot.turn.store(tail + 1, std::memory_order_release);
        mailbox_->Knock();
        return true;
      }
      // Behind: the slot is full since the last lap. Ahead: another producer was faster.
      if (static_cast<int32_t>(turn - tail) < 0) return false;
      tail = tail_.load(std::memory_order_relaxed);
    }
  }

  // Calls `take(datagram)` on up to `max`, oldest first; how many.
  template <typename Take>
  uint32_t Drain(uint32_t max, Take&& take) {
    uint32_t count = 0;
    for (; count < max && !empty(); ++count) {
      Slot& slot = slots_[head_ % kCapacity];
      const LoopedDatagram datagram = slot.datagram;
      slot.turn.store(head_ + kCapacity, std::memory_order_release);
      ++head_;
      take(datagram);
    }
    return count;
  }
  bool empty() const {
    return slots_[head_ % kCapacity].turn.load(std::memory_order_acquire) != head_ + 1;
  }

 private:
  struct Slot {
    std::atomic<uint32_t> turn{0};
    LoopedDatagram datagram;
  };

  const std::shared_ptr<Mailbox> mailbox_;
  alignas(64) std::atomic<uint32_t> tail_{0};
  // Owner.
  alignas(64) uint32_t head_ = 0;
  alignas(64) std::array<Slot, kCapacity> slots_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LOOPBACK_QUEUE_H_
