// SPDX-License-Identifier: Apache-2.0
//
// TimeWait: connections in TIME-WAIT, a compact record each instead of a connection. RFC 9293
// sections 3.6.1 and 3.10.7.4, RFC 6191, RFC 1337.
//
// The invariants: a record stays for the time the table was made with, or until a newer incarnation
// takes its place; when the table is full the oldest goes (counted). Nothing is allocated after
// construction. The table decides what an arriving segment means; the caller answers. Time is an
// argument. One thread.
#ifndef XTREME_STACK_TCP_TIME_WAIT_H_
#define XTREME_STACK_TCP_TIME_WAIT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <optional>

#include "stack/base/counters.h"
#include "stack/base/intrusive_list.h"
#include "stack/base/time.h"
#include "stack/tcp/demux.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/sequence.h"
#include "stack/wire/address.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {

struct TimeWaitCounters {
  uint64_t entered = 0;
  uint64_t expired = 0;
  uint64_t evicted = 0;
  uint64_t reused = 0;
  uint64_t resets_ignored = 0;
  uint64_t acknowledged = 0;

  static constexpr auto Table() {
    using T = TimeWaitCounters;
    return std::to_array<base::CounterDescriptor<T>>({
        {"time_wait_entered", "connections that came into TIME-WAIT", &T::entered},
        {"time_wait_expired", "connections whose TIME-WAIT was over", &T::expired},
        {"time_wait_evicted", "connections that left TIME-WAIT early because the table was full",
         &T::evicted},
        {"time_wait_reused", "connections whose place a newer SYN took", &T::reused},
        {"time_wait_resets_ignored", "RSTs to connections in TIME-WAIT", &T::resets_ignored},
        {"time_wait_acknowledged", "segments to connections in TIME-WAIT that were answered",
         &T::acknowledged},
    });
  }
};
static_assert(base::DescribesEveryCounter<TimeWaitCounters>());

struct TimeWaitRecord {
  FlowKey key;
  Seq snd_nxt;
  Seq rcv_nxt;
  uint32_t ts_recent = 0;         // the peer's, RFC 7323; where timestamps were in use
  uint32_t timestamp_offset = 0;  // of our own clock
  uint16_t window = 0;            // as it goes into an acknowledgement, scaled
  bool timestamps = false;
  wire::MacAddress peer_mac;

  const FlowKey& flow_key() const { return key; }

  // The table's.
  base::Nanoseconds deadline;
  base::ListHook hook;
};

// Whether a SYN may take the place of `record`. `timestamp` is its TSval, if it has one. RFC 6191
// section 2; without timestamps RFC 9293 section 3.6.1.
bool IsNewerIncarnation(const TimeWaitRecord& record, Seq sequence,
                        std::optional<uint32_t> timestamp);

class TimeWait {
 public:
  struct Options {
    size_t capacity = 16'384;
    // RFC 9293 section 3.4.2 says 2 MSL = 4 minutes; systems in use take one, as this does. On a
    // LAN segments do not live for milliseconds.
    base::Nanoseconds duration = base::Seconds(60);
    uint64_t seed = 0;  // secret and random: of the hash
  };

  explicit TimeWait(const Options& options);
  TimeWait(const TimeWait&) = delete;
  TimeWait& operator=(const TimeWait&) = delete;

  // A record for `key`, its timer running and nothing else filled in; replaces one of the same key
  // and, when the table is full, the oldest.
  TimeWaitRecord& Enter(const FlowKey& key, base::Nanoseconds now);

  TimeWaitRecord* Find(const FlowKey& key) const {
    return size() == 0 ? nullptr : by_key_.Find(key);
  }

  enum class Verdict : uint8_t {
    kIgnore,
    kAcknowledge,  // answer with an acknowledgement from the record
    kReuse,        // a newer incarnation: a listener gets the SYN; if it takes it, Reuse() is due
  };
  // A segment for `record` arrived, by which the record may change.
  Verdict OnSegment(TimeWaitRecord& record, const wire::TcpSegment& segment,
                    base::Nanoseconds now);
  // The newer incarnation has begun, with an ISS after `record.snd_nxt` (RFC 9293 section 3.6.1):
  // the record is gone.
  void Reuse(TimeWaitRecord& record);

  void Remove(TimeWaitRecord& record);
  // Removes those whose time is over, up to `most` of them.
  void Expire(base::Nanoseconds now, uint32_t most);
  base::Nanoseconds NextDeadline() {
    return by_age_.empty() ? base::kNever : by_age_.front().deadline;
  }

  size_t size() const { return by_key_.size(); }
  const TimeWaitCounters& counters() const { return counters_; }
  size_t memory_bytes() const {
    return options_.capacity * sizeof(TimeWaitRecord) + by_key_.memory_bytes();
  }
  // Of the records.
  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(records_.get(), options_.capacity));
  }

 private:
  using List = base::IntrusiveList<TimeWaitRecord, &TimeWaitRecord::hook>;

  Verdict OnSyn(const TimeWaitRecord& record, const wire::TcpSegment& segment);
  void Restart(TimeWaitRecord& record, base::Nanoseconds now);

  const Options options_;
  std::unique_ptr<TimeWaitRecord[]> records_;
  Demux<TimeWaitRecord> by_key_;
  List by_age_;  // one duration, so this is the order of deadlines
  List free_;
  TimeWaitCounters counters_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_TIME_WAIT_H_
