// SPDX-License-Identifier: Apache-2.0
//
// The poll loop, on one page: each step is an event, each event has its function.

#include <algorithm>

#include "stack/tcp/take_expected.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/timer_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {
namespace {

// Frames of known flows, their completions written to `out`; how many.
uint32_t TakeKnown(RingCore& core, Completion* out, uint32_t most) {
  return core.device.queue->PollKnown(core.known, out, most) & nic::QueuePair::kPolled;
}

}  // namespace

// Decides before anything is saved: what finds nothing ends here.
uint32_t Ring::Poll(void* out, uint32_t max, size_t stride) {
  core_->CheckOwner();
  const RingCore& core = *core_;
  const bool ready = core.device.queue->ReceiveReady();
  const uint32_t waiting = core.attention | mailbox_->waiting();
  if (!ready) {
    if (waiting == 0) [[likely]] return 0;
    // A poll that has only timers to think of thinks of them once in so many.
    if (waiting == kTimersArmed && !timers_->IsTurn()) return 0;
    return PollBusy(out, max, stride);
  }
  if ((waiting & ~uint32_t{kTimersArmed}) != 0 || stride != sizeof(Completion)) [[unlikely]] {
    return PollBusy(out, max, stride);
  }
  return PollSome(out, max);
}

// Where packets are all there is to look at, and those of known flows all there is of them, this is
// the whole poll; also while timers are armed, of which none is due. What needs more has functions
// of its own, so that this one saves little.
[[gnu::noinline]] uint32_t Ring::PollSome(void* out, uint32_t max) {
  // The next packet is marked, or flows are to be forgotten.
  if (core_->after_drop != 0 || core_->known.IsBehind()) [[unlikely]] {
    return PollBusy(out, max, sizeof(Completion));
  }
  const uint64_t ticks = core_->clock.Ticks();
  RingCore& core = *core_;
  core.SetPollTicks(ticks);
  const uint32_t most = std::min(core.options.poll_batch, max);
  const uint32_t taken =
      core.device.queue->PollKnown(core.known, static_cast<Completion*>(out), most);
  if (taken > nic::QueuePair::kPolled) [[unlikely]] return PollRest(out, max, taken);
  core_->tally.counters.packets += taken;
  return core_->attention == 0 ? taken : EndSome(out, max, taken);
}

// There is more, or a refill is due, which comes last, and timers then with the next poll.
[[gnu::noinline]] uint32_t Ring::PollRest(void* out, uint32_t max, uint32_t polled) {
  uint32_t taken = polled & nic::QueuePair::kPolled;
  if ((polled & nic::QueuePair::kRest) != 0) return PollMore(out, max, taken);
  core_->tally.counters.packets += taken;
  if (core_->attention != 0) taken = EndBeforeRefill(out, max, taken);
  return RefillAfter(taken);
}

[[gnu::noinline]] uint32_t Ring::EndBeforeRefill(void* out, uint32_t max, uint32_t taken) {
  if (!timers_->PutOff()) return EndSome(out, max, taken);
  timers_->CountReceived(taken);
  return EndFlushed(taken);
}

// There are other frames: of known flows too, if they came meanwhile or a queue stopped where its
// ring ends. What the last one caused beside its completion is told before.
[[gnu::noinline]] uint32_t Ring::PollMore(void* out, uint32_t max, uint32_t taken) {
  RingCore& core = *core_;
  nic::QueuePair& queue = *core.device.queue;
  const uint32_t most = std::min(core.options.poll_batch, max);
  constexpr uint32_t kAfterwards = kTimersArmed | kAnyDoorbellOwed;
  const bool told = (core.attention & ~kAfterwards) == 0;
  if (taken < most && queue.ReceiveReady() && told && !queue.declined()) {
    taken += TakeKnown(core, static_cast<Completion*>(out) + taken, most - taken);
  }
  core.tally.counters.packets += taken;
  if (taken < most && queue.ReceiveReady()) {
    timers_->CountReceived(taken);
    return PollOn(out, max, sizeof(Completion), taken);
  }
  if (core.attention != 0) taken = EndSome(out, max, taken);
  return queue.RefillDue() ? RefillAfter(taken) : taken;
}

// What is left of a poll of packets of known flows. Timers come after packets: a poll that brought
// some leaves them to the next one, which then looks whatever it finds.
[[gnu::noinline]] uint32_t Ring::EndSome(void* out, uint32_t max, uint32_t taken) {
  timers_->CountReceived(taken);
  if (timers_->IsTurn()) return EndOnTurn(out, max, taken);
  timers_->MakeTurn();
  return EndFlushed(taken);
}

// Here, where it is asked for most often and inlined.
base::Nanoseconds Tcp::NextDeadline() {
  return stack_ == nullptr ? base::kNever : stack_->Deadline();
}

[[gnu::noinline]] uint32_t Ring::EndOnTurn(void* out, uint32_t max, uint32_t taken) {
  const base::Nanoseconds now = core_->PollTime();
  const bool due = core_->wheel.NextDeadline() <= now;
  if (due) [[unlikely]] return PollOn(out, max, sizeof(Completion), taken);
  // Mostly acknowledgements. Of a connection's other timers the next poll tells.
  if (tcp_->NextDeadline() <= now) [[unlikely]] FireTimers();
  return EndFlushed(taken);
}

// What TCP answered leaves. What the last frame caused beside its first completion is told by the
// next poll, before anything else.
[[gnu::always_inline]] inline uint32_t Ring::EndFlushed(uint32_t taken) {
  if ((core_->attention & kAnyDoorbellOwed) == 0) return taken;
  return FlushAfter(taken);
}

[[gnu::noinline]] uint32_t Ring::FlushAfter(uint32_t taken) {
  Flush();
  return taken;
}

// Poll() and PollSome() in the other form. A full batch is all that one poll takes.
Ring::Linked Ring::PollLinks(completion::LinkCompletion* out, uint32_t max) {
  core_->CheckOwner();
  RingCore& core = *core_;
  nic::QueuePair& queue = *core.device.queue;
  const uint32_t waiting = core.attention | mailbox_->waiting();
  if (!queue.ReceiveReady()) return {0, waiting != 0};
  if ((waiting & ~uint32_t{kTimersArmed}) != 0 || !core.links->any()) return {0, true};
  const uint64_t ticks = core.clock.Ticks();
  const bool due = core.attention != 0 && NextDeadline() <= core.clock.ToTime(ticks);
  if (due || core.after_drop != 0) [[unlikely]] return {0, true};
  core.SetPollTicks(ticks);
  core.links->Follow(ticks);
  const uint32_t most = std::min(core.options.poll_batch, max);
  uint32_t taken = queue.PollLinks(*core.links, out, most);
  // A queue may stop where its ring ends.
  if (taken != most && queue.ReceiveReady()) [[unlikely]] {
    taken += queue.PollLinks(*core.links, out + taken, most - taken);
  }
  core.tally.counters.packets += taken;
  if (queue.RefillDue()) Refill();
  return {taken, taken != most && queue.ReceiveReady()};
}

// PollSome() of one datagram, without a completion.
packet::Buffer* Ring::TakeDatagram(const UdpSocket& socket, size_t most) {
  core_->CheckOwner();
  RingCore& core = *core_;
  nic::QueuePair& queue = *core.device.queue;
  if (!queue.ReceiveReady()) return nullptr;
  const uint32_t waiting = core.attention | mailbox_->waiting();
  if (waiting != 0 && (waiting != kTimersArmed || timers_->IsTurn())) return nullptr;
  if (core.after_drop != 0) [[unlikely]] return nullptr;  // The next is marked.
  core.known.Follow();
  packet::Buffer* const buffer = queue.TakeKnown(core.known, &socket, most);
  if (buffer == nullptr) [[unlikely]] return nullptr;
  ++core.tally.counters.packets;
  if (queue.RefillDue()) [[unlikely]] Refill();
  return buffer;
}

// An order that another thread fires waits for nothing of the poll, not even its time: what is told
// of it, or was posted, gets that afterwards.
[[gnu::noinline]] uint32_t Ring::PollBusy(void* out, uint32_t max, size_t stride) {
  RingCore& core = *core_;
  if (!mailbox_->HasEntry()) [[likely]] {
    core.SetPollTicks(core.clock.Ticks());
    return PollOn(out, max, stride, 0);
  }
  const uint32_t waited = core.fifo.waiting();
  TakeEntry();
  const uint64_t ticks = core.clock.Ticks();
  core.SetPollTicks(ticks);
  core.fifo.ForEachWaiting([ticks](Completion* told) { told->poll_tsc = ticks; }, waited);
  return PollOn(out, max, stride, 0);
}

// The time of the poll is known, and what PollSome() took stands in `out` already.
[[gnu::noinline]] uint32_t Ring::PollOn(void* out, uint32_t max, size_t stride, uint32_t taken) {
  RingCore& core = *core_;
  const auto resolve = [this](Completion* completion) {
    return completion->socket == 0 || Resolve(completion);
  };
  const bool nothing_waited = core.fifo.waiting() == 0;
  core.fifo.BeginPoll(static_cast<uint8_t*>(out) + taken * stride, max - taken, stride, resolve);
  // What was handed out by an earlier poll is read no more.
  if (nothing_waited && !spent_.empty() && core.kept.empty()) spent_.Clear();

  if ((core.attention & kToldLater) != 0) TellKept();
  if ((core.attention & kTcpNews) != 0) tcp_->TellNews();
  // Before what acknowledges the segments that have left.
  if ((core.attention & kSendsWanted) != 0) core.Reap();
  const bool frames_wait = (core.attention & kFramesWait) != 0;
  // No more than find room beside what waited: of one too many the next poll could not write
  // directly, nor any after it. Where all the room is taken, connections have to go on.
  const uint32_t left = core.fifo.Left();
  if (core.device.queue->ReceiveReady() || frames_wait) Receive(left != 0 ? left : max - taken);
  if ((core.attention & (kSendsWanted | kRoomWanted)) != 0) SettleSends();
  if (mailbox_->knocked() || (core.attention & kNoticesWait) != 0) TakeNotices();
  if ((core.attention & kSocketNews) != 0) udp_->TellNews();
  if ((core.attention & kTimersArmed) != 0) FireTimers();
  RefillIfDue();  // Before TX_SPACE is told of the buffers that are left.
  if ((core.attention & kTcpNews) != 0) tcp_->TellNews();
  if ((core.attention & kLossesCounted) != 0) ReportLosses();
  if ((core.attention & kAnyDoorbellOwed) != 0) Flush();
  if ((core.attention & kPollsTimed) != 0) [[unlikely]] TimePoll();

  const uint32_t handed_out = taken + core.fifo.EndPoll(resolve);
  core.attention = core.fifo.waiting() == 0 ? core.attention & ~kCompletionsWait
                                            : core.attention | kCompletionsWait;
  return handed_out;
}

bool Ring::More() const {
  core_->CheckOwner();
  constexpr uint32_t kKnownToWait = kCompletionsWait | kNoticesWait | kToldLater | kSocketNews |
                                     kLossesCounted | kTcpNews | kFramesWait;
  return (core_->attention & kKnownToWait) != 0 || mailbox_->waiting() != 0 ||
         core_->device.queue->ReceiveReady();
}

void Ring::TellKept() {
  RingCore& core = *core_;
  for (; !core.kept.empty() && core.fifo.Room() > 0; core.kept.pop_front()) {
    Completion completion = core.kept.front();
    if (completion.socket != 0 && !Resolve(&completion)) continue;
    completion.poll_tsc = core.poll_ticks();
    *core.Emit(completion.kind) = completion;
  }
  if (core.kept.empty()) core.attention &= ~kToldLater;
}

bool Ring::Resolve(Completion* completion) {
  return IsTcp(completion->socket) ? tcp_->Resolve(completion) : udp_->Resolve(completion);
}

// Frames for which there was no room are looked at before any other is taken; then those of known
// flows, up to the first that is not; which PollSome() may have come to already.
void Ring::Receive(uint32_t max) {
  RingCore& core = *core_;
  const bool declined = core.device.queue->TakeDeclined();
  core.known.Follow();
  if (frames_at_ == frames_end_) {
    const std::span<Completion> direct = core.fifo.Direct();
    const auto room = static_cast<uint32_t>(direct.size());
    // Of timed polls the first frame is looked at afterwards; behind a drop it is marked.
    const bool timed = (core.attention & kPollsTimed) != 0;
    const bool marked = core.after_drop != 0;
    if (core.known.any() && !timed && !marked && left_behind_.empty() && !declined) {
      const uint32_t most = std::min({room, max, core.options.poll_batch});
      const uint32_t known = TakeKnown(core, direct.data(), most);
      core.tally.counters.packets += known;
      core.device.queue->TakeDeclined();
      core.fifo.EmittedDirect(known);
      timers_->CountReceived(known);
      max -= known;
      // Of the last frame, if it caused more than a completion.
      if ((core.attention & kTcpNews) != 0) tcp_->TellNews();
      if ((core.attention & kTcpNews) != 0) [[unlikely]] return;
    }
    const bool any = !left_behind_.empty() || core.device.queue->ReceiveReady();
    if (!any || !TakeFrames(max)) return;
  }
  const uint32_t room = core.fifo.Room() / core.fanout;
  const uint32_t count = std::min(frames_end_ - frames_at_, room);
  frames_at_ += udp_->Receive({frames_.get() + frames_at_, count});
  const bool all = frames_at_ == frames_end_ && left_behind_.empty();
  core.attention = all ? core.attention & ~kFramesWait : core.attention | kFramesWait;
  if (all && gap_follows_) [[unlikely]] {
    gap_follows_ = false;
    core.after_drop = kAfterDrop;
  }
}

// Takes as many CQEs as there is room for all that they can cause: a completion each, or one for
// each socket that a datagram goes to. What else a TCP segment causes waits in the stack.
bool Ring::TakeFrames(uint32_t max) {
  RingCore& core = *core_;
  const uint32_t room = core.fifo.Room() / core.fanout;
  const uint32_t most = std::min({core.options.poll_batch, max, room});
  if (most == 0) return false;
  const std::span<nic::RxFrame> out(frames_.get(), most);
  const uint32_t count = left_behind_.empty() ? core.device.queue->PollReceive(out)
                                              : TakeLeftBehind(out);
  if (count == 0) {
    if (core.device.queue->error()) OnBroken();
    return false;
  }
  timers_->CountReceived(count);
  frames_at_ = 0;
  frames_end_ = count;
  return true;
}

uint32_t Ring::TakeLeftBehind(std::span<nic::RxFrame> out) {
  const size_t count = std::min(out.size(), left_behind_.size());
  std::copy_n(left_behind_.begin(), count, out.begin());
  left_behind_.erase(left_behind_.begin(), left_behind_.begin() + static_cast<ptrdiff_t>(count));
  return static_cast<uint32_t>(count);
}

// TX_WIRE and TX_DONE, in the order of the sends.
void Ring::SettleSends() {
  RingCore& core = *core_;
  core.Reap();
  if (paced_->any()) [[unlikely]] paced_->Reap();
  if (!core.device.broken && core.BrokenQueue() != nullptr) OnBroken();
  if (!SettleLog(core.sends)) return;
  if (!paced_->ForEachLog([this](SendLog& log) { return SettleLog(log); })) return;
  if ((core.attention & kRoomWanted) != 0 && core.SendRoom() > 0) tcp_->OnRoom();
  const bool paced_wait = paced_->any() && paced_->Retire();
  if (core.sends.wanted() == 0 && !paced_wait) core.attention &= ~kSendsWanted;
}

// False: there is no room for what a send has to tell.
bool Ring::SettleLog(SendLog& log) {
  while (SendRecord* record = log.Settled()) {
    if (core_->fifo.Room() < 2) return false;
    if (record->buffer != nullptr) packet::BufferPool::ReleaseByOwner(record->buffer);
    const SendRecord settled = *record;
    log.Pop();
    if ((settled.wants & kWantSegment) != 0) {
      tcp_->Settle(settled);
    } else if (settled.wants != kWantNothing) {
      udp_->Settle(settled);
    }
  }
  return true;
}

// Behind the notices that its thread left before it, and what is to be told before.
void Ring::TakeEntry() {
  const RingCore& core = *core_;
  const bool before = !notices_.empty() || (core.attention & kToldLater) != 0;
  if (before || core.fifo.Room() == 0) return;
  core.device.queue->FetchAhead();
  TakePosted(mailbox_->TakeEntry());
}

void Ring::TakeNotices() {
  RingCore& core = *core_;
  if (mailbox_->knocked()) {
    mailbox_->TakeKnock();
    mailbox_->inbox().TakeAll(
        [this](std::unique_ptr<Notice> notice) { notices_.Add(std::move(notice)); });
    core.attention |= kNoticesWait;
  }
  // A notice causes two completions at most, beside what it tells by Tell(); and some none.
  constexpr int kMostNotices = 64;
  for (int left = kMostNotices; left > 0 && !notices_.empty() && core.fifo.Room() >= 2; --left) {
    std::unique_ptr<Notice> notice = notices_.TakeFirst();
    ++core.tally.counters.notices;
    static_cast<RingNotice*>(notice.get())->Arrive(*this);
    spent_.Add(std::move(notice));
  }
  const bool drained = DrainLanes();
  if (notices_.empty() && drained) core.attention &= ~kNoticesWait;
}

void Ring::Flush() {
  core_->CheckOwner();
  core_->Flush();
}

// Buffers for the receive queue, and news of a pool or queue that runs low.
[[gnu::always_inline]] inline void Ring::RefillIfDue() {
  const RingCore& core = *core_;
  const packet::BufferPool& pool = *core.device.pool;
  const bool due = core.device.queue->RefillDue() || pool.HasReturns() ||
                   pool.IsBelow(low_water_) || (core.attention & kRefillOwed) != 0;
  if (due) Refill();
}

void Ring::Refill() {
  RefillAfter(0);
}

// What other threads returned, and a pool that runs low, is looked at with every refill. Last in a
// poll that took as many, which it gives back.
[[gnu::noinline]] uint32_t Ring::RefillAfter(uint32_t taken) {
  const RingDevice& device = core_->device;
  // Also where the queue takes none: their bytes are credited, and nobody knocks again for them.
  if (device.pool->HasReturns()) device.pool->DrainReturns();
  if (!device.started || device.broken) return taken;
  const uint32_t refilled = device.queue->Refill();
  // One by one, so that no register is saved for them.
  const auto check = [=, this] { return CheckRefilled(taken, refilled); };
  if (refilled >= RingOptions::kLeastQueueFrames) [[unlikely]] return check();
  if ((core_->attention & kRefillOwed) != 0) [[unlikely]] return check();
  if (device.pool->IsBelow(few_)) [[unlikely]] return check();
  return taken;
}

[[gnu::noinline]] uint32_t Ring::CheckRefilled(uint32_t taken, uint32_t refilled) {
  RingCore& core = *core_;
  const bool few = core.device.pool->IsBelow(few_);
  if (few) LimitShortCopies();
  const bool low = few && core.device.pool->IsBelow(low_water_);
  if (low || (core.attention & kRefillOwed) != 0) CheckPool();
  // Only where nothing is posted but what was just now, the queue may have been seen empty: all of
  // it, or as much as the pool had.
  const bool was_empty = core.device.queue->posted() == refilled;
  if (was_empty && core.device.queue->counters().rx_empty != empty_seen_) CheckQueue();
  return taken;
}

}  // namespace xtreme::engine
