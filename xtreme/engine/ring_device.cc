// SPDX-License-Identifier: Apache-2.0
//
// What an application may do with the ring's device itself: say when it interrupts, and take its
// queues to post and poll them alone.
//
// Invariant: queues that were taken are touched by nobody here until a reset ends them.

#include <cerrno>
#include <utility>

#include "xtreme/engine/barrier.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/nic/nic.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

Outcome Ring::ModerateInterrupts(const nic::Moderation& moderation, uint64_t cookie) {
  core_->CheckOwner();
  if (resetting_) return {EALREADY, "moderate interrupts: a reset is under way"};
  // Operations run in order: a reset that ends the queues comes after this one.
  nic::QueuePair* queue =
      core_->device.taken != nullptr ? core_->device.taken.get() : core_->device.queue.get();
  if (!queue->Addresses()) return {EOPNOTSUPP, "moderate interrupts: no device is behind the ring"};
  core_->Start(MakeOperation([queue, moderation, cookie, side = core_->host.control_side,
                              mailbox = mailbox_] {
    const absl::Status set = side->nic->SetModeration(queue, moderation);
    if (set.ok()) side->moderation = moderation;
    mailbox->Push(MakeNotice([cookie, outcome = OutcomeOf(set)](Ring& ring) {
      Completion* done = ring.core().Emit(Kind::kOpDone);
      done->status = outcome.error;
      done->cookie = cookie;
      // The notice that brought it lives until it was handed out.
      done->text = outcome.ok() ? nullptr : outcome.text.c_str();
    }));
  }));
  return {};
}

Outcome Ring::TakeQueues(nic::QueueAddresses* addresses) {
  RingCore& core = *core_;
  core.CheckOwner();
  RingDevice& device = core.device;
  if (resetting_) return {EALREADY, "take queues: a reset is under way"};
  if (device.taken != nullptr) return {EALREADY, "take queues: they were taken"};
  const Outcome stopped{ENETDOWN, "take queues: they have stopped, and a reset makes new ones"};
  if (device.broken) return stopped;
  if (!device.queue->Addresses()) return {EOPNOTSUPP, "take queues: no device is behind them"};
  Flush();
  core.Reap();
  if (core.BrokenQueue() != nullptr) return stopped;
  if (core.sends.completed() != device.queue->posted_frames()) {
    // Frames complete with the next one that is signalled: one that reaches no wire, once.
    if (barrier_ != device.queue->posted_frames()) PostBarrier();
    return {EAGAIN, "take queues: sends are under way"};
  }
  if (!core.sends.empty()) return {EAGAIN, "take queues: completions of sends wait to be polled"};
  *addresses = *device.queue->Addresses();
  device.taken = GiveQueues();
  return {};
}

void Ring::PostBarrier() {
  if (engine::PostBarrier(*core_->device.queue) == nic::TxStatus::kPosted) {
    barrier_ = core_->device.queue->posted_frames();
  }
}

}  // namespace xtreme::engine
