// SPDX-License-Identifier: Apache-2.0
//
// SendQueue: posts frames as WQEs, rings for them, and learns from CQEs how far the device is.
//
// Invariant: completed <= posted <= completed + frames (free-running counts of frames). The ring
// has four blocks for each frame, so a queue that is not full in frames has room for any WQE, and
// one comparison decides. A WQE that would cross the ring's end is written elsewhere and spread.
// A signalled block remembers the count of frames up to it: its CQE names it, and so the count.
// Units: frames, WQEBBs, bytes. Thread: the ring's owner. Allocates only when it is made.

#ifndef XTREME_XTREME_MLX5_SEND_QUEUE_H_
#define XTREME_XTREME_MLX5_SEND_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "xtreme/mlx5/completion_queue.h"
#include "xtreme/mlx5/doorbell.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

class SendQueue {
 public:
  struct Options {
    uint32_t signal_every = 32;       // 1 .. a quarter of the frames the ring holds.
    uint32_t max_frame_bytes = 1518;  // MTU, Ethernet header and a VLAN tag.
    bool timestamps = true;           // CQEs carry a time.
  };

  // `counters` and `completions_due`, which the queue keeps at the number of CQEs that will come,
  // outlive it.
  SendQueue(const SendQueueMemory& memory, const Options& options, nic::QueueCounters* counters,
            uint32_t* completions_due);
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  nic::TxStatus Post(const nic::TxFrame& frame);
  void Flush();

  // Takes completions; see nic::QueuePair::PollSend. An error CQE ends the queue: its frames count
  // as completed, with no time, and `error` gets the cause if it is the first.
  uint32_t Poll(std::span<nic::TxCompletion> out, std::optional<nic::QueueError>* error);

  // Free-running counts of frames.
  uint32_t posted_frames() const { return posted_; }
  uint32_t completed_frames() const { return completed_; }
  CompletionQueue& completions() { return completions_; }

 private:
  // What Post() does not do itself: gathers, signals, warm sends, the ring's end, refusals.
  nic::TxStatus PostSpecial(const nic::TxFrame& frame);
  nic::TxStatus Refuse();
  uint32_t WriteSpecial(uint8_t* wqe, const nic::TxFrame& frame, Completion completion);
  void SpreadOverRingEnd(uint32_t slot, uint32_t wqebbs);
  void UpdateAttention();

  // Ring for everything posted, `wqe` being the last. Always kPosted: Post() ends in them.
  nic::TxStatus RingByBlueFlame(const uint8_t* wqe, uint32_t wqebbs);
  nic::TxStatus RingByDoorbell(const uint8_t* wqe);

  nic::TxCompletion TakeError(const mlx5_cqe64& cqe, std::optional<nic::QueueError>* error);
  const uint8_t* WqeAt(uint32_t wqebb) const { return wqebbs_ + (wqebb & mask_) * kWqebbBytes; }

  // Constant.
  uint8_t* const wqebbs_;
  const uint32_t mask_;            // Of WQEBBs in the ring.
  const uint32_t qpn_;
  const uint32_t blueflame_wqebbs_;  // The longest WQE for BlueFlame; 0: none.
  const Options options_;
  uint32_t* const record_;
  uint8_t* const doorbell_register_;
  const uint32_t half_bytes_;  // Between the two halves of the register.
  nic::QueueCounters* const counters_;
  uint32_t* const completions_due_;

  alignas(32) uint8_t head_[kHeadBytes];  // Of a send that is not signalled; see WriteHeadLike.

  // Producer side.
  uint8_t* next_wqe_;
  const uint8_t* unrung_ = nullptr;  // The last WQE that waits for Flush.
  uint32_t producer_ = 0;            // WQEBBs, free-running.
  uint32_t attention_at_ = 0;        // The count of posted frames at which Post() is not enough.
  uint32_t posted_ = 0;
  uint32_t signal_at_;               // The count at which the next frame is signalled.
  uint32_t next_half_ = 0;
  alignas(64) uint8_t scratch_[kMaxWqeBytes] = {};

  // Consumer side.
  uint32_t frames_;                          // The queue's size; 0 once it is broken.
  uint32_t completed_ = 0;
  uint32_t oldest_wqebb_ = 0;                // First block not known to be completed.
  std::unique_ptr<uint32_t[]> frames_at_;    // By block: frames up to a signalled WQE.
  CompletionQueue completions_;
};

[[gnu::always_inline]] inline nic::TxStatus SendQueue::Post(const nic::TxFrame& frame) {
  const uint32_t flags = frame.flags;
  const uint32_t bytes = frame.header_length + frame.payload_length;
  uint8_t* const wqe = next_wqe_;
  if (posted_ == attention_at_ || (flags & (nic::kTxSignal | nic::kTxWarm)) != 0 ||
      bytes > kMaxInlineFrameBytes) [[unlikely]] {
    return PostSpecial(frame);
  }
  // All that is read of `frame` is read before the first store.
  const uint8_t* const header = frame.header;
  const uint8_t* const payload = frame.payload;
  const uint32_t header_length = frame.header_length;
  const uint32_t payload_length = bytes - header_length;
  const uint32_t wqebbs = WqebbsWithInline(bytes);
  WriteHeadLike(head_, wqe, static_cast<uint16_t>(producer_), bytes, flags);
  WriteInlineFrame(wqe, header, header_length, payload, payload_length);
  next_wqe_ = wqe + wqebbs * kWqebbBytes;
  producer_ += wqebbs;
  ++posted_;
  ++counters_->tx_frames;
  counters_->tx_bytes += bytes;
  if (flags & nic::kTxMore) {
    unrung_ = wqe;
    return nic::TxStatus::kPosted;
  }
  // BlueFlame carries one WQE: the only one that the device does not know of.
  if (unrung_ == nullptr && wqebbs <= blueflame_wqebbs_) return RingByBlueFlame(wqe, wqebbs);
  return RingByDoorbell(wqe);
}

inline void SendQueue::Flush() {
  if (unrung_ != nullptr) RingByDoorbell(unrung_);
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_H_
