// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/driver_scenarios.h"

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::benchmarks {
namespace {

constexpr NullDevice::Options kDevice;
constexpr uint32_t kSignalEvery = 128;
constexpr uint32_t kBatch = 16;
constexpr uint32_t kBuffers = 2048;

// A queue pair over the null device, with every buffer holding the frame.
class DriverScenario : public Scenario {
 public:
  DriverScenario(packet::BufferPool::Handle pool, uint32_t operations)
      : operations_(operations),
        pool_(std::move(pool)),
        device_(kDevice),
        queue_(MakeQueuePair(device_, kDevice, kSignalEvery, pool_.get())) {
    WriteFrames(pool_.get(), UdpFrame(HostB(), HostA()));
    queue_->Refill();
  }

  uint32_t operations() const override { return operations_; }

 protected:
  void Reap() {
    std::array<nic::TxCompletion, kBatch> completions;
    while (queue_->PollSend(completions) != 0) {
    }
  }

  const uint32_t operations_;
  const packet::BufferPool::Handle pool_;
  NullDevice device_;
  const std::unique_ptr<mlx5::PlainQueuePair> queue_;
};

class TransmitScenario : public DriverScenario {
 public:
  TransmitScenario(packet::BufferPool::Handle pool, uint32_t operations, uint32_t burst)
      : DriverScenario(std::move(pool), operations), burst_(burst) {
    const wire::FrameTemplate headers = Headers(HostA(), HostB());
    queue_->Prepare({.bytes = headers.data(),
                     .length = kUdpHeadersBytes,
                     .flags = nic::kTxIpChecksum | nic::kTxL4Checksum,
                     .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                    &flow_);
    payloads_.fill({payload_.data(), kPayloadBytes});
  }

  void Prepare() override {
    device_.CompleteSends();
    Reap();
  }

  void Run() override {
    if (burst_ == 1) {
      for (uint32_t i = 0; i < operations_; ++i) {
        queue_->PostCopied(flow_, payload_.data(), kPayloadBytes, 0);
      }
      return;
    }
    for (uint32_t i = 0; i < operations_; i += burst_) {
      queue_->PostBurst(flow_, std::span(payloads_).first(burst_));
      queue_->Flush();
    }
  }

 private:
  const uint32_t burst_;
  nic::TxTemplate flow_;
  alignas(64) std::array<uint8_t, 64> payload_{};
  std::array<nic::TxPayload, kBatch> payloads_;
};

class ReceiveScenario : public DriverScenario {
 public:
  using DriverScenario::DriverScenario;

  void Prepare() override { device_.CompleteReceives(operations_, kFrameBytes); }

  void Run() override {
    std::array<nic::RxFrame, kBatch> frames;
    while (const uint32_t count = queue_->PollReceive(frames)) {
      for (uint32_t i = 0; i < count; ++i) packet::BufferPool::ReleaseByOwner(frames[i].buffer);
      queue_->Refill();
    }
  }
};

absl::StatusOr<packet::BufferPool::Handle> MakePool() {
  return packet::BufferPool::Create({.buffers = kBuffers});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> DriverTransmit(uint32_t operations, uint32_t burst) {
  auto pool = MakePool();
  if (!pool.ok()) return pool.status();
  return std::make_unique<TransmitScenario>(*std::move(pool), operations, burst);
}

absl::StatusOr<std::unique_ptr<Scenario>> DriverReceive(uint32_t operations) {
  auto pool = MakePool();
  if (!pool.ok()) return pool.status();
  return std::make_unique<ReceiveScenario>(*std::move(pool), operations);
}

}  // namespace xtreme::benchmarks
