// SPDX-License-Identifier: Apache-2.0
//
// The two times a card has: a counter that runs freely at the core clock, and the PTP hardware
// clock (PHC), which somebody outside sets and steers.
//
// Invariant: the counter is the device's Clock in cycles and never adjusted; the PHC is that clock
// until it is adjusted, and then a line with another offset and slope.
// Units: nanoseconds of the device's Clock, cycles. Thread: the device's lock.
// Spec: PRM real-time timestamp format: seconds in the upper half, nanoseconds in the lower.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_HARDWARE_CLOCK_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_HARDWARE_CLOCK_H_

#include <cstdint>

namespace xtreme::connectx {

class HardwareClock {
 public:
  // At first the PHC is `phc_offset_ns` ahead of the device's Clock.
  explicit HardwareClock(uint32_t core_clock_khz, int64_t phc_offset_ns = 0)
      : cycles_per_ns_((uint64_t{core_clock_khz} << kCyclesShift) / 1'000'000),
        phc_ns_(phc_offset_ns) {}

  uint64_t CyclesAt(int64_t time_ns) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(time_ns) * cycles_per_ns_) >>
                                 kCyclesShift);
  }

  int64_t PhcAt(int64_t time_ns) const {
    const int64_t elapsed_ns = time_ns - since_ns_;
    const auto drift = static_cast<__int128>(elapsed_ns) * parts_per_billion_ / kBillion;
    return phc_ns_ + elapsed_ns + static_cast<int64_t>(drift);
  }

  // As a CQE of a real-time CQ carries it.
  uint64_t RealTimeAt(int64_t time_ns) const {
    const auto phc_ns = static_cast<uint64_t>(PhcAt(time_ns));
    return phc_ns / kBillion << 32 | phc_ns % kBillion;
  }

  // From `now_ns` on the PHC is `step_ns` further and this much faster than the device's clock.
  void Adjust(int64_t now_ns, int64_t step_ns, int32_t parts_per_billion) {
    phc_ns_ = PhcAt(now_ns) + step_ns;
    since_ns_ = now_ns;
    parts_per_billion_ = parts_per_billion;
  }
  int32_t parts_per_billion() const { return parts_per_billion_; }

 private:
  static constexpr int kCyclesShift = 44;
  static constexpr int64_t kBillion = 1'000'000'000;

  const uint64_t cycles_per_ns_;  // Fixed point, kCyclesShift.
  int64_t since_ns_ = 0;  // The Clock when
  int64_t phc_ns_;        // the PHC was this.
  int32_t parts_per_billion_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_HARDWARE_CLOCK_H_
