// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/syn_queue.h"

#include <algorithm>
#include <new>

namespace xtreme::tcp {
namespace {

SynQueue::Options WithinLimits(SynQueue::Options options) {
  options.resends = std::min<uint32_t>(options.resends, SynQueue::kMaxResends);
  return options;
}

}  // namespace

SynQueue::SynQueue(const Options& options)
    : options_(WithinLimits(options)),
      records_(std::make_unique<SynRecord[]>(options.capacity)),
      by_key_(options.capacity, options.seed) {
  for (size_t i = 0; i < options.capacity; ++i) free_.PushBack(records_[i]);
}

SynRecord* SynQueue::Insert(const FlowKey& key, base::Nanoseconds now) {
  SynRecord* const record = free_.PopFront();
  if (record == nullptr) {
    ++counters_.full;
    return nullptr;
  }
  // The hook of a record in no list is as a new one's: everything else is written.
  std::destroy_at(record);
  new (record) SynRecord;  // construct_at() would clear all of it before.
  record->key = key;
  record->first_sent = now;
  by_key_.Attach(*record);
  Schedule(*record, now);
  ++counters_.queued;
  return record;
}

void SynQueue::Remove(SynRecord& record) {
  by_key_.Detach(record);
  record.hook.Unlink();
  record.deadline = base::kNever;
  free_.PushFront(record);
}

void SynQueue::Defer(SynRecord& record, uint8_t deferrals, base::Nanoseconds now) {
  // Karn: of two SYN-ACKs nobody knows which was acknowledged.
  const bool first = record.deferrals == 0;
  const bool measured = first && record.resends == 0 && !record.answered_again;
  if (measured) record.acknowledged_after = now - record.first_sent;
  record.deferrals = std::min<uint8_t>(deferrals, kMaxResends);
  counters_.deferred += first;
}

void SynQueue::Schedule(SynRecord& record, base::Nanoseconds now) {
  record.hook.Unlink();
  record.deadline = now + options_.resend_after * (int64_t{1} << record.resends);
  waiting_[record.resends].PushBack(record);
}

SynRecord* SynQueue::NextDue(base::Nanoseconds now) {
  for (List& list : waiting_) {
    if (!list.empty() && list.front().deadline <= now) return &list.front();
  }
  return nullptr;
}

base::Nanoseconds SynQueue::EarliestDeadline() {
  base::Nanoseconds next = base::kNever;
  for (List& list : waiting_) {
    if (!list.empty()) next = base::Earlier(next, list.front().deadline);
  }
  return next;
}

}  // namespace xtreme::tcp
