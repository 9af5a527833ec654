// SPDX-License-Identifier: Apache-2.0
//
// The data plane of one device: looks at UAR pages, runs send queues, takes frames from the wire
// and steers them.
//
// Invariant: a pass that finds nothing touches five cache lines a UAR page and calls the wire once.
// Units: nanoseconds, frames. Thread: the device's lock.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_PUMP_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_PUMP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/steering.h"
#include "tools/connectx/device/uar.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class Pump final : public Egress, public FrameSink {
 public:
  Pump(Environment* environment, UarTable* uars, Steering* steering, Wire* wire);

  // One pass at environment.pass. True when it did something.
  bool Run();
  int64_t NextDeadline() const;

  void Send(std::span<const uint8_t> frame, ContextId from) override;
  void OnFrame(std::span<const uint8_t> frame, int64_t rx_time_ns) override;

  uint64_t CyclesAt(int64_t time_ns) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(time_ns) * cycles_per_ns_) >>
                                 kCyclesShift);
  }

  // Written by control calls.
  uint32_t contexts = 0;
  std::vector<CompletionQueue*> moderated;

 private:
  static constexpr int kCyclesShift = 44;

  bool ServePage(UarPage* page, bool all);
  bool TakeDoorbells(UarPage* page);
  void CheckDoorbell(UarPage* page, uint64_t rung, const uint8_t* slot);
  // True when a queue trapped it. `from`: the context that sent it, for what the card loops back.
  bool Steer(std::span<const uint8_t> frame, uint64_t cycles, std::optional<ContextId> from);
  void DeliverTo(const Steering::Entry& entry, std::optional<ContextId> not_to, Arrival* arrival);

  Environment* const environment_;
  UarTable* const uars_;
  Steering* const steering_;
  Wire* const wire_;
  const uint64_t cycles_per_ns_;  // Fixed point, kCyclesShift.
  bool sent_ = false;             // Since the wire was flushed.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_PUMP_H_
