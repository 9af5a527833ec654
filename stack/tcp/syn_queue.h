// SPDX-License-Identifier: Apache-2.0
//
// SynQueue: connections in SYN-RECEIVED, a compact record each instead of a connection. RFC 9293
// section 3.10.7.2, RFC 4987.
//
// The invariants: no SYN allocates; a record is found by its flow as long as it waits; SYN-ACKs are
// sent again after a time that doubles, and given up after a fixed number. When the queue is full
// the listener answers with a cookie or not at all. Time is an argument. One thread.
#ifndef XTREME_STACK_TCP_SYN_QUEUE_H_
#define XTREME_STACK_TCP_SYN_QUEUE_H_

#include <algorithm>
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

namespace xtreme::tcp {

struct SynQueueCounters {
  uint64_t queued = 0;
  uint64_t full = 0;
  uint64_t resent = 0;
  uint64_t deferred = 0;
  uint64_t given_up = 0;

  static constexpr auto Table() {
    using S = SynQueueCounters;
    return std::to_array<base::CounterDescriptor<S>>({
        {"syns_queued", "SYNs queued", &S::queued},
        {"syn_queue_full", "SYNs not queued because the queue was full", &S::full},
        {"syn_acks_resent", "SYN-ACKs due again because nobody answered", &S::resent},
        {"handshakes_deferred",
         "handshakes that were done but for data that the listener waits for", &S::deferred},
        {"handshakes_given_up", "SYNs dropped because nobody answered at all", &S::given_up},
    });
  }
};
static_assert(base::DescribesEveryCounter<SynQueueCounters>());

// What is known of a peer from its SYN, and what was answered.
struct SynRecord {
  FlowKey key;
  uint64_t listener = 0;  // the owner's word for whose it is
  Seq irs;
  Seq iss;
  uint32_t timestamp = 0;         // TSval of the SYN
  uint32_t timestamp_offset = 0;  // of our own clock
  uint16_t mss = 536;             // what the peer takes; RFC 9293 section 3.7.1's default
  uint16_t window = 0;            // of the SYN: never scaled
  std::optional<uint8_t> window_scale;
  bool sack_permitted = false;
  bool timestamps = false;
  bool cookie = false;  // not of the queue: the answer's numbers remember it
  wire::MacAddress peer_mac;  // where the SYN came from, so the answer needs no neighbour
  wire::MacAddress local_mac;  // where it was sent to
  bool answered_again = false;  // its SYN came again
  // It was acknowledged and waits for data until so many of its timers have expired; 0: it was not.
  uint8_t deferrals = 0;
  base::Nanoseconds acknowledged_after{0};  // and then; 0: nobody knows

  const FlowKey& flow_key() const { return key; }

  // The queue's.
  uint8_t resends = 0;
  base::Nanoseconds first_sent;
  base::Nanoseconds deadline = base::kNever;
  base::ListHook hook;
};

class SynQueue {
 public:
  static constexpr size_t kMaxResends = 7;

  struct Options {
    size_t capacity = 1024;
    base::Nanoseconds resend_after = base::Seconds(1);  // RFC 6298 section 2.1; doubles
    uint32_t resends = 5;                               // at most kMaxResends
    uint64_t seed = 0;  // secret and random: of the hash
  };

  explicit SynQueue(const Options& options);
  SynQueue(const SynQueue&) = delete;
  SynQueue& operator=(const SynQueue&) = delete;

  SynRecord* Find(const FlowKey& key) const {
    return size() == 0 ? nullptr : by_key_.Find(key);
  }

  // A record for `key`, which has none, with its timer running and nothing else filled in; null
  // when the queue is full (counted).
  SynRecord* Insert(const FlowKey& key, base::Nanoseconds now);

  // The handshake ended, one way or the other.
  void Remove(SynRecord& record);

  // It was acknowledged at `now`, and is to wait for data until `deferrals` timers have expired.
  void Defer(SynRecord& record, uint8_t deferrals, base::Nanoseconds now);

  // Calls `resend(SynRecord&)` for each whose SYN-ACK is due again, and `give_up(const SynRecord&)`
  // for each that waited long enough, which is then removed; up to `most` in all. Neither may
  // change the queue.
  template <typename Resend, typename GiveUp>
  void Expire(base::Nanoseconds now, uint32_t most, Resend&& resend, GiveUp&& give_up) {
    if (size() == 0) return;
    for (; most > 0; --most) {
      SynRecord* const record = NextDue(now);
      if (record == nullptr) return;
      if (record->resends >= std::max<uint32_t>(options_.resends, record->deferrals)) {
        ++counters_.given_up;
        give_up(static_cast<const SynRecord&>(*record));
        Remove(*record);
        continue;
      }
      // Who waits for data asks for it with the last of its timers.
      const bool waits = record->resends + 1 < record->deferrals;
      ++record->resends;
      Schedule(*record, now);
      if (waits) continue;
      ++counters_.resent;
      resend(*record);
    }
  }
  base::Nanoseconds NextDeadline() {
    return size() == 0 ? base::kNever : EarliestDeadline();
  }

  // Removes those of which `leaves(const SynRecord&)` says so: their listener closed. Looks at each
  // that waits.
  template <typename Leaves>
  void RemoveIf(Leaves&& leaves) {
    for (List& list : waiting_) {
      for (auto at = list.begin(); at != list.end();) {
        SynRecord& record = *at++;
        if (leaves(static_cast<const SynRecord&>(record))) Remove(record);
      }
    }
  }

  size_t size() const { return by_key_.size(); }
  bool full() const { return size() == options_.capacity; }
  const SynQueueCounters& counters() const { return counters_; }
  size_t memory_bytes() const {
    return options_.capacity * sizeof(SynRecord) + by_key_.memory_bytes();
  }
  // Of the records.
  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(records_.get(), options_.capacity));
  }

 private:
  using List = base::IntrusiveList<SynRecord, &SynRecord::hook>;

  base::Nanoseconds EarliestDeadline();  // Of some.
  SynRecord* NextDue(base::Nanoseconds now);
  void Schedule(SynRecord& record, base::Nanoseconds now);

  const Options options_;
  std::unique_ptr<SynRecord[]> records_;
  Demux<SynRecord> by_key_;
  List free_;
  // By how often they were resent: each list has one time to wait, so it is in order of deadlines.
  std::array<List, kMaxResends + 1> waiting_;
  SynQueueCounters counters_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SYN_QUEUE_H_
