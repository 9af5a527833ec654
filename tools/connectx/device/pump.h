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
#include "tools/connectx/device/queue_pair.h"
#include "tools/connectx/device/slot_table.h"
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

  // Before a control call that stops or ends a queue of the page: what was rung until then was rung
  // in time, and is served with the next pass. Null: nothing.
  void TakeRung(UarPage* page);

  // What of such a queue leaves before it stops: all that its pace allows at environment.pass. True
  // when some did.
  bool Finish(SendQueue* queue);

  // Takes over the MTU of a wire that has one.
  void FollowMtu();
  // The administrator's word. Tells subscribers at once what it changes.
  void SetPortUp(bool up);
  bool port_up() const { return port_up_; }
  // Tells every subscriber.
  void Announce(ibv_event_type type, uint64_t element);

  // Written by control calls.
  uint32_t last_context = 0;
  uint32_t open_contexts = 0;
  uint32_t queues_that_take_own = 0;
  std::vector<CompletionQueue*> moderated;
  std::vector<EventSink*> subscribers;
  // What a doorbell's numbers may name; for strict checks.
  const SlotTable<QueuePair>* queue_pairs = nullptr;
  const SlotTable<CompletionQueue>* completion_queues = nullptr;

 private:
  // True when the port went up or down since the last look.
  bool FollowPort();
  bool ServePage(UarPage* page, bool all);
  bool TakeDoorbells(UarPage* page);
  bool TakeArm(UarPage* page);
  void CheckDoorbell(UarPage* page, uint64_t rung, const uint8_t* slot);
  void CheckArm(const UarPage& page, uint64_t rung);
  // True when a queue trapped it. `from`: the context that sent it, for what the card loops back.
  bool Steer(std::span<const uint8_t> frame, int64_t time_ns, std::optional<ContextId> from);
  // `from`: a context whose queues get it only if they asked for it.
  void DeliverTo(const Steering::Entry& entry, std::optional<ContextId> from, Arrival* arrival);
  bool LoopsBack(std::span<const uint8_t> frame) const;
  // For the port as it is now.
  bool TooLong(std::span<const uint8_t> frame) const;

  Environment* const environment_;
  UarTable* const uars_;
  Steering* const steering_;
  Wire* const wire_;
  bool sent_ = false;      // Since the wire was flushed.
  bool admin_up_ = true;
  bool port_up_;           // As subscribers were last told.
  bool port_moved_ = false;  // By an administrator, since the last pass.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_PUMP_H_
