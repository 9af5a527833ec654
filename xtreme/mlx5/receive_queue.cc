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

}  // namespace

ReceiveQueue::ReceiveQueue(const ReceiveQueueMemory& memory, const Options& options,
                           packet::BufferPool* pool, nic::QueueCounters* counters)
    : wqes_(memory.wqes),
      mask_((1u << memory.wqes_log2) - 1),
      record_(memory.record),
      pool_(pool),
      counters_(counters),
      buffer_bytes_(options.buffer_bytes),
      checksum_mask_(options.checksums ? nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk : 0),
      constant_flags_(options.timestamps ? nic::kRxTimestamp : 0),
      refill_below_(size() - std::clamp(size() / kRefillFraction, 1u, kRefillBatch) + 1),
      known_below_(options.checksums && options.timestamps &&
                           options.buffer_bytes >= completion::KnownFlows::kReadableBytes
                       ? options.buffer_bytes - completion::KnownFlows::kLeastFrameBytes + 1
                       : 0),
      posted_(std::make_unique<Posted[]>(size_t{1} << memory.wqes_log2)),
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

// Once a batch: what was taken goes back to the device and into the counters.
void ReceiveQueue::Take(uint32_t cqes, uint32_t frames, uint64_t bytes) {
  completions_.Pop(cqes);
  completions_.Publish();
  counters_->rx_frames += frames;
  counters_->rx_bytes += bytes;
  NoteLowWater();
}

// Until a refill fewer and fewer are posted: what PollKnown() leaves is looked at before the next.
void ReceiveQueue::NoteLowWater() {
  if (noted_at_ == completions_.consumer()) return;
  noted_at_ = completions_.consumer();
  low_water_ = std::min(low_water_, posted());
  if (posted() == 0) [[unlikely]] ++counters_->rx_empty;
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
    broken_ = true;
    ++counters_->rx_errors;
    NoteError(ParseError(cqe), /*receive=*/true, error);
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

uint32_t ReceiveQueue::Refill() {
  // A few at a time cost hardly less than many, and a single packet need not pay for them.
  if (posted() >= refill_below_) return 0;
  NoteLowWater();
  if (broken_) [[unlikely]] return 0;
  const uint32_t wanted = size() - posted();
  uint32_t left = wanted;
  uint32_t run = 0;
  // To the ring's end, and from its start on.
  do {
    run = PostBuffers(left);
    left -= run;
  } while (left != 0 && run != 0 && (producer_ & mask_) == 0);
  if (left != 0) [[unlikely]] ++counters_->rx_refill_short;
  if (left == wanted) [[unlikely]] return 0;
  completions_.Publish();
  nic::OrderWqeBeforeRecord();
  nic::StoreRecord(record_, producer_ & 0xffff);
  return wanted - left;
}

// A WQE and what is kept of it are as long as each other: one offset finds both.
[[gnu::always_inline]] inline uint32_t ReceiveQueue::PostBuffers(uint32_t most) {
  static_assert(sizeof(Posted) == kWqeBytes);
  const uint32_t slot = producer_ & mask_;
  auto* const posted = reinterpret_cast<std::byte*>(posted_.get());
  uint8_t* const addresses = wqes_ + offsetof(mlx5_wqe_data_seg, addr);
  size_t offset = size_t{slot} * kWqeBytes;
  const uint32_t run = std::min(most, size() - slot);
  const uint32_t count = pool_->AcquireEach(run, [&](packet::Buffer* buffer) {
    uint8_t* const data = buffer->start;
    *reinterpret_cast<Posted*>(posted + offset) = {buffer, data};
    base::StoreBe64(addresses + offset, reinterpret_cast<uintptr_t>(data));
    offset += kWqeBytes;
  });
  producer_ += count;
  return count;
}

uint32_t ReceiveQueue::TakeLowWater() {
  const uint32_t low = std::min(low_water_, posted());
  low_water_ = posted();
  return low;
}

}  // namespace xtreme::mlx5
