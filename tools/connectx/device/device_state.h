// SPDX-License-Identifier: Apache-2.0
//
// What a Device is made of, and its lock.
//
// Invariant: everything here is touched only with `mutex` held; flow calls hold `flows_mutex`
// around it, because they also speak to the wire, which takes longer than the pump may stand still.
// Thread: lock order is flows_mutex, then mutex.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_STATE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_STATE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "tools/connectx/device/device.h"
#include "tools/connectx/device/device_memory.h"
#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/pump.h"
#include "tools/connectx/device/queue_pair.h"
#include "tools/connectx/device/rate_table.h"
#include "tools/connectx/device/slot_table.h"
#include "tools/connectx/device/steering.h"
#include "tools/connectx/device/uar.h"

namespace xtreme::connectx {

struct ProtectionDomain {
  uint32_t queues = 0;
};

struct DeviceState {
  DeviceState(const Device::Options& options, std::unique_ptr<UarTable> uar_table,
              std::unique_ptr<DeviceMemoryTable> memory_table, Wire* device_wire,
              const Clock* device_clock)
      : wire(device_wire),
        clock(device_clock),
        environment(options),
        uars(std::move(uar_table)),
        device_memory(std::move(memory_table)),
        steering(options.limits.flow_rules),
        rates(options.limits.rates, options.limits.least_rate_kbps),
        pump(&environment, uars.get(), &steering, device_wire),
        pds(kFirstPd, kMaxPds),
        flow_counters(kFirstFlowCounter, options.limits.flow_rules),
        cqs(kFirstCqn, options.limits.cqs),
        wqs(kFirstRqn, options.limits.qps),
        tables(kFirstTable, options.limits.qps),
        qps(kFirstQpn, options.limits.qps) {}

  // Numbers start apart, so that one taken for the other names nothing.
  static constexpr uint32_t kFirstPd = 0x10;
  static constexpr uint32_t kMaxPds = 1 << 16;
  static constexpr uint32_t kFirstCqn = 0x400;
  static constexpr uint32_t kFirstRqn = 0x400000;
  static constexpr uint32_t kFirstTable = 0x800000;
  static constexpr uint32_t kFirstQpn = 0x10000;
  static constexpr uint32_t kFirstFlowCounter = 0x1000000;

  // The time of what is about to happen; with `mutex` held.
  void BeginPass() { environment.pass.now_ns = clock->Now(); }

  Wire* const wire;
  const Clock* const clock;
  std::mutex flows_mutex;
  std::mutex mutex;
  // Control calls that wait for `mutex`. The pump, which takes it again at once, gives way to them.
  std::atomic<int> waiting{0};
  std::atomic<bool> removed{false};
  bool removal_served = false;
  std::atomic<uint32_t> clock_adjustments{0};

  Environment environment;
  std::unique_ptr<UarTable> uars;
  std::unique_ptr<DeviceMemoryTable> device_memory;
  Steering steering;
  RateTable rates;
  Pump pump;
  SlotTable<ProtectionDomain> pds;
  SlotTable<FlowCounter> flow_counters;
  // Destroyed from the last to the first: owners before what they use.
  SlotTable<CompletionQueue> cqs;
  SlotTable<WorkQueue> wqs;
  SlotTable<IndirectionTable> tables;
  SlotTable<QueuePair> qps;
};

// Excludes the pump for the life of a control call.
class ControlLock {
 public:
  explicit ControlLock(DeviceState* state) : lock_(state->mutex, std::defer_lock) {
    state->waiting.fetch_add(1, std::memory_order_relaxed);
    lock_.lock();
    state->waiting.fetch_sub(1, std::memory_order_relaxed);
    state->BeginPass();
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_STATE_H_
