// SPDX-License-Identifier: Apache-2.0
//
// Reset: a ring whose queues stopped gets new ones, with its sockets, rules and memberships. The
// owner gives the old ones away and holds none meanwhile; the control thread ends them, makes the
// new ones (those of another port before) and steers to them; the owner takes them with OP_DONE.
// Invariant: at any time one thread holds the queues, and the tap with them; rules steer to queues
// that exist.

#include <array>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_queues.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"
#include "xtreme/nic/absent_queue_pair.h"

namespace xtreme::engine {
namespace {

// Of the queue that TCP's rules stay on at a port that was left, or while there is none: nothing is
// ever posted to it.
constexpr uint32_t kKeeperFrames = 64;

// What resetting a ring asks of the control thread.
struct ResetWork {
  RingOptions options;
  packet::BufferPool* pool;  // Outlives the ring's operations.
  std::unique_ptr<nic::QueuePair> old;
  bool taken;  // By the application: what is in it is unknown here.
  std::shared_ptr<ControlSide> side;
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<stats::FrameTap> tap;  // Null: frames are not shown.
  // The port that the new ones are on, and whose memberships follow the ring there.
  nic::Nic* nic;
  uint32_t ifindex;

  absl::Status Run() {
    const absl::Status status = Replace();
    old.reset();
    return status;
  }

  // What comes while no rule stands, to a port that works, is the kernel's, which answers a segment
  // of a connection with a reset: so the new queues are there before rules leave the old ones.
  absl::Status Replace() {
    auto made = Make();
    const bool elsewhere = ifindex != side->ifindex;
    absl::Status status = elsewhere        ? ReplaceElsewhere(std::move(made))
                          : IsAsGood(made) ? ReplaceHere(*std::move(made))
                                           : ReplaceInTurn(std::move(made));
    // Without queues connections wait for the next reset.
    if (!elsewhere && side->fresh_queue != nullptr) side->rules.EndLeft();
    if (!elsewhere) status.Update(Rejoin());
    side->rules_left = side->rules.HasLeft();
    if (side->fresh_queue != nullptr && side->moderation != nic::Moderation()) {
      // As the application asked; it was told what the device said of it then.
      nic->SetModeration(side->fresh_queue.get(), side->moderation).IgnoreError();
    }
    return status;
  }

  using Made = absl::StatusOr<std::unique_ptr<nic::QueuePair>>;

  // The device had room for both, on-device memory included.
  bool IsAsGood(const Made& made) const {
    return made.ok() && (*made)->capabilities().device_memory_bytes >=
                            old->capabilities().device_memory_bytes;
  }

  absl::Status ReplaceHere(std::unique_ptr<nic::QueuePair> made) {
    side->fresh_queue = std::move(made);
    absl::Status steered = side->rules.Redirect(side->fresh_queue.get());
    if (!taken) TakeLeft();
    return steered;
  }

  absl::Status ReplaceInTurn(Made made) {
    if (made.ok()) made->reset();
    side->rules.Suspend(MakeKeeper());
    if (!taken) TakeLeft();
    old.reset();
    made = Make();
    if (!made.ok()) return made.status();
    side->fresh_queue = *std::move(made);
    return side->rules.Resume(side->fresh_queue.get());
  }

  absl::Status ReplaceElsewhere(Made made) {
    Leave();
    if (!taken) TakeLeft();
    absl::Status joined = Follow();
    if (!made.ok()) return made.status();
    side->fresh_queue = *std::move(made);
    absl::Status steered = side->rules.Resume(side->fresh_queue.get());
    return steered.ok() ? joined : steered;
  }

  // Of the port that the ring was on, which may be as good as it was, or gone.
  void Leave() { side->rules_not_left = side->rules.SuspendAndLeave(MakeKeeper()); }

  // For TCP's rules, at the port that the ring is on. Null: there are none, or no room.
  std::unique_ptr<nic::QueuePair> MakeKeeper() {
    if (!side->rules.HasTcp()) return nullptr;
    auto kept = side->nic->CreateQueuePair({.send_queue_frames = kKeeperFrames,
                                            .receive_queue_frames = kKeeperFrames,
                                            .blueflame = false,
                                            .timestamps = false},
                                           pool);
    return kept.ok() ? *std::move(kept) : nullptr;
  }

  absl::StatusOr<std::unique_ptr<nic::QueuePair>> Make() {
    return MakeQueues(options, nic, pool, tap.get(), &mailbox->waiter());
  }

  // No rule steers to the old queue any more: what it has is all that it will have. A poll that
  // gives nothing may have passed over what is of no use, behind which there is more. Times of
  // another port's clock would be wrong on this one's.
  void TakeLeft() {
    const nic::QueueCounters before = old->counters();
    std::array<nic::RxFrame, 64> taken;
    uint32_t count = 0;
    uint32_t posted = 0;
    do {
      posted = old->posted();
      count = old->PollReceive(taken);
      for (nic::RxFrame& frame : std::span(taken).first(count)) {
        if (nic != side->nic) frame.flags &= static_cast<uint16_t>(~nic::kRxTimestamp);
        side->left_behind.push_back(frame);
      }
    } while (count != 0 || old->posted() != posted);
    side->left_counters = old->counters();
    base::SubtractCounters(before, side->left_counters);
  }

  absl::Status Follow() {
    side->nic = nic;
    side->ifindex = ifindex;
    side->rules.MoveTo(nic);
    side->directory->Move(side->loopback.get(), ifindex);
    return Rejoin();
  }

  // At the port of now, also those that a move before had failed to take along.
  absl::Status Rejoin() {
    absl::Status first;
    for (SocketHoldings& held : side->of_udp) first.Update(held.Rejoin(*side));
    return first;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<nic::QueuePair>> MakeQueues(const RingOptions& options,
                                                           nic::Nic* nic,
                                                           packet::BufferPool* pool,
                                                           stats::FrameTap* tap,
                                                           Waiter* waiter) {
  auto queue = nic->CreateQueuePair({.send_queue_frames = options.tx_queue_frames,
                                     .receive_queue_frames = options.rx_queue_frames,
                                     .signal_every = options.signal_every,
                                     .blueflame = options.blueflame,
                                     .device_memory_bytes = options.device_memory,
                                     .interrupts = true,
                                     .tap = tap},
                                    pool);
  if (!queue.ok()) return queue.status();
  if ((*queue)->fd() >= 0 && !waiter->Add((*queue)->fd())) {
    return absl::ResourceExhaustedError(absl::StrCat("wait for the queue's fd: errno ", errno));
  }
  return queue;
}

void AdoptQueues(std::unique_ptr<nic::QueuePair> queue, RingDevice* device) {
  const nic::Capabilities& got = queue->capabilities();
  device->pool_key = queue->pool_key();
  device->send_queue_frames = got.send_queue_frames;
  device->max_inline_bytes = got.max_inline_bytes;
  device->max_segmented_bytes = got.max_segmented_bytes;
  device->transmit_checksum = got.transmit_checksum;
  device->device_memory = got.device_memory_bytes != 0;
  device->sends_timed_at_port = got.transmit_time == nic::TimeSource::kPort;
  device->queue = std::move(queue);
}

Outcome Ring::Reset(uint64_t cookie) {
  core_->CheckOwner();
  if (resetting_) return {EALREADY, "reset ring: a reset is under way"};
  ReplaceQueues([cookie](Ring& ring, const Outcome& outcome) { ring.OnReset(cookie, outcome); });
  return {};
}

std::unique_ptr<nic::QueuePair> Ring::GiveQueues() {
  RingCore& core = *core_;
  RingDevice& device = core.device;
  if (device.taken != nullptr) return std::move(device.taken);
  core.prepared->LeaveQueue();
  device.broken = true;
  core.ChangeWorld();  // Flows can send no more.
  base::AddCounters(device.queue->counters(), core.tally.queues_before);
  if (device.queue->fd() >= 0) mailbox_->waiter().Remove(device.queue->fd());
  auto absent = std::make_unique<nic::AbsentQueuePair>(device.queue->capabilities());
  return std::exchange(device.queue, std::move(absent));
}

// `done` is called by a notice, with an outcome that lives until what it told was handed out.
void Ring::ReplaceQueues(std::function<void(Ring&, const Outcome&)> done) {
  RingCore& core = *core_;
  RingDevice& device = core.device;
  resetting_ = true;
  core.Flush();  // What was posted leaves while others are made.
  core.Reap();   // What has left has left: the queues go with what they say of it.
  paced_->Reap();
  ResetWork work{.options = core.options,
                 .pool = device.pool.get(),
                 .old = nullptr,
                 .taken = device.taken != nullptr,
                 .side = core.host.control_side,
                 .mailbox = mailbox_,
                 .tap = device.tap,
                 .nic = device.nic,
                 .ifindex = device.ifindex};
  work.old = GiveQueues();
  paced_->Replace();
  core.Start(MakeOperation([work = std::move(work), done = std::move(done)]() mutable {
    const Outcome outcome = OutcomeOf(work.Run());
    work.mailbox->Push(MakeNotice([done = std::move(done), told = outcome](Ring& ring) mutable {
      if (told.ok()) told = ring.core().paced->Failure();
      done(ring, told);
    }));
  }));
}

void Ring::TakeFreshQueues() {
  RingCore& core = *core_;
  resetting_ = false;
  // The device is done with them, sent or not.
  core.sends.Abandon();
  core.attention |= kSendsWanted;
  ControlSide& side = *core.host.control_side;
  base::AddCounters(std::exchange(side.left_counters, {}), core.tally.queues_before);
  NoteLosses();  // Those meanwhile.
  // They come before what the new queue brings.
  for (const nic::RxFrame& frame : side.left_behind) {
    left_behind_.push_back(frame);
    core.attention |= kFramesWait;
  }
  side.left_behind.clear();
  if (side.fresh_queue != nullptr) OnFreshQueues();
}

void Ring::OnReset(uint64_t cookie, const Outcome& outcome) {
  TakeFreshQueues();
  AnnounceMove();  // One that had failed.
  // What waited for a neighbour in vain may have taken the room.
  Completion done = core_->Draft(Kind::kOpDone);
  done.status = outcome.error;
  done.cookie = cookie;
  // The notice that brought it lives until it was handed out.
  done.text = outcome.ok() ? nullptr : outcome.text.c_str();
  core_->Tell(done);
  ConsiderMove();
}

void Ring::OnFreshQueues() {
  RingCore& core = *core_;
  // The control thread let go of them with its notice.
  AdoptQueues(std::move(core.host.control_side->fresh_queue), &core.device);
  core.sends.Restart();
  core.attention &= ~kDoorbellOwed;
  core.device.broken = false;
  paced_->Adopt();
  empty_seen_ = 0;
  barrier_ = 0;  // Of the frames of the one before.
  gap_follows_ = !left_behind_.empty();
  if (!gap_follows_) core.after_drop = kAfterDrop;
  core.ChangeWorld();  // Headers are prepared for a queue.
  ++core.tally.counters.resets;
  if (!core.device.started) return;
  core.device.queue->Refill();
  udp_->Warm();
  Flush();
}

}  // namespace xtreme::engine
