// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_core.h"

#include <algorithm>
#include <array>
#include <span>

#include "stack/tcp/segment_queue.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/engine/barrier.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/registered_memory.h"

namespace xtreme::engine {

namespace {

// Posts to `queue` by `post(flags)`, reaping once when it is full, and notes what is wanted of it.
// Of those that only give memory back, and that `may_wait`, the last before the doorbell asks
// for all.
template <bool may_wait = true, typename PostFrame>
nic::TxStatus PostNoted(RingCore& core, nic::QueuePair& queue, SendLog& log, uint32_t flags,
                        SendRecord* record, PostFrame post) {
  const bool own = &log == &core.sends;
  const bool rings = (flags & nic::kTxMore) == 0;
  const bool later = may_wait && own && !rings && record != nullptr &&
                     (record->wants == kWantSegment || record->wants == kWantRelease);
  if (record != nullptr) {
    if (log.full()) core.ReapInto(queue, log, ~uint32_t{0});
    if (log.full()) return nic::TxStatus::kFull;
    if (record->wants != kWantNothing && !later) flags |= nic::kTxSignal;
  }
  if (own && rings && (core.attention & kCompletionOwed) != 0) flags |= nic::kTxSignal;
  nic::TxStatus status = post(flags);
  if (status == nic::TxStatus::kFull) {
    core.ReapInto(queue, log, 1);
    status = post(flags);
  }
  if (status != nic::TxStatus::kPosted) [[unlikely]] {
    if (status == nic::TxStatus::kBroken) core.LookForErrors();
    return status;
  }
  if (!rings) core.attention |= kDoorbellOwed;
  if (later) {
    core.attention |= kCompletionOwed;
  } else if (own && (flags & nic::kTxSignal) != 0) {
    core.attention &= ~uint32_t{kCompletionOwed};
  }
  if (record != nullptr) {
    record->frame = queue.posted_frames();
    log.Add(*record);
    if (record->wants != kWantNothing) core.attention |= kSendsWanted;
  }
  return status;
}

constexpr uint32_t kReapedAtOnce = 16;

// Takes up to `most` completions, at most kReapedAtOnce, into the log; how many.
uint32_t TakeCompletions(nic::QueuePair& queue, SendLog& log, uint32_t most) {
  std::array<nic::TxCompletion, kReapedAtOnce> done;
  const uint32_t count = queue.PollSend(std::span(done).first(most));
  for (uint32_t i = 0; i < count; ++i) {
    // What is behind an error never leaves.
    if (done[i].lost) [[unlikely]] log.Abandon();
    log.Complete(done[i].frames, done[i].hw_clock);
  }
  return count;
}

completion::ClockScale ScaleOf(const RingClock& clock) {
  const DeviceScale& scale = clock.scale();
  return completion::ClockScale::Of(scale.base_raw, scale.base_ns, scale.ns_per_tick_q32,
                                    scale.unused_bits);
}

}  // namespace

nic::TxStatus RingCore::Post(nic::TxFrame& frame, SendRecord* record) {
  return PostNoted(*this, *device.queue, sends, frame.flags, record, [&](uint32_t flags) {
    frame.flags = static_cast<uint16_t>(flags);
    return device.queue->Post(frame);
  });
}

// After `status`, of the first try.
nic::TxStatus RingCore::PostAgain(const nic::TxFrame& frame, nic::TxStatus status) {
  if (status == nic::TxStatus::kFull) {
    Reap(1);
    status = device.queue->Post(frame);
  }
  if (status == nic::TxStatus::kPosted) attention |= kDoorbellOwed;
  if (status == nic::TxStatus::kBroken) LookForErrors();
  return status;
}

nic::TxStatus RingCore::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags,
                                     SendRecord* record) {
  return PostNoted(*this, *device.queue, sends, flags, record, [&](uint32_t with) {
    return device.queue->PostPrepared(prepared, with);
  });
}

// So many segments are worth a completion of their own.
nic::TxStatus RingCore::PostSegments(nic::TxSegments& segments, SendRecord* record) {
  return PostNoted<false>(*this, *device.queue, sends, segments.flags, record,
                          [&](uint32_t flags) {
                            segments.flags = static_cast<uint16_t>(flags);
                            return device.queue->PostSegments(segments);
                          });
}

nic::TxStatus RingCore::PostPaced(nic::TxFrame& frame, SendRecord* record, PacedQueue& by) {
  if (by.queue == nullptr) return nic::TxStatus::kBroken;
  if (frame.key == device.pool_key) frame.key = by.queue->pool_key();
  const nic::TxStatus status =
      PostNoted(*this, *by.queue, by.sends, frame.flags, record, [&](uint32_t flags) {
        frame.flags = static_cast<uint16_t>(flags);
        return by.queue->Post(frame);
      });
  const bool owed = status == nic::TxStatus::kPosted && (frame.flags & nic::kTxMore) != 0;
  if (owed) attention |= kPacedDoorbellOwed;
  by.owed |= owed;
  return status;
}

// By what waits for the doorbell, else by a frame that reaches no wire; where that finds no room,
// with the next Flush().
void RingCore::ChangeWorld() {
  ++host.routes_version;
  if (host.routes_version % nic::TxFront::kVersions == 0) prepared->OutdateAll();
  device.queue->SetEpoch(nic::TxFront::EpochOf(host.routes_version));
}

void RingCore::AskForCompletion() {
  const bool asked = sends.wanted() == 0 || device.queue->SignalLast() ||
                     PostBarrier(*device.queue) != nic::TxStatus::kFull;
  if (asked) attention &= ~uint32_t{kCompletionOwed};
}

void RingCore::FlushPaced() {
  paced->Flush();
  attention &= ~uint32_t{kPacedDoorbellOwed};
}

const nic::QueuePair* RingCore::BrokenQueue() const {
  return device.queue->error() ? device.queue.get() : paced->Broken();
}

void RingCore::Reap(uint32_t most) { ReapInto(*device.queue, sends, most); }

void RingCore::ReapInto(nic::QueuePair& queue, SendLog& log, uint32_t most) {
  while (most != 0 && !queue.SendIdle()) {
    const uint32_t room = std::min(most, kReapedAtOnce);
    const uint32_t count = TakeCompletions(queue, log, room);
    if (count < room) break;
    most -= count;
  }
  // A queue that stopped is told by the next poll, also when nobody waits for a send.
  if (queue.error()) [[unlikely]] attention |= kSendsWanted;
  // What nobody waits for settles here: buffers go back to the pool without a completion, and
  // segments are referred to by one less.
  while (SendRecord* record = log.Settled()) {
    if (record->wants == kWantSegment) {
      if (!tcp::SegmentQueue::TakesWqeQuietly(*record->segment)) return;
      log.Pop();
      continue;
    }
    if (record->wants != kWantNothing) return;
    if (record->buffer != nullptr) packet::BufferPool::ReleaseByOwner(record->buffer);
    log.Pop();
  }
}

void RingCore::LookForErrors() {
  if (device.broken) return;
  LookInto(*device.queue, sends);
  paced->LookForErrors();
  if (BrokenQueue() != nullptr) attention |= kSendsWanted;
}

void RingCore::LookInto(nic::QueuePair& queue, SendLog& log) {
  while (TakeCompletions(queue, log, kReapedAtOnce) == kReapedAtOnce) continue;
  queue.LookForStop();
}

void RingCore::SetDeviceClock(const nic::DeviceClock& device) {
  const uint16_t flags = clock.flags();
  clock.SetDevice(device, options.hw_time == HwTime::kPtp);
  if (clock.flags() != flags) known.Forget();
  known.SetScale(ScaleOf(clock));
  if (links != nullptr) links->SetScale(ScaleOf(clock));
}

// Flows that are known are to be learned once more, for links.
void RingCore::SetLinks(completion::LinkFlows* flows) {
  links = flows;
  links->SetScale(ScaleOf(clock));
  known.Forget();
}

Completion RingCore::Draft(Kind kind) const {
  Completion draft;
  Clear(&draft, kind);
  draft.user_data = options.user_data;
  draft.interface_index = device.ifindex;
  return draft;
}

Completion RingCore::Draft(RingEvent event) const {
  Completion draft = Draft(Kind::kRing);
  draft.event = event;
  return draft;
}

void RingCore::Tell(const Completion& completion) {
  if (kept.empty() && fifo.Room() > 0) {
    Completion* told = Emit(completion.kind);
    *told = completion;
    told->poll_tsc = poll_ticks();
    return;
  }
  kept.push_back(completion);
  attention |= kToldLater;
}

void RingCore::TellFallback() {
  ++tally.counters.fallback_rules;
  Completion news = Draft(RingEvent::kRuleFallback);
  news.text = "the device's table of rules is full: a shared rule stands in";
  Tell(news);
}

uint32_t RingCore::RegisteredKeyOf(const packet::Buffer& buffer) const {
  return registered->KeyOf(buffer.pool);
}

bool RingCore::IsOwn(const Payload& payload) const {
  return payload.buffer->pool == device.pool.get() || registered->NumberOf(payload) != 0;
}

void RingCore::Start(std::unique_ptr<Operation> operation) {
  host.control->Start(std::move(operation));
}

}  // namespace xtreme::engine
