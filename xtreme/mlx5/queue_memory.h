// SPDX-License-Identifier: Apache-2.0
//
// What bring-up hands to the data path: where the rings, records and registers of a queue lie.
//
// Plain structures of addresses, so that a queue runs on the memory of a device, or on any memory
// that a test or a benchmark lays out. Invariant: everything named here outlives the queue that is
// built on it. Units: entries as powers of two (`_log2`), WQEBBs of 64 bytes.

#ifndef XTREME_XTREME_MLX5_QUEUE_MEMORY_H_
#define XTREME_XTREME_MLX5_QUEUE_MEMORY_H_

#include <cstdint>

namespace xtreme::mlx5 {

struct CompletionQueueMemory {
  uint8_t* cqes = nullptr;      // CQEs of 64 bytes, see PrepareCqes().
  uint32_t cqes_log2 = 0;
  uint32_t* record = nullptr;   // Two words: consumer index, arm.
  uint8_t* uar = nullptr;       // The page whose word at 0x20 arms.
  uint32_t cqn = 0;
};

// Memory in the NIC that frames are sent from, mapped write-combining.
struct DeviceMemory {
  uint8_t* bytes = nullptr;  // 64-byte aligned.
  uint32_t bytes_log2 = 0;   // 0: none.
  uint32_t key = 0;          // Under which its addresses begin at 0.
};

struct SendQueueMemory {
  uint8_t* wqebbs = nullptr;            // 64-byte aligned.
  uint32_t wqebbs_log2 = 0;             // Four blocks a frame.
  uint32_t* record = nullptr;           // The send word.
  // With BlueFlame: two halves of `blueflame_bytes`, aligned to both together.
  uint8_t* doorbell_register = nullptr;
  uint32_t blueflame_bytes = 0;         // 0: doorbells only.
  uint32_t qpn = 0;
  DeviceMemory device_memory;           // Only with BlueFlame.
  CompletionQueueMemory completions;    // At least one CQE a frame.
};

struct ReceiveQueueMemory {
  uint8_t* wqes = nullptr;     // Data segments of 16 bytes.
  uint32_t wqes_log2 = 0;
  uint32_t* record = nullptr;  // The receive word.
  uint32_t key = 0;            // Of the pool's memory.
  CompletionQueueMemory completions;  // At least one CQE a WQE.
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_QUEUE_MEMORY_H_
