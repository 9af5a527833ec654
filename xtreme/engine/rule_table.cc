// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/rule_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/base/small_hash_map.h"
#include "stack/wire/ipv4.h"

namespace xtreme::engine {
namespace {

// Lower wins: those of connections that moved stand before the exact rules of the rings that they
// moved from, and these before those of whole addresses and the shared one. Of two rules of one
// priority whose masks differ a card takes the one whose mask it had first, and never the narrower.
constexpr uint16_t kMovedPriority = 0;
constexpr uint16_t kExactPriority = 1;
constexpr uint16_t kWholePriority = 2;
constexpr uint16_t kFallbackPriority = 2;

nic::FlowMatch WithoutPorts(nic::FlowMatch match) {
  match.source_ip.reset();
  match.source_port.reset();
  match.destination_port.reset();
  match.destination_port_mask = 0xFFFF;
  return match;
}

// The rules of groups and broadcast are all of one table, which is behind those that share.
bool IsOfGroup(const nic::FlowMatch& match) { return match.destination_mac.IsGroup(); }

// Of a segment the kernel may have no copy: it knows no such connection, and resets it.
bool MayShare(const nic::FlowRule& rule) {
  return rule.match.protocol != wire::kIpProtocolTcp;
}

}  // namespace

// Of what tells rules of one ring apart: addresses and ports; the rest only makes unequal.
size_t RuleTable::HashMatch::operator()(const nic::FlowMatch& match) const {
  const uint64_t destination = match.destination_ip ? match.destination_ip->value() : 0;
  const uint64_t source = match.source_ip ? match.source_ip->value() : 0;
  const uint64_t ports = uint64_t{match.destination_port.value_or(0)} << 16 |
                         match.source_port.value_or(0);
  return base::MixBits(base::MixBits(destination << 32 | ports) ^ source);
}

RuleTable::Entry* RuleTable::Find(const nic::FlowMatch& match) {
  const auto found = entries_.find(match);
  return found == entries_.end() ? nullptr : found->second.get();
}

RuleTable::Entry* RuleTable::Keep(const nic::FlowRule& rule, std::unique_ptr<nic::Rule> installed,
                                  bool fallback) {
  auto entry = std::make_unique<Entry>();
  entry->rule = rule;
  entry->installed = std::move(installed);
  entry->fallback = fallback;
  return (entries_[rule.match] = std::move(entry)).get();
}

absl::StatusOr<RuleTable::Held> RuleTable::Hold(const nic::FlowRule& rule) {
  Held held;
  Entry* standing = Find(rule.match);
  if (standing == nullptr && IsOfGroup(rule.match)) {
    Entry* const shared = Find(WithoutPorts(rule.match));
    if (shared != nullptr && shared->fallback) standing = shared;
  }
  if (standing != nullptr) {
    held.entry = standing;
    held.fallback = standing->fallback || standing->stand_in != nullptr;
    held.kernel_excluded = standing->asked_to_share && !standing->rule.share_with_kernel;
    if (!held.fallback && standing->asked_to_share != rule.share_with_kernel) {
      return absl::AlreadyExistsError(absl::StrCat(
          "add rule: asked ", rule.share_with_kernel ? "with" : "without",
          " share_with_kernel, the ring takes the same frames ",
          rule.share_with_kernel ? "without" : "with", " it"));
    }
  } else {
    const bool exact = rule.match.destination_port.has_value();
    absl::StatusOr<Held> installed = Install(rule, exact ? kExactPriority : kWholePriority);
    if (absl::IsResourceExhausted(installed.status()) && MayShare(rule)) {
      installed = FallBack(rule, installed.status());
    }
    if (!installed.ok()) return installed;
    held = *installed;
    held.entry->asked_to_share = rule.share_with_kernel;
  }
  ++held.entry->holders;
  return held;
}

absl::StatusOr<RuleTable::Held> RuleTable::HoldBefore(const nic::FlowRule& rule) {
  Held held{.entry = Find(rule.match)};
  if (held.entry == nullptr) {
    absl::StatusOr<Held> installed = Install(rule, kMovedPriority);
    if (!installed.ok()) return installed;
    held = *installed;
  }
  ++held.entry->holders;
  return held;
}

absl::StatusOr<RuleTable::Held> RuleTable::Install(const nic::FlowRule& asked,
                                                   uint16_t priority) {
  nic::FlowRule rule = asked;
  rule.priority = priority;
  Held held;
  auto installed = Add(&rule);
  if (absl::IsUnimplemented(installed.status()) && rule.share_with_kernel) {
    rule.share_with_kernel = false;
    held.kernel_excluded = true;
    installed = Add(&rule);
  }
  if (!installed.ok()) return installed.status();
  held.entry = Keep(rule, *std::move(installed), /*fallback=*/false);
  return held;
}

absl::StatusOr<std::unique_ptr<nic::Rule>> RuleTable::Add(nic::FlowRule* rule) {
  // Suspended: it is put on a queue with the others.
  if (queue_pair_ == nullptr) return nullptr;
  auto added = nic_->AddRule(*rule, queue_pair_);
  // An equal match stands with another tag, perhaps another process's: without one we join it.
  if (!absl::IsAlreadyExists(added.status()) || rule->tag == 0) return added;
  rule->tag = 0;
  return nic_->AddRule(*rule, queue_pair_);
}

absl::Status RuleTable::Reinstall(Entry* entry) {
  auto added = Add(&entry->rule);
  if (added.ok()) entry->installed = *std::move(added);
  return added.status();
}

absl::Status RuleTable::PutOn(Entry* entry) {
  absl::Status status = Reinstall(entry);
  const bool made_room = before_.rules.erase(entry) != 0;
  if (absl::IsResourceExhausted(status) && made_room) status = Reinstall(entry);
  return status;
}

absl::Status RuleTable::Redirect(nic::QueuePair* queue_pair) {
  queue_pair_ = queue_pair;
  absl::Status first;
  for (auto& [match, entry] : entries_) {
    if (entry->stand_in != nullptr) continue;
    if (match.protocol != wire::kIpProtocolTcp) entry->installed.reset();
    absl::Status status = PutOn(entry.get());
    if (absl::IsResourceExhausted(status) && entry->installed != nullptr) {
      entry->installed.reset();  // No room for both.
      status = Reinstall(entry.get());
    }
    if (!status.ok()) entry->installed.reset();
    first.Update(status);
  }
  before_.End();
  return first;
}

size_t RuleTable::Suspend(std::unique_ptr<nic::QueuePair> keeper) {
  return TakeOff(std::move(keeper), before_);
}

bool RuleTable::HasTcp() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.first.protocol == wire::kIpProtocolTcp && entry.second->installed != nullptr;
  });
}

size_t RuleTable::SuspendAndLeave(std::unique_ptr<nic::QueuePair> keeper) {
  std::swap(left_, before_);
  return TakeOff(std::move(keeper), left_);
}

// What stays at the port already, for want of a queue, goes on doing so.
size_t RuleTable::TakeOff(std::unique_ptr<nic::QueuePair> keeper, Left& stay) {
  if (stay.queue == nullptr) stay.queue = std::move(keeper);
  size_t lost = 0;
  for (const bool tcp : {false, true}) {  // The others first: they make room.
    for (auto& [match, entry] : entries_) {
      if ((match.protocol == wire::kIpProtocolTcp) != tcp || entry->installed == nullptr) continue;
      if (tcp && !Leave(*entry, stay)) ++lost;
      entry->installed.reset();
    }
  }
  queue_pair_ = nullptr;
  return lost;
}

bool RuleTable::Leave(Entry& entry, Left& stay) {
  if (stay.queue == nullptr) return false;
  nic::FlowRule rule = entry.rule;
  queue_pair_ = stay.queue.get();
  auto added = Add(&rule);
  if (absl::IsResourceExhausted(added.status())) {
    entry.installed.reset();  // No room for both.
    added = Add(&rule);
  }
  if (added.ok()) stay.rules[&entry] = *std::move(added);
  return added.ok();
}

void RuleTable::End() {
  left_.End();
  before_.End();
  TakeOff(nullptr, before_);
}

void RuleTable::MoveTo(nic::Nic* nic) {
  auto before = std::exchange(
      entries_, decltype(entries_)(kFirstBuckets, HashMatch(), SameMatch{&comparisons_}));
  for (auto& [match, entry] : before) {
    nic::FlowMatch& moved = entry->rule.match;
    if (moved.destination_mac == nic_->mac()) moved.destination_mac = nic->mac();
    entries_[moved] = std::move(entry);
  }
  nic_ = nic;
}

absl::Status RuleTable::Resume(nic::QueuePair* queue_pair) {
  queue_pair_ = queue_pair;
  absl::Status first;
  for (auto& [match, entry] : entries_) {
    if (entry->stand_in == nullptr) first.Update(PutOn(entry.get()));
  }
  before_.End();
  return first;
}

absl::StatusOr<RuleTable::Held> RuleTable::FallBack(const nic::FlowRule& rule,
                                                    const absl::Status& full) {
  nic::FlowRule shared;
  shared.match = WithoutPorts(rule.match);
  shared.priority = kFallbackPriority;
  shared.share_with_kernel = true;
  Held held;
  held.fallback = true;
  held.entry = Find(shared.match);
  if (held.entry != nullptr) return held;
  // Behind the shared one, those of a group's ports would give its datagrams a second time.
  std::vector<Entry*> given_up;
  if (IsOfGroup(shared.match)) given_up = GiveUp(shared.match, entries_.size());
  auto installed = nic_->AddRule(shared, queue_pair_);
  if (absl::IsResourceExhausted(installed.status()) && given_up.empty()) {
    given_up = GiveUp(shared.match, 1);
    if (!given_up.empty()) installed = nic_->AddRule(shared, queue_pair_);
  }
  if (!installed.ok()) {
    for (Entry* entry : given_up) (void)Reinstall(entry);  // There was room.
    return absl::ResourceExhaustedError(absl::StrCat(full.message(), "; nor a shared rule: ",
                                                     installed.status().message()));
  }
  held.entry = Keep(shared, *std::move(installed), /*fallback=*/true);
  for (Entry* entry : given_up) entry->stand_in = held.entry;
  held.entry->holders += static_cast<uint32_t>(given_up.size());
  return held;
}

std::vector<RuleTable::Entry*> RuleTable::GiveUp(const nic::FlowMatch& shared, size_t most) {
  std::vector<Entry*> given_up;
  for (const auto& [match, entry] : entries_) {
    if (given_up.size() == most) break;
    if (entry->stand_in != nullptr || entry->fallback) continue;
    if (WithoutPorts(match) != shared) continue;
    entry->installed.reset();
    given_up.push_back(entry.get());
  }
  return given_up;
}

void RuleTable::Drop(Entry* entry) {
  if (entry == nullptr || --entry->holders > 0) return;
  Entry* stand_in = entry->stand_in;
  const nic::FlowMatch match = entry->rule.match;
  if (HasLeft()) {
    left_.rules.erase(entry);
    before_.rules.erase(entry);
  }
  entries_.erase(match);
  Drop(stand_in);
}

}  // namespace xtreme::engine
