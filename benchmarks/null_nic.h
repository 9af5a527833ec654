// SPDX-License-Identifier: Apache-2.0
//
// NullNic: the seam to devices over null devices, so that the engine runs on the driver's own
// queues with nothing behind them.
//
// A queue pair's pool holds the frame everywhere, so whatever "arrives" is that frame. Rules and
// registrations always work. Threads: as nic::Nic; devices are the ring's owner's.

#ifndef XTREME_BENCHMARKS_NULL_NIC_H_
#define XTREME_BENCHMARKS_NULL_NIC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/null_device.h"
#include "stack/wire/address.h"
#include "xtreme/nic/nic.h"

namespace xtreme::benchmarks {

class NullNic final : public nic::Nic {
 public:
  // `frame` is what arrives, in every queue pair.
  explicit NullNic(std::vector<uint8_t> frame);
  // What arrives is carried from another device.
  NullNic(wire::MacAddress mac, bool device_memory);

  // The device behind the first queue pair.
  NullDevice& device() { return *devices_[0]; }

  const nic::Capabilities& capabilities() const override { return capabilities_; }
  wire::MacAddress mac() const override { return mac_; }
  absl::StatusOr<std::unique_ptr<nic::Registration>> Register(void* start, size_t bytes) override;
  absl::StatusOr<std::unique_ptr<nic::QueuePair>> CreateQueuePair(
      const nic::QueuePairOptions& options, packet::BufferPool* pool) override;
  absl::Status SetRate(nic::QueuePair*, const nic::RateLimit&) override {
    return absl::UnimplementedError("limit sends: the null device has no rates");
  }
  absl::StatusOr<std::unique_ptr<nic::Rule>> AddRule(const nic::FlowRule& rule,
                                                     nic::QueuePair* queue_pair) override;
  nic::DeviceClock SampleClock(const std::function<int64_t()>& host_now_ns) override;
  absl::StatusOr<nic::PortCounters> ReadPortCounters() override { return nic::PortCounters{}; }
  int event_fd() const override { return -1; }
  std::optional<nic::PortEvent> PollEvent() override { return std::nullopt; }

 private:
  const std::vector<uint8_t> frame_;
  const wire::MacAddress mac_;
  const bool device_memory_;
  const nic::Capabilities capabilities_;
  std::vector<std::unique_ptr<NullDevice>> devices_;
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_NULL_NIC_H_
