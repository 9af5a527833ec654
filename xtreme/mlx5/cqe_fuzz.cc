// SPDX-License-Identifier: Apache-2.0
//
// CQEs of any bytes, between posts, polls and refills: what a device writes is looked at before it
// is believed. Frames lie in buffers that were posted, once, and counts do not run away.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kFramesLog2 = 3;
constexpr uint32_t kFrames = 1 << kFramesLog2;
constexpr uint32_t kBuffers = 12;
constexpr uint32_t kBufferBytes = 1522;

void Require(bool holds) {
  if (!holds) std::abort();
}

// The memory of a queue pair, whose CQEs the input writes.
class WildDevice {
 public:
  WildDevice() {
    PrepareCqes(memory().send.completions);
    PrepareCqes(memory().receive.completions);
  }
  QueuePairMemory memory() {
    return {.send = {.wqebbs = wqebbs_.data(),
                     .wqebbs_log2 = kFramesLog2 + 2,
                     .record = &words_[0],
                     .doorbell_register = uar_.data() + 0x800,
                     .blueflame_bytes = 256,
                     .qpn = 1,
                     .completions = {.cqes = cqes_[0].data(), .cqes_log2 = kFramesLog2,
                                     .record = &words_[2], .uar = uar_.data(), .cqn = 1}},
            .receive = {.wqes = wqes_.data(),
                        .wqes_log2 = kFramesLog2,
                        .record = &words_[1],
                        .key = 2,
                        .completions = {.cqes = cqes_[1].data(), .cqes_log2 = kFramesLog2,
                                        .record = &words_[4], .uar = uar_.data(), .cqn = 2}}};
  }

  // The next CQE of a queue: any bytes, and an owner bit that says that it is there.
  void Complete(size_t queue, std::span<const uint8_t> bytes) {
    uint8_t* cqe = &cqes_[queue][written_[queue] % kFrames * kCqeBytes];
    std::copy(bytes.begin(), bytes.end(), cqe + kCqeBytes - bytes.size());
    cqe[63] = static_cast<uint8_t>((cqe[63] & ~1) | OwnerBit(written_[queue], kFramesLog2));
    ++written_[queue];
  }

 private:
  alignas(64) std::array<uint8_t, kFrames * kMaxWqeBytes> wqebbs_{};
  alignas(64) std::array<uint8_t, kFrames * 16> wqes_{};
  alignas(64) std::array<std::array<uint8_t, kFrames * kCqeBytes>, 2> cqes_{};
  alignas(4096) std::array<uint8_t, 4096> uar_{};
  std::array<uint32_t, 6> words_{};
  std::array<uint32_t, 2> written_{};
};

class Run {
 public:
  explicit Run(std::span<const uint8_t> input)
      : input_(input),
        pool_(*packet::BufferPool::Create(
            {.buffers = kBuffers, .buffer_bytes = 2048,
             .hugepages = packet::BufferPool::Hugepages::kNever})),
        queues_(device_.memory(), {.signal_every = 2}, {.buffer_bytes = kBufferBytes}, {},
                pool_.get(), nullptr) {
    queues_.Refill();
  }

  void All() {
    while (!input_.empty()) Step();
  }

 private:
  uint8_t Take() {
    const uint8_t byte = input_.empty() ? 0 : input_[0];
    input_ = input_.subspan(input_.empty() ? 0 : 1);
    return byte;
  }

  void Step() {
    const uint8_t what = Take();
    switch (what & 7) {
      case 0:
      case 1: {
        // As many of a CQE's last bytes as the input says; in the others stands what stood there.
        const size_t asked = Take() % (kCqeBytes + 1);
        const size_t count = std::min(asked, input_.size());
        device_.Complete(what & 1, input_.first(count));
        input_ = input_.subspan(count);
        break;
      }
      case 2: Post(); break;
      case 3: PollSend(); break;
      case 4:
      case 5: PollReceive(); break;
      case 6: queues_.Refill(); break;
      default: queues_.Flush();
    }
    Require(queues_.posted() <= kFrames);
  }

  void Post() {
    const uint8_t header[64] = {};
    const uint8_t payload[192] = {};
    const uint32_t length = Take() % 180;
    queues_.Post({.header = header, .payload = payload, .header_length = 42,
                  .payload_length = length, .key = 0,
                  .flags = static_cast<uint16_t>(length & 1 ? nic::kTxMore : 0)});
  }

  void PollSend() {
    std::array<nic::TxCompletion, 4> done;
    const uint32_t count = queues_.PollSend(done);
    for (uint32_t i = 0; i < count; ++i) {
      // Forwards, and no further than was posted.
      Require(done[i].frames - completed_ <= queues_.posted_frames() - completed_);
      completed_ = done[i].frames;
    }
  }

  void PollReceive() {
    std::array<nic::RxFrame, 4> frames;
    const uint32_t count = queues_.PollReceive(frames);
    for (uint32_t i = 0; i < count; ++i) {
      packet::Buffer* buffer = frames[i].buffer;
      Require(buffer != nullptr && buffer->length <= kBufferBytes);
      for (uint32_t j = 0; j < i; ++j) Require(frames[j].buffer != buffer);
      std::memset(buffer->data, 0xee, buffer->length);
    }
    for (uint32_t i = 0; i < count; ++i) packet::BufferPool::ReleaseByOwner(frames[i].buffer);
    Require(pool_->free_count() + queues_.posted() == kBuffers);
  }

  std::span<const uint8_t> input_;
  WildDevice device_;
  packet::BufferPool::Handle pool_;
  QueuePair queues_;
  uint32_t completed_ = 0;
};

}  // namespace
}  // namespace xtreme::mlx5

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  xtreme::mlx5::Run({bytes, size}).All();
  return 0;
}
