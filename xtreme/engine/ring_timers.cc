// SPDX-License-Identifier: Apache-2.0
//
// Timers after packets, and what other threads posted.

#include <vector>

#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/timer_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

Handle Ring::StartTimer(base::Nanoseconds deadline, uint64_t cookie) {
  core_->CheckOwner();
  ApplicationTimer* timer = timers_->Take(cookie);
  if (timer == nullptr) return 0;
  core_->ArmTimer(timer, deadline);
  return timer->handle;
}

Outcome Ring::CancelTimer(Handle handle) {
  core_->CheckOwner();
  ApplicationTimer* timer = timers_->Find(handle);
  if (timer == nullptr) return {EBADF, "cancel timer: it fired or was cancelled already"};
  core_->wheel.Cancel(timer);
  timers_->Put(timer);
  return {};
}

base::Nanoseconds Ring::NextDeadline() const {
  return base::Earlier(core_->wheel.NextDeadline(), tcp_->NextDeadline());
}

void Ring::FireTimers() {
  RingCore& core = *core_;
  const base::Nanoseconds tcp_deadline = tcp_->NextDeadline();
  const base::Nanoseconds deadline = base::Earlier(core.wheel.NextDeadline(), tcp_deadline);
  if (deadline == base::kNever) {
    core.attention &= ~kTimersArmed;
    return;
  }
  // Not due when this poll began, so the next is soon enough, and the clock is not read again.
  if (deadline > core.PollTime()) return;
  // The clock first, the queue after it: what is not in the queue now came later than `now`.
  const base::Nanoseconds now = core.clock.Now();
  if (deadline > now) return;
  const bool empty = !core.device.queue->ReceiveReady() && frames_at_ == frames_end_ &&
                     left_behind_.empty();
  bool forced = false;
  const base::Nanoseconds barrier =
      timers_->Barrier(now, empty, core.options.rx_queue_frames, &forced);
  if (deadline > barrier || core.fifo.Room() < 2) return;
  if (tcp_deadline <= barrier) tcp_->OnTimers(barrier);
  // As many as frames of a batch: the rest comes with the next polls.
  uint32_t left = core.options.poll_batch;
  if (core.wheel.NextDeadline() <= barrier) {
    core.wheel.Expire(barrier, [this, forced, &left](base::Timer* timer) {
      if (forced) ++core_->tally.counters.timers_forced;
      Fire(static_cast<RingTimer*>(timer));
      return --left != 0 && core_->fifo.Room() >= 2;
    });
  }
  if (NextDeadline() <= barrier) timers_->GoOn(barrier, core.options.rx_queue_frames);
}

void Ring::Fire(RingTimer* timer) {
  RingCore& core = *core_;
  ++core.tally.counters.timers;
  if (timer->use == RingTimer::Use::kLeftRules) return EndLeftRules();
  if (timer->use != RingTimer::Use::kApplication) return udp_->Expire(timer);
  auto* fired = static_cast<ApplicationTimer*>(timer);
  Completion* completion = core.Emit(Kind::kTimer);
  completion->deadline_ns = fired->deadline.count();
  completion->cookie = fired->cookie;
  // Any deadline may have been asked for: their difference has 64 bits, without a sign.
  const base::Nanoseconds now = base::Later(core.clock.Now(), fired->deadline);
  completion->late_ns = static_cast<uint64_t>(now.count()) -
                        static_cast<uint64_t>(fired->deadline.count());
  timers_->Put(fired);
}

std::shared_ptr<RingLane> Ring::OpenLane() {
  core_->CheckOwner();
  // Those that were closed go when lanes are drained, which takes a knock.
  if (lanes_.size() == kMaxLanes) {
    std::erase_if(lanes_, [](const auto& lane) { return lane->closed() && lane->lane().empty(); });
  }
  if (lanes_.size() == kMaxLanes) return nullptr;
  return lanes_.emplace_back(std::make_shared<RingLane>(mailbox_, core_->options.number));
}

void Ring::TakePosted(const LaneEntry& entry) {
  RingCore& core = *core_;
  if (entry.work == 0) {
    ++core.tally.counters.posted;
    core.Emit(Kind::kPosted)->value = entry.value;
    return;
  }
  ++core.tally.counters.fired;
  prepared_->FireFor(RingLane::HandleOf(entry.work, core.options.number),
                     {.flags = RingLane::FlagsOf(entry.work), .cookie = entry.value});
}

bool Ring::DrainLanes() {
  RingCore& core = *core_;
  bool drained = udp_->TakeLooped();
  for (size_t i = 0; i < lanes_.size();) {
    RingLane& lane = *lanes_[i];
    // A fire may tell more than one thing, or hear its own datagram. What stands at the door may be
    // the lane's, and came before what is in it.
    const auto may = [this, &core] { return core.fifo.Room() > 0 && !mailbox_->HasEntry(); };
    lane.lane().DrainWhile(may, [this](const LaneEntry& entry) { TakePosted(entry); });
    if (!lane.lane().empty()) {
      drained = false;
    } else if (lane.closed()) {
      lanes_.erase(lanes_.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    ++i;
  }
  return drained;
}

}  // namespace xtreme::engine
