// SPDX-License-Identifier: Apache-2.0
//
// CompletionQueue: the CQEs of one queue, read in order.
//
// Invariant: a CQE is ours when its owner bit equals the lap's; the device may write over it only
// after Publish() moved the record past it, so its fields are copied out before.
// Written by the device: CQEs. By us: the record. Thread: the ring's owner.
// Spec: Mellanox Adapters PRM, "Completion Queues", "CQ Doorbell".

#ifndef XTREME_XTREME_MLX5_COMPLETION_QUEUE_H_
#define XTREME_XTREME_MLX5_COMPLETION_QUEUE_H_

#include <cstdint>

#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5 {

// Makes fresh CQEs tell by their owner bit alone that the device has not written them. Before
// anything can complete.
void PrepareCqes(const CompletionQueueMemory& memory);

// Where CQEs are looked for: small and constant, so that a loop keeps a copy in registers.
struct CqeRing {
  const mlx5_cqe64* cqes;
  uint32_t mask;
  uint32_t entries_log2;

  const mlx5_cqe64& At(uint32_t index) const { return cqes[index & mask]; }

  // op_own of the CQE at `index`, a free-running count, with the owner bit 0 if the device has
  // written it and 1 if not. Its other bytes are read after this: the device writes it last.
  uint8_t OpOwner(uint32_t index) const {
    return LoadOpOwn(At(index)) ^ OwnerBit(index, entries_log2);
  }
};

// The CQE whose owner bit stands there.
inline const mlx5_cqe64* CqeOfOpOwn(const uint8_t* op_own) {
  return reinterpret_cast<const mlx5_cqe64*>(op_own - offsetof(mlx5_cqe64, op_own));
}

class CompletionQueue {
 public:
  explicit CompletionQueue(const CompletionQueueMemory& memory)
      : ring_{reinterpret_cast<const mlx5_cqe64*>(memory.cqes), (1u << memory.cqes_log2) - 1,
              memory.cqes_log2},
        memory_(memory) {}

  const CqeRing& ring() const { return ring_; }
  // CQEs taken so far; free-running.
  uint32_t consumer() const { return consumer_; }

  // The next CQE, or null when the device has not written it.
  const mlx5_cqe64* Peek() const {
    const CqeRing ring = ring_;
    const uint32_t next = consumer_;
    return IsWritten(ring.OpOwner(next)) ? &ring.At(next) : nullptr;
  }
  // The same in two steps: CqeRing::OpOwner() of the next, and the CQE.
  uint8_t NextOpOwner() const { return ring_.OpOwner(consumer_); }
  const mlx5_cqe64& Next() const { return ring_.At(consumer_); }
  // Where the owner bit of the next CQE stands, and what it must be.
  const uint8_t* peek() const { return &ring_.cqes[consumer_ & ring_.mask].op_own; }
  uint8_t phase() const { return OwnerBit(consumer_, ring_.entries_log2); }

  // Done with the CQE that Peek() gave, or with `count`.
  void Pop(uint32_t count = 1) { consumer_ += count; }

  // Gives popped CQEs back to the device. Before the work queue's own record: only then can the
  // device not run out of CQEs for what it is allowed to do.
  void Publish() { nic::StoreRecord(&memory_.record[0], consumer_ & kIndexMask); }

  // Asks for one event at the next completion after those popped. Publish() first.
  void Arm();
  // An event came: the next Arm() is another one.
  void CountEvent() { ++arm_sequence_; }

 private:
  static constexpr uint32_t kIndexMask = 0xffffff;

  const CqeRing ring_;
  const CompletionQueueMemory memory_;
  uint32_t consumer_ = 0;      // Free-running.
  uint32_t arm_sequence_ = 0;  // The device ignores an arm with the number of one that fired.
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_COMPLETION_QUEUE_H_
