// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueue: posts buffers of a pool and takes them back filled.
//
// Invariant: consumer <= producer <= consumer + size; the device fills WQEs in order, and each has
// one CQE, so the CQ's consumer index is this queue's too. A posted buffer has one reference, ours;
// it goes to whoever takes the frame. Refilling changes only the address in a WQE: key and length
// are written once.
// Units: buffers, bytes. Thread: the ring's owner. Written by the device: CQEs and the buffers.

#ifndef XTREME_XTREME_MLX5_RECEIVE_QUEUE_H_
#define XTREME_XTREME_MLX5_RECEIVE_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/completion_queue.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::completion {
class KnownFlows;
}

namespace xtreme::udp {
class Endpoint;
}

namespace xtreme::mlx5 {

class ReceiveQueue {
 public:
  struct Options {
    uint32_t buffer_bytes = 1522;  // What the device may write into a buffer.
    bool checksums = true;         // CQEs carry verdicts.
    bool timestamps = true;        // CQEs carry a time.
  };

  // Writes the constant part of every WQE. `pool` and `counters` outlive the queue, and so does
  // `stop`: where, in CQEs, a refill will be due. It is written when that changes.
  ReceiveQueue(const ReceiveQueueMemory& memory, const Options& options, packet::BufferPool* pool,
               nic::QueueCounters* counters, const uint8_t** stop);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;
  // Returns the posted buffers: the device must be done with the queue. Touches no ring.
  ~ReceiveQueue();

  // See nic::QueuePair. Error CQEs return their buffers and end the queue; `error` gets the cause.
  // Those of frames too long for a buffer, CQEs of no posted buffer and of more bytes than one has
  // are counted and give nothing.
  uint32_t Poll(std::span<nic::RxFrame> out, std::optional<nic::QueueError>* error);
  // `data` stands here too: it is prefetched without a look at the buffer.
  struct Posted {
    packet::Buffer* buffer = nullptr;
    uint8_t* data = nullptr;
  };
  // What the next CQE is of.
  const Posted& next() const { return *next_; }
  // What PollKnown() took.
  struct Sums {
    uint64_t bytes = 0;
    uint32_t silent = 0;  // Frames without a completion.
  };
  // See nic::QueuePair; `Flows` are those of either form. From the next CQE, of this `phase`, whose
  // owner bit stands at `op_own`; to that of the first that was not taken. Adds to `sums`, and says
  // in `declined` that a frame was looked at and left. `most`: not more than are posted. Pass()
  // comes next. Shows `watch` what it looks at (receive_known.h).
  template <typename Flows, typename Watch>
  const uint8_t* PollKnown(const Flows& flows, const uint8_t* op_own, uint8_t phase,
                           typename Flows::Out* out, uint32_t most, Sums* sums, bool* declined,
                           Watch watch);
  // Whether a frame of this `length` is one that PollKnown() looks at.
  bool MayBeKnown(const mlx5_cqe64& cqe, uint32_t length) const;
  // The same of the next CQE alone; null: it was not taken. At least one is posted.
  template <typename Watch>
  packet::Buffer* TakeKnown(const completion::KnownFlows& flows, const udp::Endpoint* endpoint,
                            size_t most, const uint8_t* op_own, uint8_t phase, uint64_t* bytes,
                            Watch watch);
  // Done with as many CQEs, which did not go over their ring's end; they go back to the device with
  // the next refill.
  void Pass(uint32_t cqes) {
    completions_.Pop(cqes);
    next_ += cqes;
  }
  // Where the ring of WQEs ends, both begin anew.
  bool AtLast() const { return next_ == last_; }
  bool AtEnd() const { return next_ > last_; }
  void BeginAnew() { next_ = posted_.get(); }
  // Says where a refill is due, or the ring ends, of what shows at `peek` from here on.
  void ShowStop(const uint8_t* peek) {
    ShowStop(peek, std::max(posted() + 1, refill_below_) - refill_below_);
  }
  // See nic::QueuePair. `peek`: where the next CQE shows.
  uint32_t Refill(const uint8_t* peek);
  uint32_t TakeLowWater();

  uint32_t posted() const { return producer_ - completions_.consumer(); }
  uint32_t size() const { return mask_ + 1; }
  // Nothing more is posted.
  void End() { broken_ = true; }
  // In error, and nothing is left to be taken.
  bool ended() const { return broken_ && posted() == 0; }
  CompletionQueue& completions() { return completions_; }
  const CompletionQueue& completions() const { return completions_; }
  uint32_t producer() const { return producer_; }  // Buffers posted so far, free-running.
  // Counts what PollKnown() took since.
  void SettleCounters() const {
    counters_->rx_frames = frames_counted_ + (completions_.consumer() - noted_at_);
  }

 private:
  // Errors, and CQEs of what cannot be, from `index` on; up to which.
  uint32_t TakeErrors(uint32_t index, std::optional<nic::QueueError>* error);
  void TakeStray(std::optional<nic::QueueError>* error);
  void Take(uint32_t cqes, uint32_t frames, uint64_t bytes);
  class Poster;
  bool PostBatch();
  void ShowPosted();
  uint32_t RefillOtherwise(uint32_t wanted, const uint8_t* peek);
  uint32_t PostBuffers(uint32_t most);
  void NoteLowWater();
  uint32_t slot() const { return completions_.consumer() & mask_; }
  // Of so many that are posted beyond those below which a refill is due.
  void ShowStop(const uint8_t* peek, uint32_t spare) {
    *stop_ = peek + size_t{std::min(spare, size() - slot())} * kCqeBytes;
  }

  // Constant.
  uint8_t* const wqes_;
  const uint32_t mask_;
  uint32_t* const record_;
  packet::BufferPool* const pool_;
  nic::QueueCounters* const counters_;
  const uint8_t** const stop_;
  const uint32_t buffer_bytes_;
  const uint16_t checksum_mask_;
  const uint16_t constant_flags_;
  const uint32_t refill_below_;
  // What PollKnown() takes has fewer bytes behind its headers; 0 where CQEs have no verdicts or no
  // time.
  const uint32_t known_below_;

  // Both sides; ours alone.
  bool broken_ = false;
  uint32_t producer_ = 0;
  uint32_t low_water_ = ~uint32_t{0};  // Nothing has been taken yet.
  uint32_t noted_at_ = 0;              // The consumer's index when it was last looked at.
  uint64_t frames_counted_ = 0;        // Until then.
  std::unique_ptr<Posted[]> posted_;
  const Posted* const last_;
  const Posted* next_;  // Of the consumer's index.
  CompletionQueue completions_;
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_RECEIVE_QUEUE_H_
