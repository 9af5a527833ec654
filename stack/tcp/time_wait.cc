// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/time_wait.h"

#include <memory>

namespace xtreme::tcp {

bool IsNewerIncarnation(const TimeWaitRecord& record, Seq sequence,
                        std::optional<uint32_t> timestamp) {
  // RCV.NXT is behind the peer's FIN, the last number it used.
  const bool later_sequence = sequence >= record.rcv_nxt;
  if (!timestamp) return later_sequence;
  if (!record.timestamps) return true;
  if (*timestamp == record.ts_recent) return later_sequence;
  return IsOlderTimestamp(record.ts_recent, *timestamp);
}

TimeWait::TimeWait(const Options& options)
    : options_(options),
      records_(std::make_unique<TimeWaitRecord[]>(options.capacity)),
      by_key_(options.capacity, options.seed) {
  for (size_t i = 0; i < options.capacity; ++i) free_.PushBack(records_[i]);
}

TimeWaitRecord& TimeWait::Enter(const FlowKey& key, base::Nanoseconds now) {
  if (TimeWaitRecord* const same = Find(key)) Remove(*same);
  if (free_.empty()) {
    ++counters_.evicted;
    Remove(by_age_.front());
  }
  TimeWaitRecord& record = *free_.PopFront();
  std::destroy_at(&record);
  std::construct_at(&record);
  record.key = key;
  by_key_.Attach(record);
  Restart(record, now);
  ++counters_.entered;
  return record;
}

void TimeWait::Restart(TimeWaitRecord& record, base::Nanoseconds now) {
  record.hook.Unlink();
  record.deadline = base::DeadlineAfter(now, options_.duration);
  by_age_.PushBack(record);
}

TimeWait::Verdict TimeWait::OnSegment(TimeWaitRecord& record, const wire::TcpSegment& segment,
                                      base::Nanoseconds now) {
  if (segment.Has(wire::kTcpRst)) {
    // One that would end the wait could let an old duplicate through: RFC 1337 section 3, F1.
    ++counters_.resets_ignored;
    return Verdict::kIgnore;
  }
  if (segment.Has(wire::kTcpSyn) && !segment.Has(wire::kTcpAck)) {
    return OnSyn(record, segment);
  }
  // An acknowledgement without anything, where it is expected, is the peer's last word: no answer.
  const bool empty = segment.SequenceLength() == 0;
  if (empty && Seq(segment.sequence) == record.rcv_nxt) return Verdict::kIgnore;
  // Only the FIN again starts the wait again: RFC 9293 section 3.10.7.4, eighth check.
  if (segment.Has(wire::kTcpFin)) Restart(record, now);
  ++counters_.acknowledged;
  return Verdict::kAcknowledge;
}

TimeWait::Verdict TimeWait::OnSyn(const TimeWaitRecord& record,
                                  const wire::TcpSegment& segment) {
  std::optional<uint32_t> timestamp;
  if (segment.options.timestamps) timestamp = segment.options.timestamps->value;
  if (!IsNewerIncarnation(record, Seq(segment.sequence), timestamp)) {
    ++counters_.acknowledged;
    return Verdict::kAcknowledge;
  }
  return Verdict::kReuse;
}

void TimeWait::Reuse(TimeWaitRecord& record) {
  ++counters_.reused;
  Remove(record);
}

void TimeWait::Remove(TimeWaitRecord& record) {
  by_key_.Detach(record);
  record.hook.Unlink();
  free_.PushFront(record);
}

void TimeWait::Expire(base::Nanoseconds now, uint32_t most) {
  for (; most > 0 && !by_age_.empty() && by_age_.front().deadline <= now; --most) {
    ++counters_.expired;
    Remove(by_age_.front());
  }
}

}  // namespace xtreme::tcp
