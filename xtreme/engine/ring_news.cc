// SPDX-License-Identifier: Apache-2.0
//
// News of the pool, the queues, the clock and the kernel, as completions of the ring. Those of its
// ports: ring_move.cc.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/fd_watches.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/snapshot.h"

namespace xtreme::engine {
namespace {

// The cause, until it was handed out: a reset may end the queue that has it before.
struct BrokenTold final : Notice {
  explicit BrokenTold(const nic::QueueError& error) : error(error) {}
  const nic::QueueError error;
};

Completion Dropped(const RingCore& core, Layer layer, uint64_t count) {
  Completion completion = core.Draft(RingEvent::kDropped);
  completion.layer = static_cast<uint64_t>(layer);
  completion.count = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
  return completion;
}

}  // namespace

void Ring::OnRoutes() {
  core_->host.routes = core_->host.control_side->kernel->Routes();
  core_->ChangeWorld();
  FollowInterfaces();
  udp_->AdoptRoutes();
  tcp_->OnRoutes();
}

void Ring::OnClock(const nic::DeviceClock& device, const host::TscConversion& tsc,
                   const nic::Nic* of) {
  RingPort& port = PortOf(of);
  port.clock = device;
  if (!IsInUse(port)) return;
  const bool was_in_sync = core_->clock.device().in_sync;
  core_->SetDeviceClock(device);
  core_->clock.SetTsc(tsc);
  SetTapClocks();
  SampleLowWater();
  core_->LookForErrors();
  const bool is_in_sync = core_->clock.device().in_sync;
  if (is_in_sync == was_in_sync) return;
  core_->Tell(core_->Draft(is_in_sync ? RingEvent::kClockSynced : RingEvent::kClockLost));
}

void Ring::OnPortCounters(const nic::PortCounters& rise, const nic::Nic* of) {
  if (!IsInUse(PortOf(of))) {
    if (!core_->ports->left_rules.armed()) return;
    core_->tally.counters.left_port_drops += rise.out_of_buffer;
    return;
  }
  core_->after_drop = kAfterDrop;
  core_->tally.port.out_of_buffer += rise.out_of_buffer;
  core_->tally.port.discards += rise.discards;
  core_->Tell(Dropped(*core_, Layer::kPort, rise.out_of_buffer + rise.discards));
  NoteLosses();
}

void Ring::OnFdEvent(int fd, uint32_t events, int error) {
  Completion* completion = core_->Emit(Kind::kFdEvent);
  completion->fd = fd;
  completion->events = events;
  completion->status = error;
}

void Ring::Watch(int fd, uint32_t events) {
  core_->CheckOwner();
  core_->Start(MakeOperation([fd, events, control = core_->host.control,
                              side = core_->host.control_side, mailbox = mailbox_] {
    if (events == 0) return side->watches->End(*control, side.get(), fd);
    side->watches->Watch(*control, side.get(), fd, events,
                         [fd, mailbox](uint32_t ready, int error) {
      mailbox->Push(
          MakeNotice([fd, ready, error](Ring& ring) { ring.OnFdEvent(fd, ready, error); }));
    });
  }));
}

// What is posted counts as left: of it and what is free a quarter of the pool stays.
void Ring::LimitShortCopies() {
  RingDevice& device = core_->device;
  const uint32_t quarter = device.pool->capacity() / 4;
  const uint32_t left = quarter - std::min(quarter, device.queue->posted());
  device.short_copies_leave = device.pool->LevelOf(left);
}

// POOL_LOW below an eighth of the pool, POOL_OK above a quarter: what can still be received into
// counts, free or posted. What of it is less than an eighth is not for what TCP's peers send.
void Ring::CheckPool() {
  RingCore& core = *core_;
  const packet::BufferPool& pool = *core.device.pool;
  const uint32_t left = pool.free_count() + core.device.queue->posted();
  const bool low = (core.attention & kRefillOwed) != 0;
  if (!low && left < pool.capacity() / 8) {
    core.attention |= kRefillOwed;
    ++core.tally.counters.pool_low;
    Completion completion = core.Draft(RingEvent::kPoolLow);
    completion.count = pool.free_count();
    core.Tell(completion);
  } else if (low && left > pool.capacity() / 4) {
    core.attention &= ~kRefillOwed;
    Completion completion = core.Draft(RingEvent::kPoolOk);
    completion.count = pool.free_count();
    core.Tell(completion);
  }
  tcp_->SetShortOfBuffers(left < pool.capacity() / 8);
}

// Where there is no queue, or one that stopped, nothing of it runs low.
void Ring::SampleLowWater() {
  if (!core_->device.started || core_->device.broken) return;
  uint32_t& low = core_->tally.queue_low_water;
  low = std::min(low, core_->device.queue->TakeLowWater());
}

void Ring::CheckQueue() {
  RingCore& core = *core_;
  const uint64_t empty = core.device.queue->counters().rx_empty;
  core.after_drop = kAfterDrop;
  core.Tell(Dropped(core, Layer::kQueue, empty - empty_seen_));
  empty_seen_ = empty;
  NoteLosses();
}

void Ring::ReportLosses() {
  RingCore& core = *core_;
  core.attention &= ~kLossesCounted;
  core.Tell(Dropped(core, Layer::kLibrary, std::exchange(core.tally.losses, 0)));
  core.after_drop = kAfterDrop;
  NoteLosses();
}

// A queue stopped. If it is the send queue, whatever was posted and has not left never will. Behind
// an error of the receive queue the device goes on sending, and reads what it sends.
void Ring::OnBroken() {
  RingCore& core = *core_;
  if (core.device.broken) return;
  ++core.tally.counters.queues_stopped;
  core.Reap();  // What has left has left.
  paced_->Reap();
  const auto& error = core.device.queue->error();
  if (error && !error->receive) core.sends.Abandon();
  paced_->AbandonBroken();
  core.attention |= kSendsWanted;
  StopSending();
  Completion completion = core.Draft(RingEvent::kBroken);
  auto told = std::make_unique<BrokenTold>(*core.BrokenQueue()->error());
  completion.status = told->error.syndrome;
  completion.text = told->error.text.c_str();
  core.Tell(completion);
  spent_.Add(std::move(told));
}

// Connections end. Those that a reset under way had kept do, too.
void Ring::StopSending() {
  core_->device.broken = true;
  core_->ChangeWorld();  // Flows can send no more.
  tcp_->OnBroken();
}

// Their device is gone: it completes nothing any more, and reads nothing. Its channels are closed,
// and so ready for ever: no sleep would last.
void Ring::EndQueues() {
  RingCore& core = *core_;
  core.Reap();
  paced_->Reap();
  core.sends.Abandon();
  core.attention |= kSendsWanted;
  const int fd = core.device.queue->fd();
  if (fd >= 0) mailbox_->waiter().Remove(fd);
  paced_->OnRemoved();
}

}  // namespace xtreme::engine
