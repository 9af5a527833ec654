// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/receive_queue.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstddef>

#include "stack/base/byte_order.h"
#include "xtreme/completion/known_flows.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_error.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5 {
namespace {

constexpr size_t kWqeBytes = sizeof(mlx5_wqe_data_seg);
// A refill waits for as many missing buffers: two lines of WQEs, and of a short queue little.
constexpr uint32_t kRefillBatch = 8;
constexpr uint32_t kRefillFraction = 64;

// A frame that the device found too long for its buffer: that costs the buffer's WQE, and the queue
// stays ready.
bool IsTooLong(const mlx5_cqe64& cqe, const CqeError& cause) {
  return cqe.op_own >> 4 == MLX5_CQE_RESP_ERR &&
         cause.syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
}

}  // namespace

ReceiveQueue::ReceiveQueue(const ReceiveQueueMemory& memory, const Options& options,
                           packet::BufferPool* pool, nic::QueueCounters* counters,
                           const uint8_t** stop)
    : wqes_(memory.wqes),
      mask_((1u << memory.wqes_log2) - 1),
      record_(memory.record),
      pool_(pool),
      counters_(counters),
      stop_(stop),
      buffer_bytes_(options.buffer_bytes),
      checksum_mask_(options.checksums ? nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk : 0),
      constant_flags_(options.timestamps ? nic::kRxTimestamp : 0),
      refill_below_(size() - std::clamp(size() / kRefillFraction, 1u, kRefillBatch) + 1),
      known_below_(options.checksums && options.timestamps &&
                           options.buffer_bytes >= completion::KnownFlows::kReadableBytes
                       ? options.buffer_bytes - completion::KnownFlows::kLeastFrameBytes + 1
                       : 0),
      posted_(std::make_unique<Posted[]>(size_t{1} << memory.wqes_log2)),
      last_(posted_.get() + mask_),
      next_(posted_.get()),
      completions_(memory.completions) {
  for (size_t i = 0; i <= mask_; ++i) {
    uint8_t* wqe = wqes_ + i * kWqeBytes;
    base::StoreBe32(wqe + offsetof(mlx5_wqe_data_seg, byte_count), options.buffer_bytes);
    base::StoreBe32(wqe + offsetof(mlx5_wqe_data_seg, lkey), memory.key);
    base::StoreBe64(wqe + offsetof(mlx5_wqe_data_seg, addr), 0);
  }
}

ReceiveQueue::~ReceiveQueue() {
  for (uint32_t index = completions_.consumer(); index != producer_; ++index) {
    packet::BufferPool::Release(posted_[index & mask_].buffer);
  }
}

uint32_t ReceiveQueue::Poll(std::span<nic::RxFrame> out, std::optional<nic::QueueError>* error) {
  // In locals, so that stores into frames do not make the compiler read them again.
  const CqeRing cqes = completions_.ring();
  const Posted* const posted = posted_.get();
  const uint32_t mask = mask_;
  const uint32_t buffer_bytes = buffer_bytes_;
  const uint32_t checksum_mask = checksum_mask_;
  const uint32_t constant_flags = constant_flags_;
  const uint32_t first = completions_.consumer();
  uint32_t index = first;
  uint64_t bytes = 0;
  nic::RxFrame* frame = out.data();
  // No more than were posted, whatever the device wrote.
  nic::RxFrame* const end = frame + std::min<size_t>(out.size(), producer_ - first);
  packet::Buffer* buffer = posted[index & mask].buffer;
  uint8_t* data = posted[index & mask].data;
  while (frame != end) {
    const uint8_t op_owner = cqes.OpOwner(index);
    const mlx5_cqe64& cqe = cqes.At(index);
    const Posted& next = posted[(index + 1) & mask];
    const uint32_t length = FrameBytes(cqe);
    if (!IsReceivedFrame(op_owner) || length > buffer_bytes) [[unlikely]] break;
    buffer->data = data;
    buffer->length = length;
    bytes += length;
    frame->buffer = buffer;
    frame->hw_clock = HardwareClock(cqe);
    frame->tag = FlowTag(cqe);
    frame->flags = static_cast<uint16_t>((ChecksumFlags(cqe) & checksum_mask) | constant_flags);
    frame->vlan = 0;  // Tags stay in the frame: stripping is not asked for.
    buffer = next.buffer;
    data = next.data;
    __builtin_prefetch(data);
    __builtin_prefetch(buffer, /*write=*/1);
    ++index;
    ++frame;
  }
  const auto frames = static_cast<uint32_t>(frame - out.data());
  // Trouble waits until what came before it was handed out.
  if (frames == 0 && IsWritten(cqes.OpOwner(index))) [[unlikely]] {
    index = TakeErrors(index, error);
  }
  if (index != first) Take(index - first, frames, bytes);
  return frames;
}

// Until a refill fewer and fewer are posted: what PollKnown() leaves is looked at before the next.
[[gnu::always_inline]] inline void ReceiveQueue::NoteLowWater() {
  const uint32_t taken = completions_.consumer() - noted_at_;
  if (taken == 0) [[unlikely]] return;
  frames_counted_ += taken;
  noted_at_ += taken;
  low_water_ = std::min(low_water_, posted());
  if (posted() == 0) [[unlikely]] ++counters_->rx_empty;
}

// Once a batch: what was taken goes back to the device and into the counters. All but `frames` are
// errors.
void ReceiveQueue::Take(uint32_t cqes, uint32_t frames, uint64_t bytes) {
  completions_.Pop(cqes);
  completions_.Publish();
  next_ = &posted_[slot()];
  frames_counted_ -= cqes - frames;
  counters_->rx_bytes += bytes;
  NoteLowWater();
}

uint32_t ReceiveQueue::TakeErrors(uint32_t index, std::optional<nic::QueueError>* error) {
  const CqeRing& cqes = completions_.ring();
  if (index == producer_) {
    TakeStray(error);
    return index;
  }
  for (; index != producer_ && IsWritten(cqes.OpOwner(index)); ++index) {
    const mlx5_cqe64& cqe = cqes.At(index);
    const bool received = IsReceivedFrame(cqes.OpOwner(index));
    if (received && FrameBytes(cqe) <= buffer_bytes_) break;
    // The last look at a queue that is replaced is the control thread's.
    packet::BufferPool::Release(posted_[index & mask_].buffer);
    if (received) {
      ++counters_->rx_malformed;
      continue;
    }
    const CqeError cause = ParseError(cqe);
    if (IsTooLong(cqe, cause)) {
      ++counters_->rx_too_long;
      continue;
    }
    broken_ = true;
    ++counters_->rx_errors;
    NoteError(cause, /*receive=*/true, error);
  }
  return index;
}

// A completion, and nothing is posted: from here on the indices of the two queues do not agree, and
// no further completion can be believed.
void ReceiveQueue::TakeStray(std::optional<nic::QueueError>* error) {
  if (ended()) return;
  broken_ = true;
  ++counters_->rx_malformed;
  if (error->has_value()) return;
  *error = nic::QueueError{.receive = true,
                           .text = "receive queue: a completion, and no buffer is posted"};
}

// Where the next buffers are posted.
class ReceiveQueue::Poster {
 public:
  explicit Poster(const ReceiveQueue& queue)
      : posted_(&queue.posted_[queue.producer_ & queue.mask_]),
        wqe_(queue.wqes_ + size_t{queue.producer_ & queue.mask_} * kWqeBytes) {}

  [[gnu::always_inline]] void operator()(packet::Buffer* buffer) {
    uint8_t* const data = buffer->start;
    *posted_++ = {buffer, data};
    base::StoreBe64(wqe_ + offsetof(mlx5_wqe_data_seg, addr), reinterpret_cast<uintptr_t>(data));
    wqe_ += kWqeBytes;
  }

 private:
  Posted* posted_;
  uint8_t* wqe_;
};

// A batch that does not go over the ring's end. False: nothing was posted.
[[gnu::always_inline]] inline bool ReceiveQueue::PostBatch() {
  if ((producer_ & mask_) > mask_ + 1 - kRefillBatch) [[unlikely]] return false;
  if (!pool_->AcquireAll<kRefillBatch>(Poster(*this))) [[unlikely]] return false;
  producer_ += kRefillBatch;
  return true;
}

uint32_t ReceiveQueue::Refill(const uint8_t* peek) {
  // A few at a time cost hardly less than many, and a single packet need not pay for them.
  if (posted() >= refill_below_) [[unlikely]] {
    ShowStop(peek);
    return 0;
  }
  NoteLowWater();
  if (broken_) [[unlikely]] return 0;
  // A batch is what is missing where frames come one by one: all of it is here.
  const uint32_t wanted = size() - posted();
  if (wanted != kRefillBatch || !PostBatch()) return RefillOtherwise(wanted, peek);
  ShowStop(peek, size() + 1 - refill_below_);
  ShowPosted();
  return kRefillBatch;
}

[[gnu::noinline]] uint32_t ReceiveQueue::RefillOtherwise(uint32_t wanted, const uint8_t* peek) {
  uint32_t left = wanted;
  while (left >= kRefillBatch && PostBatch()) left -= kRefillBatch;
  if (left != 0) [[unlikely]] left -= PostBuffers(left);
  if (left == wanted) [[unlikely]] return 0;
  ShowStop(peek);
  ShowPosted();
  return wanted - left;
}

// CQEs that were taken and buffers that were posted, to the device.
[[gnu::always_inline]] inline void ReceiveQueue::ShowPosted() {
  completions_.Publish();
  nic::OrderWqeBeforeRecord();
  nic::StoreRecord(record_, producer_ & 0xffff);
}

// Up to `most`, however many that is: to the ring's end, and from its start on.
[[gnu::noinline]] uint32_t ReceiveQueue::PostBuffers(uint32_t most) {
  uint32_t left = most;
  uint32_t run = 0;
  do {
    run = pool_->AcquireEach(std::min(left, size() - (producer_ & mask_)), Poster(*this));
    producer_ += run;
    left -= run;
  } while (left != 0 && run != 0 && (producer_ & mask_) == 0);
  if (left != 0) ++counters_->rx_refill_short;
  return most - left;
}

uint32_t ReceiveQueue::TakeLowWater() {
  const uint32_t low = std::min(low_water_, posted());
  low_water_ = posted();
  return low;
}

}  // namespace xtreme::mlx5
