// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/neighbour_cache.h"

#include <algorithm>
#include <utility>

namespace xtreme::ip {

using base::Nanoseconds;

NeighbourCache::NeighbourCache(const Options& options)
    : options_(options),
      entries_(std::make_unique<Entry[]>(options.entries)),
      by_address_(options.entries) {}

NeighbourCache::Resolution NeighbourCache::Resolve(wire::Ipv4Address next_hop, Nanoseconds now) {
  Entry* entry = FindOrAdd(next_hop, now);
  if (entry == nullptr) return {.status = Status::kTableFull};
  entry->used = true;
  if (entry->state == State::kFailed) return {.status = Status::kUnreachable};
  if (entry->state == State::kIncomplete) return {.status = Status::kPending};
  return {.status = Status::kReachable, .mac = entry->mac};
}

NeighbourCache::Resolution NeighbourCache::ResolveToSend(wire::Ipv4Address next_hop,
                                                         Nanoseconds now) {
  Entry* entry = Find(next_hop);
  // Its last request is as long ago as requests are apart. What waited is given back first.
  const bool failed = entry != nullptr && entry->state == State::kFailed;
  if (failed && !entry->lost_due && !entry->Waits()) StartAsking(*entry, now);
  return Resolve(next_hop, now);
}

std::optional<wire::MacAddress> NeighbourCache::ResolveFrom(wire::Ipv4Address next_hop,
                                                            wire::MacAddress seed,
                                                            Nanoseconds now) {
  Entry* entry = Find(next_hop);
  if (entry == nullptr) {
    Entry* const free = FindFree();
    if (free == nullptr || seed.IsGroup() || seed.IsZero()) return std::nullopt;
    entry = Add(next_hop, free);
    entry->mac = entry->seed = seed;
    Believe(*entry, now);
  } else {
    Adopt(next_hop, seed, now);
  }
  entry->used = true;
  const bool known = entry->state == State::kReachable || entry->state == State::kProbing;
  if (!known) return std::nullopt;
  return entry->mac;
}

NeighbourCache::Resolution NeighbourCache::Enqueue(wire::Ipv4Address next_hop, Packet* packet,
                                                   Nanoseconds now) {
  const Resolution resolution = ResolveToSend(next_hop, now);
  if (resolution.status == Status::kTableFull || resolution.status == Status::kUnreachable) {
    return resolution;
  }
  Entry& entry = *Find(next_hop);
  // What waits goes first, also when the answer has just come.
  if (resolution.status == Status::kReachable && !entry.Waits()) return resolution;
  if (entry.waiting >= options_.queue_packets) {
    ++counters_.queue_full;
    return {.status = Status::kQueueFull};
  }
  Append(entry, packet);
  return {.status = Status::kPending};
}

size_t NeighbourCache::QueueRoom(wire::Ipv4Address next_hop) const {
  const Entry* entry = Find(next_hop);
  if (entry == nullptr || entry->state == State::kFailed) return 0;
  return options_.queue_packets - entry->waiting;
}

bool NeighbourCache::Pin(wire::Ipv4Address next_hop, Nanoseconds now) {
  Entry* entry = FindOrAdd(next_hop, now);
  if (entry == nullptr) return false;
  entry->pinned = true;
  return true;
}

void NeighbourCache::Unpin(wire::Ipv4Address next_hop) {
  if (Entry* entry = Find(next_hop)) entry->pinned = false;
}

void NeighbourCache::OnArp(const wire::ArpView& arp, Nanoseconds now) {
  const wire::Ipv4Address sender = arp.sender();
  const bool for_us = arp.target() == options_.address;
  if (arp.sender_mac().IsGroup() || arp.sender_mac().IsZero() ||
      (!sender.IsUnicastHost() && !sender.IsAny()) || sender == options_.address) {
    ++counters_.ignored;
    return;
  }
  Entry* entry = sender.IsAny() ? nullptr : Find(sender);
  const bool answers =
      for_us && options_.answer_requests && arp.operation() == wire::ArpOperation::kRequest;
  if (entry == nullptr && !answers) ++counters_.ignored;
  // RFC 826, "Packet Reception": a known sender is updated, whatever the packet was about.
  if (entry != nullptr) Learn(*entry, arp.sender_mac(), now);
  if (!answers) return;
  if (answers_waiting_ == kMaxAnswers) {
    ++counters_.answers_dropped;
    return;
  }
  answers_[answers_waiting_++] = {.operation = wire::ArpOperation::kReply,
                                  .sender_mac = options_.mac,
                                  .sender = options_.address,
                                  .target_mac = arp.sender_mac(),
                                  .target = sender};
  has_work_ = true;
}

bool NeighbourCache::Confirm(wire::Ipv4Address address, wire::MacAddress mac, Nanoseconds now) {
  Entry* entry = Find(address);
  if (entry == nullptr || mac.IsGroup() || mac.IsZero()) {
    ++counters_.ignored;
    return false;
  }
  Learn(*entry, mac, now);
  return true;
}

bool NeighbourCache::Adopt(wire::Ipv4Address address, wire::MacAddress seed, Nanoseconds now) {
  Entry* entry = Find(address);
  if (entry == nullptr || entry->seed == seed || seed.IsGroup() || seed.IsZero()) return false;
  entry->seed = seed;
  Learn(*entry, seed, now);
  return true;
}

void NeighbourCache::Invalidate(wire::Ipv4Address address, Nanoseconds now) {
  Entry* entry = Find(address);
  if (entry == nullptr || entry->state == State::kIncomplete) return;
  if (!entry->used && entry->Idle()) return Free(*entry);
  StartAsking(*entry, now);
}

NeighbourCache::Action NeighbourCache::Next(Nanoseconds now) {
  if (now >= deadline_) FireDeadlines(now);
  if (!has_work_) return {};
  if (answers_waiting_ > 0) return Answer();
  for (size_t i = 0; i < options_.entries; ++i) {
    const Action action = ActionOf(entries_[i]);
    if (action.kind != Action::Kind::kNone) return action;
  }
  has_work_ = false;
  return {};
}

NeighbourCache::Entry* NeighbourCache::FindOrAdd(wire::Ipv4Address address, Nanoseconds now) {
  if (Entry* known = Find(address)) return known;
  Entry* entry = TakeFree();
  if (entry == nullptr) {
    ++counters_.table_full;
    return nullptr;
  }
  StartAsking(*Add(address, entry), now);
  return entry;
}

NeighbourCache::Entry* NeighbourCache::Add(wire::Ipv4Address address, Entry* free) {
  *free = Entry{.address = address};
  by_address_.Insert({address.value()}, free);
  return free;
}

NeighbourCache::Entry* NeighbourCache::FindFree() {
  for (size_t i = 0; i < options_.entries; ++i) {
    if (entries_[i].state == State::kFree) return &entries_[i];
  }
  return nullptr;
}

// A free entry, or else the one that nobody uses and that expires first.
NeighbourCache::Entry* NeighbourCache::TakeFree() {
  if (Entry* const free = FindFree()) return free;
  Entry* oldest = nullptr;
  for (size_t i = 0; i < options_.entries; ++i) {
    Entry& entry = entries_[i];
    if (!entry.Idle() || entry.state == State::kIncomplete) continue;
    if (oldest == nullptr || entry.expiry < oldest->expiry) oldest = &entry;
  }
  if (oldest != nullptr) {
    ++counters_.evicted;
    Free(*oldest);
  }
  return oldest;
}

void NeighbourCache::Free(Entry& entry) {
  by_address_.Erase({entry.address.value()});
  entry = Entry{};
}

// Nobody uses it.
void NeighbourCache::Forget(Entry& entry) {
  counters_.unused += !entry.seed.IsZero();
  Free(entry);
}

void NeighbourCache::Append(Entry& entry, Packet* packet) {
  packet->next = nullptr;
  (entry.first == nullptr ? entry.first : entry.last->next) = packet;
  entry.last = packet;
  ++entry.waiting;
}

NeighbourCache::Packet* NeighbourCache::TakeFirst(Entry& entry) {
  Packet* packet = entry.first;
  entry.first = packet->next;
  --entry.waiting;
  return packet;
}

void NeighbourCache::StartAsking(Entry& entry, Nanoseconds now) {
  entry.state = State::kIncomplete;
  entry.expiry = base::kNever;
  entry.requests_left = static_cast<uint8_t>(options_.requests);
  Ask(entry, now);
}

void NeighbourCache::Learn(Entry& entry, wire::MacAddress mac, Nanoseconds now) {
  const bool known = entry.state == State::kReachable || entry.state == State::kProbing;
  if (!known) ++counters_.resolved;
  if (known && entry.mac != mac) ++counters_.changed;
  if (!known || entry.mac != mac || entry.Waits()) has_work_ = true;
  entry.resolved_due |= !known || entry.mac != mac;
  entry.lost_due = false;
  entry.request_due = false;
  entry.mac = mac;
  entry.used = false;
  Believe(entry, now);
}

void NeighbourCache::Believe(Entry& entry, Nanoseconds now) {
  entry.state = State::kReachable;
  entry.expiry = base::DeadlineAfter(now, options_.lifetime);
  Arm(entry, entry.expiry - options_.probe_ahead);
}

void NeighbourCache::OnDeadline(Entry& entry, Nanoseconds now) {
  entry.deadline = base::kNever;
  switch (entry.state) {
    case State::kFree:
      return;
    case State::kReachable:
      if (!entry.used && entry.Idle()) return Forget(entry);
      entry.state = State::kProbing;
      entry.requests_left = static_cast<uint8_t>(options_.requests);
      return Ask(entry, now);
    case State::kProbing:
      // Whoever does not answer a unicast may have moved: broadcasts, once the entry has expired.
      if (now >= entry.expiry) return StartAsking(entry, now);
      if (entry.requests_left == 0) return Arm(entry, entry.expiry);
      return Ask(entry, now);
    case State::kIncomplete:
      return entry.requests_left == 0 ? Fail(entry, now) : Ask(entry, now);
    case State::kFailed: {
      // Who knows of it still may be sent to: it is asked for as long as it is.
      const bool goes_on = entry.pinned || (!entry.seed.IsZero() && entry.used);
      entry.used = false;
      return goes_on ? StartAsking(entry, now) : Forget(entry);
    }
  }
}

void NeighbourCache::Ask(Entry& entry, Nanoseconds now) {
  --entry.requests_left;
  entry.request_due = true;
  has_work_ = true;
  Arm(entry, base::DeadlineAfter(now, options_.request_interval));
}

void NeighbourCache::Fail(Entry& entry, Nanoseconds now) {
  ++counters_.failed;
  entry.state = State::kFailed;
  entry.lost_due = true;
  entry.request_due = false;
  entry.resolved_due = false;
  has_work_ = true;
  entry.expiry = base::DeadlineAfter(now, options_.failure_hold);
  Arm(entry, entry.expiry);
}

void NeighbourCache::Arm(Entry& entry, Nanoseconds deadline) {
  const bool was_earliest = entry.deadline == deadline_ && entry.deadline != base::kNever;
  entry.deadline = deadline;
  deadline_ = base::Earlier(deadline_, deadline);
  if (was_earliest && deadline > deadline_) FindEarliestDeadline();
}

void NeighbourCache::FindEarliestDeadline() {
  deadline_ = base::kNever;
  for (size_t i = 0; i < options_.entries; ++i) {
    deadline_ = base::Earlier(deadline_, entries_[i].deadline);
  }
}

void NeighbourCache::FireDeadlines(Nanoseconds now) {
  deadline_ = base::kNever;
  for (size_t i = 0; i < options_.entries; ++i) {
    Entry& entry = entries_[i];
    if (entry.state == State::kFree) continue;
    if (now >= entry.deadline) OnDeadline(entry, now);
    deadline_ = base::Earlier(deadline_, entry.deadline);
  }
}

NeighbourCache::Action NeighbourCache::ActionOf(Entry& entry) {
  if (entry.state == State::kFree) return {};
  if (entry.resolved_due) {
    entry.resolved_due = false;
    return {.kind = Action::Kind::kResolved, .address = entry.address, .mac = entry.mac};
  }
  if (entry.lost_due) {
    entry.lost_due = false;
    // Where it was is told once.
    const wire::MacAddress before = std::exchange(entry.mac, wire::MacAddress());
    return {.kind = Action::Kind::kLost, .address = entry.address, .mac = before};
  }
  if (entry.request_due) return Request(entry);
  if (!entry.Waits() || entry.state == State::kIncomplete) return {};
  const bool failed = entry.state == State::kFailed;
  return {.kind = failed ? Action::Kind::kUnreachable : Action::Kind::kTransmit,
          .address = entry.address,
          .mac = entry.mac,
          .packet = TakeFirst(entry)};
}

NeighbourCache::Action NeighbourCache::Request(Entry& entry) {
  entry.request_due = false;
  const bool unicast = entry.state == State::kProbing;
  ++(unicast ? counters_.probes : counters_.requests);
  return {.kind = Action::Kind::kSendArp,
          .address = entry.address,
          .mac = unicast ? entry.mac : wire::MacAddress::Broadcast(),
          .arp = {.operation = wire::ArpOperation::kRequest,
                  .sender_mac = options_.mac,
                  .sender = options_.address,
                  .target = entry.address}};
}

NeighbourCache::Action NeighbourCache::Answer() {
  const wire::ArpRepr arp = answers_[0];
  std::move(answers_.begin() + 1, answers_.begin() + answers_waiting_, answers_.begin());
  --answers_waiting_;
  ++counters_.answers;
  return {.kind = Action::Kind::kSendArp, .address = arp.target, .mac = arp.target_mac, .arp = arp};
}

}  // namespace xtreme::ip
