// SPDX-License-Identifier: Apache-2.0
//
// Queues on plain memory: the test is the device, and writes CQEs by hand.
#ifndef XTREME_XTREME_MLX5_QUEUE_PAIR_TESTING_H_
#define XTREME_XTREME_MLX5_QUEUE_PAIR_TESTING_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::mlx5::testing {

inline constexpr uint32_t kFramesLog2 = 3;
inline constexpr uint32_t kFrames = 1 << kFramesLog2;
inline constexpr uint32_t kWqebbs = kFrames * kMaxWqebbs;

// A datagram of ten bytes to `port`.
inline std::array<uint8_t, 60> Datagram(uint16_t port) {
  std::array<uint8_t, 60> frame{};
  base::StoreBe32(&frame[12], 0x08004500);
  base::StoreBe16(&frame[16], 38);
  base::StoreBe16(&frame[22], 0x4011);
  base::StoreBe32(&frame[26], 0x0a000002);
  base::StoreBe32(&frame[30], 0x0a000001);
  base::StoreBe16(&frame[34], 4000);
  base::StoreBe16(&frame[36], port);
  base::StoreBe16(&frame[38], 18);
  return frame;
}

// The memory of a queue pair, and a device that does what it is told.
template <uint32_t kLog2>
class PlainDeviceOf {
 public:
  static constexpr uint32_t kCount = 1 << kLog2;
  static constexpr uint32_t kBlocks = kCount * kMaxWqebbs;

  PlainDeviceOf() {
    PrepareCqes(memory().send.completions);
    PrepareCqes(memory().receive.completions);
  }
  QueuePairMemory memory() {
    return {.send = {.wqebbs = wqebbs_.data(),
                     .wqebbs_log2 = kLog2 + 2,
                     .record = &records_[MLX5_SND_DBR],
                     .doorbell_register = uar_.data() + 0x800,
                     .blueflame_bytes = 256,
                     .qpn = 0x123,
                     .completions = {.cqes = send_cqes_->data(), .cqes_log2 = kLog2,
                                     .record = send_cq_.data(), .uar = uar_.data(), .cqn = 1}},
            .receive = {.wqes = wqes_.data(),
                        .wqes_log2 = kLog2,
                        .record = &records_[MLX5_RCV_DBR],
                        .key = 0x5500,
                        .completions = {.cqes = receive_cqes_->data(), .cqes_log2 = kLog2,
                                        .record = receive_cq_.data(), .uar = uar_.data(),
                                        .cqn = 2}}};
  }

  void CompleteReceive(uint32_t bytes, uint8_t opcode = MLX5_CQE_RESP_SEND, uint8_t syndrome = 0) {
    mlx5_cqe64* cqe = Next(*receive_cqes_, received_);
    cqe->byte_cnt = htobe32(bytes);
    Finish(cqe, opcode, syndrome, received_++);
  }
  // A frame with good checksums, in the buffer that is its turn.
  void CompleteFrame(std::span<const uint8_t> frame, uint64_t clock,
                     uint8_t verdicts = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK) {
    auto* at = reinterpret_cast<uint8_t*>(base::LoadBe64(receive_wqe(received_) + 8));
    std::memcpy(at, frame.data(), frame.size());
    mlx5_cqe64* cqe = Next(*receive_cqes_, received_);
    cqe->hds_ip_ext = verdicts;
    cqe->timestamp = htobe64(clock);
    CompleteReceive(static_cast<uint32_t>(frame.size()));
  }
  void CompleteSend(uint16_t wqebb, uint8_t opcode = MLX5_CQE_REQ, uint8_t syndrome = 0) {
    mlx5_cqe64* cqe = Next(*send_cqes_, sent_);
    cqe->wqe_counter = htobe16(wqebb);
    cqe->timestamp = htobe64(1000 + sent_);
    Finish(cqe, opcode, syndrome, sent_++);
  }

  uint32_t send_record() const { return be32toh(records_[MLX5_SND_DBR]); }
  uint32_t receive_record() const { return be32toh(records_[MLX5_RCV_DBR]); }
  uint32_t receive_cq_record(int word) const { return be32toh(receive_cq_[word]); }
  const uint8_t* wqe(uint32_t wqebb) const { return &wqebbs_[(wqebb % kBlocks) * 64]; }
  const uint8_t* receive_wqe(uint32_t index) const { return &wqes_[(index % kCount) * 16]; }
  const uint8_t* uar(size_t offset) const { return uar_.data() + offset; }

 private:
  // In a block of its own, so that the address sanitizer sees who looks beyond the ring.
  struct alignas(64) Cqes : std::array<uint8_t, kCount * 64> {};

  mlx5_cqe64* Next(Cqes& cqes, uint32_t index) {
    return reinterpret_cast<mlx5_cqe64*>(cqes.data()) + index % kCount;
  }
  void Finish(mlx5_cqe64* cqe, uint8_t opcode, uint8_t syndrome, uint32_t index) {
    if (syndrome != 0) reinterpret_cast<mlx5_err_cqe*>(cqe)->syndrome = syndrome;
    cqe->op_own = static_cast<uint8_t>(opcode << 4 | (index >> kLog2 & 1));
  }

  alignas(64) std::array<uint8_t, kBlocks * 64> wqebbs_{};
  alignas(64) std::array<uint8_t, kCount * 16> wqes_{};
  std::unique_ptr<Cqes> send_cqes_ = std::make_unique<Cqes>();
  std::unique_ptr<Cqes> receive_cqes_ = std::make_unique<Cqes>();
  // A page, as it is mapped: the halves of the register differ in one bit of their address.
  alignas(4096) std::array<uint8_t, 4096> uar_{};
  std::array<uint32_t, 2> records_{};
  std::array<uint32_t, 2> send_cq_{};
  std::array<uint32_t, 2> receive_cq_{};
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
};
using PlainDevice = PlainDeviceOf<kFramesLog2>;

class QueuePairTest : public ::testing::Test {
 protected:
  QueuePairTest() {
    auto made = packet::BufferPool::Create(
        {.buffers = 12, .buffer_bytes = 2048,
         .hugepages = packet::BufferPool::Hugepages::kNever});
    pool_ = *std::move(made);
    queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.signal_every = 2},
                                          ReceiveQueue::Options{}, nic::Capabilities{},
                                          pool_.get(), nullptr);
  }

  // Queues with 4,096 bytes of on-device memory.
  void OpenWithDeviceMemory(uint8_t* bytes, uint32_t signal_every) {
    QueuePairMemory memory = device_.memory();
    memory.send.device_memory = {.bytes = bytes, .bytes_log2 = 12, .key = 0x7700};
    queues_ = std::make_unique<QueuePair>(memory, SendQueue::Options{.signal_every = signal_every},
                                          ReceiveQueue::Options{}, nic::Capabilities{},
                                          pool_.get(), nullptr);
  }

  nic::TxStatus Post(uint32_t bytes, uint16_t flags = 0, uint32_t key = 0) {
    return queues_->Post({.header = header_.data(), .payload = payload_.data(),
                          .header_length = 42, .payload_length = bytes - 42, .key = key,
                          .flags = flags});
  }
  // Of 64 bytes, header and payload.
  nic::TxFrame Frame64() const {
    return {.header = header_.data(), .payload = payload_.data(), .header_length = 42,
            .payload_length = 22, .key = 0, .flags = 0};
  }
  // A flow of so many bytes of header.
  nic::TxTemplate Flow(uint32_t header_length = 42) {
    nic::TxTemplate flow;
    queues_->Prepare({.bytes = header_.data(),
                      .length = header_length,
                      .flags = 0,
                      .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                     &flow);
    return flow;
  }
  uint32_t Receive(uint32_t most = 16) {
    std::array<nic::RxFrame, 16> out;
    const uint32_t count = queues_->PollReceive(std::span(out).first(most));
    for (uint32_t i = 0; i < count; ++i) packet::BufferPool::ReleaseByOwner(out[i].buffer);
    return count;
  }
  // The counts told by the completions there are.
  std::vector<uint32_t> Sent() {
    std::array<nic::TxCompletion, 16> out;
    std::vector<uint32_t> frames;
    for (uint32_t i = 0, n = queues_->PollSend(out); i < n; ++i) frames.push_back(out[i].frames);
    return frames;
  }

  PlainDevice device_;
  packet::BufferPool::Handle pool_;
  std::unique_ptr<QueuePair> queues_;
  std::array<uint8_t, 64> header_{};
  std::vector<uint8_t> payload_ = std::vector<uint8_t>(1500, 0x77);
};

}  // namespace xtreme::mlx5::testing

#endif  // XTREME_XTREME_MLX5_QUEUE_PAIR_TESTING_H_
