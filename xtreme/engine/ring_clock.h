// SPDX-License-Identifier: Apache-2.0
//
// RingClock: the time of a ring: CLOCK_MONOTONIC from the TSC, and the device's clock in ns.
//
// Both conversions are values that the control thread renews; the owner only multiplies.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_RING_CLOCK_H_
#define XTREME_XTREME_ENGINE_RING_CLOCK_H_

#include <cstdint>

#include "stack/base/time.h"
#include "xtreme/host/tsc_clock.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

// Where ticks come from: the TSC, unless `read` is set (virtual time; ticks are then ns).
struct TickSource {
  uint64_t (*read)(void* context) = nullptr;
  void* context = nullptr;
};

class RingClock {
 public:
  RingClock(TickSource source, const host::TscConversion& tsc) : source_(source), tsc_(tsc) {}

  uint64_t Ticks() const {
    return source_.read == nullptr ? tsc_.Ticks() : source_.read(source_.context);
  }
  base::Nanoseconds ToTime(uint64_t ticks) const {
    return base::Nanoseconds(
        static_cast<int64_t>(source_.read == nullptr ? tsc_.ToNs(ticks) : ticks));
  }
  base::Nanoseconds Now() const { return ToTime(Ticks()); }

  void SetTsc(const host::TscConversion& tsc) { tsc_ = tsc; }
  void SetDevice(const nic::ClockConversion& device) { device_ = device; }
  const nic::ClockConversion& device() const { return device_; }

 private:
  TickSource source_;
  host::TscConversion tsc_;
  nic::ClockConversion device_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_CLOCK_H_
