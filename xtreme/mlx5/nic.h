// SPDX-License-Identifier: Apache-2.0
//
// mlx5::Nic: one port of a ConnectX behind the seam to devices.
//
// Invariant: outlives its queue pairs, rules and registrations. Everything here is bring-up or slow
// work over verbs. Threads: any, one at a time.

#ifndef XTREME_XTREME_MLX5_NIC_H_
#define XTREME_XTREME_MLX5_NIC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "xtreme/mlx5/clock.h"
#include "xtreme/mlx5/device.h"
#include "xtreme/nic/nic.h"

namespace xtreme::mlx5 {

class Nic final : public nic::Nic {
 public:
  struct Options {
    DevicePort port;       // From FindDevice().
    wire::MacAddress mac;  // Of the interface.
    uint32_t mtu = 1500;   // Of the interface: 576 .. 9978.
  };

  // Errors of OpenDevice(); InvalidArgument: an MTU out of range.
  static absl::StatusOr<std::unique_ptr<Nic>> Open(const Options& options);

  const nic::Capabilities& capabilities() const override { return capabilities_; }
  wire::MacAddress mac() const override { return options_.mac; }

  absl::StatusOr<std::unique_ptr<nic::Registration>> Register(void* start, size_t bytes) override;
  absl::StatusOr<std::unique_ptr<nic::QueuePair>> CreateQueuePair(
      const nic::QueuePairOptions& options, packet::BufferPool* pool) override;
  absl::Status SetRate(nic::QueuePair* queue_pair, const nic::RateLimit& rate) override;
  absl::Status SetModeration(nic::QueuePair* queue_pair,
                             const nic::Moderation& moderation) override;
  absl::StatusOr<std::unique_ptr<nic::Rule>> AddRule(const nic::FlowRule& rule,
                                                     nic::QueuePair* queue_pair) override;
  nic::DeviceClock SampleClock(const std::function<int64_t()>& host_now_ns) override;
  absl::StatusOr<nic::PortCounters> ReadPortCounters() override;
  int event_fd() const override { return device_.context->async_fd; }
  std::optional<nic::PortEvent> PollEvent() override;

 private:
  Nic(const Options& options, Device device);

  std::optional<uint64_t> ReadRawClock() const;
  std::optional<nic::ClockConversion> SamplePtpClock();

  const Options options_;
  Device device_;
  nic::Capabilities capabilities_;
  ClockTracker clock_;
  PtpTracker ptp_clock_;
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_NIC_H_
