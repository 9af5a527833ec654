// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/driver_scenarios.h"

#include <array>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::benchmarks {
namespace {

constexpr NullDevice::Options kDevice;
constexpr uint32_t kSignalEvery = 32;
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
  const std::unique_ptr<mlx5::QueuePair> queue_;
};

class TransmitScenario : public DriverScenario {
 public:
  TransmitScenario(packet::BufferPool::Handle pool, uint32_t operations, uint32_t burst)
      : DriverScenario(std::move(pool), operations), burst_(burst) {}

  void Prepare() override {
    device_.CompleteSends();
    Reap();
  }

  void Run() override {
    alignas(64) std::array<uint8_t, wire::FrameTemplate::kStorageBytes> headers;
    std::copy(template_.data(), template_.data() + headers.size(), headers.begin());
    template_.PatchLengths(headers.data(), kPayloadBytes);
    for (uint32_t i = 0; i < operations_; i += burst_) {
      for (uint32_t j = 1; j < burst_; ++j) Post(headers.data(), nic::kTxMore);
      Post(headers.data(), 0);
    }
  }

 private:
  void Post(const uint8_t* headers, uint32_t more) {
    queue_->Post({.header = headers,
                  .payload = payload_.data(),
                  .header_length = kUdpHeadersBytes,
                  .payload_length = kPayloadBytes,
                  .key = 0,
                  .flags = static_cast<uint16_t>(nic::kTxIpChecksum | nic::kTxL4Checksum | more)});
  }

  const uint32_t burst_;
  const wire::FrameTemplate template_ = Headers(HostA(), HostB());
  alignas(64) std::array<uint8_t, 64> payload_{};
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
