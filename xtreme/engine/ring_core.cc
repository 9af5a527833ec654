// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_core.h"

#include <algorithm>
#include <array>
#include <span>

#include "xtreme/engine/control_thread.h"

namespace xtreme::engine {

namespace {

// Posts by `post(flags)`, reaping once when the queue is full, and notes what is wanted of it.
template <typename PostFrame>
nic::TxStatus PostNoted(RingCore& core, uint32_t flags, SendRecord* record, PostFrame post) {
  if (record != nullptr) {
    if (core.sends.full()) core.Reap();
    if (core.sends.full()) return nic::TxStatus::kFull;
    if (record->wants != kWantNothing) flags |= nic::kTxSignal;
  }
  nic::TxStatus status = post(flags);
  if (status == nic::TxStatus::kFull) {
    core.Reap(1);
    status = post(flags);
  }
  if (status != nic::TxStatus::kPosted) [[unlikely]] return status;
  if ((flags & nic::kTxMore) != 0) core.attention |= kDoorbellOwed;
  if (record != nullptr) {
    record->frame = core.device.queue->posted_frames();
    core.sends.Add(*record);
    if (record->wants != kWantNothing) core.attention |= kSendsWanted;
  }
  return status;
}

}  // namespace

nic::TxStatus RingCore::Post(nic::TxFrame& frame, SendRecord* record) {
  return PostNoted(*this, frame.flags, record, [&](uint32_t flags) {
    frame.flags = static_cast<uint16_t>(flags);
    return device.queue->Post(frame);
  });
}

nic::TxStatus RingCore::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags,
                                     SendRecord* record) {
  return PostNoted(*this, flags, record, [&](uint32_t with) {
    return device.queue->PostPrepared(prepared, with);
  });
}

nic::TxStatus RingCore::PostSegments(nic::TxSegments& segments, SendRecord* record) {
  return PostNoted(*this, segments.flags, record, [&](uint32_t flags) {
    segments.flags = static_cast<uint16_t>(flags);
    return device.queue->PostSegments(segments);
  });
}

void RingCore::Reap(uint32_t most) {
  std::array<nic::TxCompletion, 16> done;
  while (most != 0 && !device.queue->SendIdle()) {
    const size_t room = std::min<size_t>(most, done.size());
    const uint32_t count = device.queue->PollSend(std::span(done).first(room));
    for (uint32_t i = 0; i < count; ++i) sends.Complete(done[i].frames, done[i].hw_clock);
    if (count < room) break;
    most -= count;
  }
  // A queue that stopped is told by the next poll, also when nobody waits for a send.
  if (!device.broken && device.queue->error()) [[unlikely]] attention |= kSendsWanted;
  // What nobody waits for settles here: buffers go back to the pool without a completion.
  while (SendRecord* record = sends.Settled()) {
    if (record->wants != kWantNothing) return;
    if (record->buffer != nullptr) packet::BufferPool::ReleaseByOwner(record->buffer);
    sends.Pop();
  }
}

void RingCore::Tell(const Completion& completion) {
  if (kept.empty() && fifo.Room() > 0) {
    *Emit(completion.kind) = completion;
    return;
  }
  kept.push_back(completion);
  attention |= kToldLater;
}

void RingCore::TellFallback() {
  ++tally.counters.fallback_rules;
  Completion news;
  Clear(&news, Kind::kRing);
  news.event = RingEvent::kRuleFallback;
  news.user_data = options.user_data;
  news.interface_index = device.ifindex;
  news.text = "the device's table of rules is full: a shared rule stands in";
  Tell(news);
}

void RingCore::Start(std::unique_ptr<Operation> operation) {
  host.control->Start(std::move(operation));
}

}  // namespace xtreme::engine
