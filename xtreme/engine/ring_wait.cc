// SPDX-License-Identifier: Apache-2.0
//
// Waiting: the only calls of a ring that enter the kernel after Start().

#include <algorithm>

#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/timer_table.h"
#include "xtreme/host/tsc_clock.h"

namespace xtreme::engine {
namespace {

// While the receive queue waits for buffers that other threads hold, nothing else would wake us.
constexpr base::Nanoseconds kLookForReturns = base::Milliseconds(1);

}  // namespace

bool Ring::Arm() {
  core_->CheckOwner();
  RingCore& core = *core_;
  if ((core.attention & kAnyDoorbellOwed) != 0) Flush();
  if (More()) return false;
  base::Nanoseconds deadline = NextDeadline();
  const base::Nanoseconds now = core.clock.Now();
  timers_->MakeTurn();
  ForgetLastPoll();
  if (deadline <= now) return false;
  if ((core.attention & kRefillOwed) != 0) {
    deadline = base::Earlier(deadline, now + kLookForReturns);
  }
  const bool for_send = (core.attention & (kSendsWanted | kRoomWanted)) != 0;
  core.device.queue->AcknowledgeEvents();
  if (paced_->any()) paced_->AcknowledgeEvents();
  mailbox_->waiter().Arm(deadline);
  core.device.queue->Arm(for_send);
  if (for_send && paced_->any()) paced_->Arm();
  // Whatever came between the first look and the arming raised no event: look once more.
  if (for_send) {
    const auto completed = [&] {
      uint32_t frames = core.sends.completed();
      paced_->ForEachLog([&frames](SendLog& log) {
        frames += log.completed();
        return true;
      });
      return frames;
    };
    const uint32_t before = completed();
    core.Reap();
    paced_->Reap();
    if (completed() != before) return false;  // Who waits for the room need not be told else.
    const auto waits = [](SendLog& log) { return log.Settled() == nullptr; };
    if (!waits(core.sends) || !paced_->ForEachLog(waits)) return false;
    if (!core.device.broken && core.BrokenQueue() != nullptr) return false;  // To be told.
  }
  return !More();
}

int Ring::Wait(void* out, uint32_t max, size_t stride, base::Nanoseconds timeout) {
  RingCore& core = *core_;
  const base::Nanoseconds start = core.clock.Now();
  const base::Nanoseconds end = base::DeadlineAfter(start, timeout);
  const base::Nanoseconds spin_until =
      core.options.wait == WaitPolicy::kBusy    ? base::kNever
      : core.options.wait == WaitPolicy::kSleep ? start
                                                : start + base::Microseconds(core.options.spin_us);
  for (;;) {
    const uint32_t count = Poll(out, max, stride);
    if (count > 0) return static_cast<int>(count);
    const base::Nanoseconds now = core.clock.Now();
    if (now >= end) return 0;
    if (now < spin_until) continue;
    if (!Arm()) continue;
    const base::Nanoseconds left = end == base::kNever ? base::kNever : end - now;
    if (!mailbox_->waiter().Sleep(left)) return -EINTR;
  }
}

int Ring::fd() const { return mailbox_->waiter().fd(); }

void Ring::Wake() { mailbox_->Knock(); }

}  // namespace xtreme::engine
