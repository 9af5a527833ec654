// SPDX-License-Identifier: Apache-2.0
//
// What every queue of one device shares: options, registered memory, counters, the log of
// violations, and the time of the pass being made.
//
// Invariant: counters have one writer at a time, the holder of the device's lock.
// Units: nanoseconds, cycles of the core clock, bytes. Thread: the device's lock; counters are read
// from any thread.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_ENVIRONMENT_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_ENVIRONMENT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/connectx/device/device.h"
#include "tools/connectx/device/gather.h"
#include "tools/connectx/device/hardware_clock.h"
#include "tools/connectx/device/memory.h"
#include "tools/connectx/device/violation.h"

namespace xtreme::connectx {

class Counter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// One direction of the port.
struct DirectionCounters {
  Counter packets;
  Counter bytes;  // sysfs has it in words of four.
  Counter unicast;
  Counter multicast;  // Broadcast included.
  Counter discards;

  void Count(std::span<const uint8_t> frame) {
    packets.Add(1);
    bytes.Add(frame.size());
    ((frame[0] & 1) != 0 ? multicast : unicast).Add(1);
  }
};

struct PortCounters {
  DirectionCounters transmit;
  DirectionCounters receive;
  Counter out_of_buffer;
  Counter steering_missed;
  Counter request_cqe_error;
  Counter request_cqe_flush_error;
  Counter response_cqe_error;
  Counter response_cqe_flush_error;
  Counter response_local_length_error;

  // Under the names of the card's sysfs.
  std::vector<Device::NamedCounter> Snapshot() const;
};

// When this pass of the pump, or this control call, takes place.
struct Pass {
  int64_t now_ns = 0;
};

class ReceiveQueue;

struct Environment {
  explicit Environment(const Device::Options& device_options)
      : options(device_options),
        mtu(device_options.mtu),
        greatest_mtu(device_options.mtu),
        clock(device_options.hca_core_clock_khz, device_options.phc_offset_ns),
        memory(device_options.limits.memory_regions),
        violations(device_options.strict) {}

  const Device::Options options;
  // The port's, which its wire may change, and the greatest that it ever was: a program that knows
  // that one does nothing wrong by using it.
  uint32_t mtu;
  uint32_t greatest_mtu;
  HardwareClock clock;
  MemoryTable memory;
  ViolationLog violations;
  PortCounters counters;
  Pass pass;
  // Nobody rings for these: a send queue went into error and has WQEs to flush; receive queues in
  // error, which may be given WQEs to flush.
  bool look_at_all_pages = false;
  std::vector<ReceiveQueue*> receive_queues_in_error;
  GatherList gather;  // Of the send being made.
  // Where a send is put together before the wire copies it.
  alignas(64) std::array<uint8_t, kMaxFrameBytes> frame;
};

// What a queue belongs to: told once that the queue went into error by itself. `completed`: an
// error CQE says so, which is all that a program hears then.
class QueueOwner {
 public:
  virtual ~QueueOwner() = default;
  virtual void OnQueueError(bool completed) = 0;
};

enum class QueueState : uint8_t { kReset, kReady, kError };

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_ENVIRONMENT_H_
