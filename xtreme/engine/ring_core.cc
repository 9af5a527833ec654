// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_core.h"

#include <algorithm>
#include <array>
#include <span>

#include "xtreme/engine/control_thread.h"

namespace xtreme::engine {

nic::TxStatus RingCore::Post(nic::TxFrame& frame, SendRecord* record) {
  if (record != nullptr) {
    if (sends.full()) Reap();
    if (sends.full()) return nic::TxStatus::kFull;
    if (record->wants != kWantNothing) frame.flags |= nic::kTxSignal;
  }
  nic::TxStatus status = device.queue->Post(frame);
  if (status == nic::TxStatus::kFull) {
    Reap(1);
    status = device.queue->Post(frame);
  }
  if (status != nic::TxStatus::kPosted) [[unlikely]] return status;
  if ((frame.flags & nic::kTxMore) != 0) attention |= kDoorbellOwed;
  if (record != nullptr) {
    record->frame = device.queue->posted_frames();
    sends.Add(*record);
    if (record->wants != kWantNothing) attention |= kSendsWanted;
  }
  return status;
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
