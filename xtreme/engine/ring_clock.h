// SPDX-License-Identifier: Apache-2.0
//
// RingClock: the time of a ring: CLOCK_MONOTONIC from the TSC, and the device's clock in ns, on
// CLOCK_MONOTONIC or on the device's PTP clock.
//
// Both conversions are values that the control thread renews; the owner only multiplies.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_RING_CLOCK_H_
#define XTREME_XTREME_ENGINE_RING_CLOCK_H_

#include <x86intrin.h>

#include <bit>
#include <cstdint>

#include "stack/base/time.h"
#include "xtreme/completion/completion.h"
#include "xtreme/host/tsc_clock.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

// Where ticks come from: the TSC, unless `read` is set (virtual time; ticks are then ns).
struct TickSource {
  uint64_t (*read)(void* context) = nullptr;
  void* context = nullptr;
};

// Raw device ticks to nanoseconds with shifts that are known, for each packet: as
// nic::ClockConversion, within a nanosecond of it for a raw value up to four seconds from the base.
struct DeviceScale {
  uint64_t base_raw = 0;
  int64_t base_ns = 0;
  int64_t ns_per_tick_q32 = 0;
  int unused_bits = 0;  // Above the valid ones of a raw value.

  static DeviceScale Of(const nic::ClockConversion& conversion) {
    return {.base_raw = conversion.base_raw,
            .base_ns = conversion.base_ns,
            .ns_per_tick_q32 = static_cast<int64_t>(
                (static_cast<unsigned __int128>(conversion.multiplier) << 32) >> conversion.shift),
            .unused_bits = std::countl_zero(conversion.mask)};
  }

  int64_t ToNanoseconds(uint64_t raw) const {
    const int64_t ticks = static_cast<int64_t>((raw - base_raw) << unused_bits) >> unused_bits;
    return base_ns + static_cast<int64_t>((static_cast<__int128>(ticks) * ns_per_tick_q32) >> 32);
  }
};

class RingClock {
 public:
  RingClock(TickSource source, const host::TscConversion& tsc) : source_(source) { SetTsc(tsc); }

  uint64_t Ticks() const {
    if (ticks_are_tsc_) [[likely]] return __rdtsc();
    return OtherTicks();
  }
  base::Nanoseconds ToTime(uint64_t ticks) const {
    return base::Nanoseconds(static_cast<int64_t>(tsc_.ToNs(ticks)));
  }
  base::Nanoseconds Now() const { return ToTime(Ticks()); }

  void SetTsc(const host::TscConversion& tsc) {
    if (source_.read != nullptr) return;  // Its ticks are nanoseconds: the identity.
    tsc_ = tsc;
    ticks_are_tsc_ = tsc.uses_tsc();
  }
  // `ptp`: the device's times are told on its PTP clock, if it has one.
  void SetDevice(const nic::DeviceClock& device, bool ptp) {
    const bool on_ptp = ptp && device.ptp.has_value();
    host_ = device.host;
    device_ = on_ptp ? *device.ptp : device.host;
    scale_ = DeviceScale::Of(device_);
    flags_ = static_cast<uint16_t>((device_.in_sync ? completion::kClockSynced : 0) |
                                   (on_ptp ? completion::kPtpTime : 0));
  }
  // Whether ticks are the TSC's, and not some other clock's.
  bool TicksAreTsc() const { return ticks_are_tsc_; }
  // By what the device's times are told.
  const nic::ClockConversion& device() const { return device_; }
  const DeviceScale& scale() const { return scale_; }
  // What a completion with such a time says of it: CLOCK_SYNCED, PTP_TIME.
  uint16_t flags() const { return flags_; }
  // The same times on CLOCK_MONOTONIC, whatever they are told on.
  const nic::ClockConversion& host() const { return host_; }
  int64_t DeviceTime(uint64_t raw) const { return scale_.ToNanoseconds(raw); }

 private:
  // Not inlined: it would cost those who read the TSC their registers.
  [[gnu::noinline, gnu::cold]] uint64_t OtherTicks() const {
    return source_.read == nullptr ? tsc_.Ticks() : source_.read(source_.context);
  }

  TickSource source_;
  bool ticks_are_tsc_ = false;
  host::TscConversion tsc_;
  nic::ClockConversion device_;
  DeviceScale scale_;
  uint16_t flags_ = 0;
  nic::ClockConversion host_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_CLOCK_H_
