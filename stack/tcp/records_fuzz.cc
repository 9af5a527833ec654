// SPDX-License-Identifier: Apache-2.0
//
// The SYN queue and the TIME-WAIT table under any order of arrivals and times, three bytes of input
// each, against maps of what they should hold: a record is found exactly as long as it waits, no
// deadline is missed or early, capacities hold, a SYN-ACK is never sent more often than allowed.
#include <cstdint>
#include <cstdlib>
#include <map>

#include "stack/tcp/syn_queue.h"
#include "stack/tcp/time_wait.h"

namespace xtreme::tcp {
namespace {

constexpr size_t kCapacity = 6;
constexpr uint32_t kResends = 2;

void Require(bool holds) {
  if (!holds) std::abort();
}

FlowKey Key(uint8_t port) {
  return FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 80},
                     {wire::Ipv4Address(198, 51, 100, 7), port}, 0);
}
uint8_t PortOf(const FlowKey& key) { return static_cast<uint8_t>(key.remote().port); }

class SynTrial {
 public:
  void Step(const uint8_t* step, base::Nanoseconds now) {
    const uint8_t port = step[1] % 10;
    SynRecord* const record = queue_.Find(Key(port));
    Require((record != nullptr) == waiting_.contains(port));
    if (record != nullptr && step[0] % 2 == 0) {
      queue_.Remove(*record);
      waiting_.erase(port);
    } else if (record == nullptr) {
      const bool inserted = queue_.Insert(Key(port), now) != nullptr;
      Require(inserted == (waiting_.size() < kCapacity));
      if (inserted) waiting_[port] = {now + base::Seconds(1), 0};
    }
  }

  void Expire(base::Nanoseconds now) {
    queue_.Expire(
        now, UINT32_MAX, [&](SynRecord& record) { OnResend(PortOf(record.key), now); },
        [&](const SynRecord& record) { OnGivenUp(PortOf(record.key), now); });
    base::Nanoseconds next = base::kNever;
    for (const auto& [port, wait] : waiting_) next = base::Earlier(next, wait.deadline);
    Require(queue_.NextDeadline() == next && next > now);
    Require(queue_.size() == waiting_.size());
  }

 private:
  struct Wait {
    base::Nanoseconds deadline;
    uint32_t resends = 0;
  };

  void OnResend(uint8_t port, base::Nanoseconds now) {
    Wait& wait = waiting_.at(port);
    Require(wait.deadline <= now && wait.resends < kResends);
    ++wait.resends;
    wait.deadline = now + base::Seconds(int64_t{1} << wait.resends);
  }
  void OnGivenUp(uint8_t port, base::Nanoseconds now) {
    Require(waiting_.at(port).deadline <= now && waiting_.at(port).resends == kResends);
    waiting_.erase(port);
  }

  SynQueue queue_{{.capacity = kCapacity, .resend_after = base::Seconds(1), .resends = kResends}};
  std::map<uint8_t, Wait> waiting_;
};

class TimeWaitTrial {
 public:
  void Step(const uint8_t* step, base::Nanoseconds now) {
    const uint8_t port = step[1] % 10;
    TimeWaitRecord* const record = table_.Find(Key(port));
    Require((record != nullptr) == deadlines_.contains(port));
    if (record == nullptr) return Enter(port, now);
    wire::TcpSegment segment;
    segment.sequence = 1000u + step[2] % 4;
    segment.flags = step[0];
    segment.payload_bytes = step[2] >> 7;
    const bool syn = (step[0] & (wire::kTcpSyn | wire::kTcpAck | wire::kTcpRst)) == wire::kTcpSyn;
    const bool fin = segment.Has(wire::kTcpFin) && !segment.Has(wire::kTcpRst) && !syn;
    switch (table_.OnSegment(*record, segment, now)) {
      case TimeWait::Verdict::kReuse:
        Require(syn && segment.sequence >= 1002 && record->snd_nxt == Seq(port));
        if (segment.payload_bytes != 0) break;  // Nobody takes it.
        table_.Reuse(*record);
        deadlines_.erase(port);
        break;
      case TimeWait::Verdict::kAcknowledge:
        if (fin) deadlines_[port] = now + base::Seconds(4);
        break;
      case TimeWait::Verdict::kIgnore:
        Require(!fin && !syn);
        break;
    }
  }

  void Expire(base::Nanoseconds now) {
    table_.Expire(now, UINT32_MAX);
    std::erase_if(deadlines_, [&](const auto& entry) { return entry.second <= now; });
    base::Nanoseconds next = base::kNever;
    for (const auto& [port, deadline] : deadlines_) next = base::Earlier(next, deadline);
    Require(table_.NextDeadline() == next && table_.size() == deadlines_.size());
  }

 private:
  void Enter(uint8_t port, base::Nanoseconds now) {
    TimeWaitRecord& record = table_.Enter(Key(port), now);
    record.snd_nxt = Seq(port);
    record.rcv_nxt = Seq(1002);
    deadlines_[port] = now + base::Seconds(4);
    if (deadlines_.size() <= kCapacity) return;
    // The one that left was the oldest.
    base::Nanoseconds oldest = base::kNever;
    for (const auto& [other, deadline] : deadlines_) oldest = base::Earlier(oldest, deadline);
    const size_t left = std::erase_if(deadlines_, [&](const auto& entry) {
      return entry.second == oldest && table_.Find(Key(entry.first)) == nullptr;
    });
    Require(left == 1);
  }

  TimeWait table_{{.capacity = kCapacity, .duration = base::Seconds(4)}};
  std::map<uint8_t, base::Nanoseconds> deadlines_;
};

}  // namespace
}  // namespace xtreme::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  xtreme::tcp::SynTrial syns;
  xtreme::tcp::TimeWaitTrial time_waits;
  xtreme::base::Nanoseconds now = xtreme::base::Seconds(1000);
  for (size_t i = 0; i + 3 <= length; i += 3) {
    now += xtreme::base::Milliseconds(bytes[i + 2] * 4);
    syns.Expire(now);
    time_waits.Expire(now);
    syns.Step(bytes + i, now);
    time_waits.Step(bytes + i, now);
  }
  return 0;
}
