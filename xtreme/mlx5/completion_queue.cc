// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/completion_queue.h"

namespace xtreme::mlx5 {
namespace {

// PRM, "CQ Doorbell": offset in the UAR page, and the fields of its upper word.
constexpr size_t kArmOffset = 0x20;
constexpr uint32_t kSequenceShift = 28;
constexpr uint32_t kSequenceMask = 3;
constexpr uint32_t kAnyCompletion = MLX5_CQ_DB_REQ_NOT;

}  // namespace

void PrepareCqes(const CompletionQueueMemory& memory) {
  auto* cqes = reinterpret_cast<mlx5_cqe64*>(memory.cqes);
  for (uint32_t i = 0; i < 1u << memory.cqes_log2; ++i) cqes[i].op_own = kUnwrittenOpOwn;
}

void CompletionQueue::Arm() {
  const uint32_t word = (arm_sequence_ & kSequenceMask) << kSequenceShift | kAnyCompletion |
                        (consumer_ & kIndexMask);
  nic::StoreRecord(&memory_.record[1], word);
  nic::OrderRecordBeforeDoorbell();
  const uint64_t doorbell = uint64_t{word} << 32 | memory_.cqn;
  nic::RingDoorbell(memory_.uar + kArmOffset, base::HostToBigEndian(doorbell));
  nic::FlushBlueFlame();
}

}  // namespace xtreme::mlx5
