// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/null_nic.h"

#include <bit>
#include <utility>

#include "benchmarks/frames.h"
#include "xtreme/mlx5/tapped_queue_pair.h"

namespace xtreme::benchmarks {
namespace {

class NullRegistration final : public nic::Registration {
 public:
  uint32_t key() const override { return 1; }
};

class NullRule final : public nic::Rule {};

}  // namespace

NullNic::NullNic(std::vector<uint8_t> frame)
    : frame_(std::move(frame)),
      mac_(HostA().mac),
      device_memory_(true),
      capabilities_(NullCapabilities({})) {}

NullNic::NullNic(wire::MacAddress mac, bool device_memory)
    : frame_(1),
      mac_(mac),
      device_memory_(device_memory),
      capabilities_(NullCapabilities({.device_memory = device_memory})) {}

absl::StatusOr<std::unique_ptr<nic::Registration>> NullNic::Register(void*, size_t) {
  return std::make_unique<NullRegistration>();
}

absl::StatusOr<std::unique_ptr<nic::QueuePair>> NullNic::CreateQueuePair(
    const nic::QueuePairOptions& options, packet::BufferPool* pool) {
  const NullDevice::Options sizes = {
      .send_frames_log2 = static_cast<uint32_t>(std::countr_zero(options.send_queue_frames)),
      .receive_frames_log2 =
          static_cast<uint32_t>(std::countr_zero(options.receive_queue_frames)),
      .device_memory = device_memory_};
  WriteFrames(pool, frame_);
  devices_.push_back(std::make_unique<NullDevice>(sizes));
  if (options.tap != nullptr) {
    return MakeTappedQueuePair(options.tap, *devices_.back(), sizes, options.signal_every, pool);
  }
  return MakeQueuePair(*devices_.back(), sizes, options.signal_every, pool);
}

absl::StatusOr<std::unique_ptr<nic::Rule>> NullNic::AddRule(const nic::FlowRule&,
                                                            nic::QueuePair*) {
  return std::make_unique<NullRule>();
}

nic::DeviceClock NullNic::SampleClock(const std::function<int64_t()>& host_now_ns) {
  return {.host = {.base_ns = host_now_ns(), .multiplier = 1, .in_sync = true}};
}

}  // namespace xtreme::benchmarks
