// SPDX-License-Identifier: Apache-2.0
//
// From a CQE to the completion of a packet, in one loop.
//
// Invariant: what is taken here are received frames, whole and verified, of flows that are known;
// the first that is anything else is left to ReceiveQueue::Poll().

#include <algorithm>
#include <atomic>

#include "xtreme/completion/known_flows_write.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::mlx5 {

[[gnu::always_inline]] inline CqeCursor ReceiveQueue::PollKnown(
    const completion::KnownFlows& flows, CqeCursor next, completion::Completion* out,
    uint32_t most) {
  constexpr uint8_t kVerdicts = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
  constexpr uint32_t kLeast = completion::KnownFlows::kLeastFrameBytes;
  if (most == 0) [[unlikely]] return next;
  const completion::Completion* const first = out;
  const completion::Completion* const end = out + most;
  const mlx5_cqe64* cqe = next.cqe;
  uint32_t received = ReceivedOpOwn(next.phase);
  const Posted* posted = &posted_[completions_.consumer() & mask_];
  uint64_t bytes = 0;
  for (;;) {
    // The owner bit first: the device writes it last.
    const uint8_t op_own =
        std::atomic_ref<const uint8_t>(cqe->op_own).load(std::memory_order_acquire);
    if (!IsReceivedFrame(op_own, received)) break;
    const uint32_t length = FrameBytes(*cqe);
    const bool verified = (cqe->hds_ip_ext & kVerdicts) == known_verdicts_;
    // In one: a frame without headers, or longer than its buffer.
    if (!verified || length - kLeast > known_room_) [[unlikely]] break;
    if (!flows.Write(posted->buffer, posted->data, length, HardwareClock(*cqe), out)) break;
    bytes += length;
    if (++posted == posted_end_) [[unlikely]] posted = posted_.get();
    if (++cqe == cqes_end_) [[unlikely]] {
      cqe = completions_.ring().cqes;
      received ^= 1;
    }
    if (++out == end) break;
    __builtin_prefetch(posted->data);
  }
  const auto passed = static_cast<uint32_t>(out - first);
  completions_.Pop(passed);
  counters_->rx_frames += passed;
  counters_->rx_bytes += bytes;
  return {.cqe = cqe, .phase = static_cast<uint8_t>(received & 1), .passed = passed};
}

uint32_t QueuePair::PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                              uint32_t most) {
  const CqeCursor next = {.cqe = CqeOfOpOwn(receive_peek_), .phase = receive_phase_};
  const CqeCursor after = receive_.PollKnown(flows, next, out, std::min(most, receive_posted_));
  receive_peek_ = &after.cqe->op_own;
  receive_phase_ = after.phase;
  receive_posted_ -= after.passed;
  return after.passed;
}

}  // namespace xtreme::mlx5
