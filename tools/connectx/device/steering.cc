// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/steering.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

// ibv_flow_attr has 16 priorities. The kernel's mlx5 driver gives each two flow tables, the first
// for rules that do not trap; multicast rules that trap share one table behind them all, whatever
// priority they ask for; defaults ("leftovers") come last.
constexpr uint16_t kPriorities = 16;
constexpr uint32_t kMulticastOrder = 2 * kPriorities;
constexpr uint32_t kDefaultOrder = kMulticastOrder + 1;
constexpr uint32_t kMaxTag = 0xffffff;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;

// Words of a key: {destination MAC, presence bits}, {source MAC, EtherType}, {IP addresses},
// {ports, VLAN, protocol}, and two each of the source's and the destination's IPv6 address.
constexpr uint64_t kHasVlan = 1;
constexpr uint64_t kHasIpv4 = 2;
constexpr uint64_t kHasPorts = 4;
constexpr uint64_t kHasIpv6 = 8;
constexpr uint64_t kGroupBit = uint64_t{1} << 56;  // Of the first octet of the destination MAC.

uint64_t MacWord(const uint8_t* mac) {
  return uint64_t{LoadBe32(mac)} << 32 | uint64_t{LoadBe16(mac + 4)} << 16;
}

uint64_t L4Word(uint16_t source_port, uint16_t destination_port, uint16_t vlan_tci,
                uint8_t protocol) {
  return uint64_t{source_port} << 48 | uint64_t{destination_port} << 32 | uint64_t{vlan_tci} << 16 |
         protocol;
}

uint64_t Ipv6Word(const uint8_t* address) {
  return uint64_t{LoadBe32(address)} << 32 | LoadBe32(address + 4);
}

void PackIpv6(const uint8_t* source, const uint8_t* destination, FlowKey* key) {
  key->words[4] = Ipv6Word(source);
  key->words[5] = Ipv6Word(source + 8);
  key->words[6] = Ipv6Word(destination);
  key->words[7] = Ipv6Word(destination + 8);
}

FlowKey Pack(const FlowFields& fields) {
  FlowKey key{
      {MacWord(fields.destination_mac.data()),
       MacWord(fields.source_mac.data()) | fields.ether_type,
       uint64_t{fields.source_ip} << 32 | fields.destination_ip,
       L4Word(fields.source_port, fields.destination_port, fields.vlan_tci, fields.ip_protocol)}};
  PackIpv6(fields.source_ipv6.data(), fields.destination_ipv6.data(), &key);
  return key;
}

bool AsksForPorts(const FlowFields& mask) {
  return mask.source_port != 0 || mask.destination_port != 0;
}

uint64_t RequiredPresence(const FlowFields& mask) {
  const bool ipv4 = mask.source_ip != 0 || mask.destination_ip != 0;
  const bool ipv6 = mask.source_ipv6 != Ipv6Address{} || mask.destination_ipv6 != Ipv6Address{};
  return (mask.vlan_tci != 0 ? kHasVlan : 0) | (ipv4 ? kHasIpv4 : 0) | (ipv6 ? kHasIpv6 : 0) |
         (AsksForPorts(mask) ? kHasPorts : 0);
}

// What can only match multicast, by the first of its specifications (the kernel's
// flow_is_multicast_only): the MAC if that is of Ethernet, else the address.
bool IsMulticast(const FlowRequest& request) {
  if (request.ethernet_first || request.mask.destination_mac != MacAddress{}) {
    return (request.value.destination_mac[0] & request.mask.destination_mac[0] & 1) != 0;
  }
  return request.mask.destination_ip >> 28 == 0xf && request.value.destination_ip >> 28 == 0xe;
}

}  // namespace

FlowKey KeyOf(const Frame& frame) {
  FlowKey key;
  if (frame.bytes.size() < kEthernetHeaderBytes) return key;
  const bool ipv4 = frame.l3 == Frame::L3::kIpv4;
  const bool ipv6 = frame.l3 == Frame::L3::kIpv6;
  const bool ports = frame.l4 != Frame::L4::kNone;
  // A rule's tag is a customer's (the kernel's cvlan_tag): a frame with a service tag has none.
  const bool vlan = frame.StartsWithCustomerTag();
  key.words[0] = MacWord(frame.bytes.data()) | (vlan ? kHasVlan : 0) |
                 (ipv4 ? kHasIpv4 : 0) | (ipv6 ? kHasIpv6 : 0) | (ports ? kHasPorts : 0);
  key.words[1] = MacWord(frame.bytes.data() + 6) | frame.ether_type;
  key.words[2] = uint64_t{frame.source_ip} << 32 | frame.destination_ip;
  key.words[3] = L4Word(frame.source_port, frame.destination_port, frame.vlan_tci, frame.protocol);
  if (ipv6) {
    const uint8_t* addresses = frame.bytes.data() + frame.l3_offset + 8;
    PackIpv6(addresses, addresses + sizeof(Ipv6Address), &key);
  }
  return key;
}

int Steering::Compile(const FlowRequest& request, std::vector<Match>* matches) {
  const bool leftovers =
      request.type == IBV_FLOW_ATTR_ALL_DEFAULT || request.type == IBV_FLOW_ATTR_MC_DEFAULT;
  if (request.tag.has_value() && *request.tag > kMaxTag) return EINVAL;
  if (leftovers) {
    if (request.tag.has_value() || request.dont_trap) return EINVAL;
    const FlowKey mask{{kGroupBit}};
    matches->push_back({kDefaultOrder, true, mask, mask});
    if (request.type == IBV_FLOW_ATTR_ALL_DEFAULT) {
      matches->push_back({kDefaultOrder, true, FlowKey{}, mask});
    }
    return 0;
  }
  if (request.type == IBV_FLOW_ATTR_SNIFFER) return 0;
  if (request.type != IBV_FLOW_ATTR_NORMAL) return EINVAL;
  if (request.priority >= kPriorities) return ENOMEM;  // As mlx5_ib says it.
  const bool tcp_or_udp =
      request.mask.ip_protocol == 0xff &&
      (request.value.ip_protocol == kProtocolTcp || request.value.ip_protocol == kProtocolUdp);
  if (AsksForPorts(request.mask) && !tcp_or_udp) return EINVAL;
  FlowKey mask = Pack(request.mask);
  const uint64_t presence = RequiredPresence(request.mask);
  mask.words[0] |= presence;
  FlowKey value = Pack(request.value) & mask;
  value.words[0] |= presence;
  const uint32_t order = IsMulticast(request) && !request.dont_trap
                             ? kMulticastOrder
                             : 2u * request.priority + (request.dont_trap ? 0 : 1);
  matches->push_back({order, !request.dont_trap, value, mask});
  return 0;
}

std::optional<uint32_t> Steering::ConflictingTag(const FlowRequest& request) const {
  std::vector<Match> matches;
  if (!request.tag.has_value() || Compile(request, &matches) != 0) return std::nullopt;
  for (const Match& match : matches) {
    const Group* group = FindGroup(match);
    const Entry* entry = group == nullptr ? nullptr : group->Find(match.value);
    if (entry != nullptr && entry->tag != *request.tag) return entry->tag;
  }
  return std::nullopt;
}

// The kernel's check_conflicting_actions.
bool Steering::ConflictsInAction(const FlowRequest& request,
                                 const std::vector<Match>& matches) const {
  return std::any_of(matches.begin(), matches.end(), [&](const Match& match) {
    const Group* group = FindGroup(match);
    const Entry* entry = group == nullptr ? nullptr : group->Find(match.value);
    return entry != nullptr && entry->drops != request.drop;
  });
}

int Steering::Add(const FlowRequest& request, ReceiveTarget* target, uint32_t* rule,
                  FlowCounter* counter) {
  std::vector<Match> matches;
  if (const int error = Compile(request, &matches); error != 0) return error;
  if (ConflictingTag(request) || ConflictsInAction(request, matches)) return EEXIST;
  if (rules_.full()) return ENOSPC;
  auto made = std::make_unique<Rule>(Rule{request, target, counter, std::move(matches)});
  for (const Match& match : made->matches) {
    Group* group = GetGroup(match);
    Entry* entry = group->Find(match.value);
    if (entry == nullptr) entry = group->Insert(match.value, request.tag.value_or(0));
    entry->drops = request.drop;
    Hold(entry, made->holder());
    if (counter != nullptr) entry->counters.push_back(counter);
  }
  if (request.type == IBV_FLOW_ATTR_SNIFFER) Hold(&sniffers_, target);
  ++target->rules;
  if (counter != nullptr) ++counter->rules;
  *rule = rules_.Reserve();
  rules_.Put(*rule, std::move(made));
  return 0;
}

int Steering::Remove(uint32_t number) {
  const Rule* rule = rules_.Find(number);
  if (rule == nullptr) return EINVAL;
  for (const Match& match : rule->matches) {
    Group* group = FindGroup(match);
    Entry* entry = group->Find(match.value);
    Release(entry, rule->holder());
    const auto counted = std::find(entry->counters.begin(), entry->counters.end(), rule->counter);
    if (counted != entry->counters.end()) entry->counters.erase(counted);
    if (entry->holders.empty()) group->Erase(entry);
    if (group->size == 0) {
      std::erase_if(groups_, [group](const auto& used) { return used.get() == group; });
    }
  }
  if (rule->request.type == IBV_FLOW_ATTR_SNIFFER) Release(&sniffers_, rule->target);
  --rule->target->rules;
  if (rule->counter != nullptr) --rule->counter->rules;
  rules_.Remove(number);
  return 0;
}

const FlowRequest* Steering::Request(uint32_t number) const {
  const Rule* rule = rules_.Find(number);
  return rule == nullptr ? nullptr : &rule->request;
}

Steering::Group* Steering::FindGroup(const Match& match) const {
  for (const auto& group : groups_) {
    if (group->order == match.order && group->mask == match.mask) return group.get();
  }
  return nullptr;
}

Steering::Group* Steering::GetGroup(const Match& match) {
  if (Group* group = FindGroup(match); group != nullptr) return group;
  auto made = std::make_unique<Group>();
  made->order = match.order;
  made->mask = match.mask;
  made->traps = match.traps;
  const auto after = std::find_if(groups_.begin(), groups_.end(), [&made](const auto& other) {
    if (other->order != made->order) return other->order > made->order;
    if (other->place != made->place) return true;
    ++made->place;
    return false;
  });
  return groups_.insert(after, std::move(made))->get();
}

void Steering::Hold(Entry* entry, ReceiveTarget* target) {
  for (Holder& holder : entry->holders) {
    if (holder.target == target) {
      ++holder.rules;
      return;
    }
  }
  entry->holders.push_back({target, 1});
}

void Steering::Release(Entry* entry, ReceiveTarget* target) {
  for (Holder& holder : entry->holders) {
    if (holder.target == target) --holder.rules;
  }
  std::erase_if(entry->holders, [](const Holder& holder) { return holder.rules == 0; });
}

size_t Steering::Group::Slot(const FlowKey& value) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio.
  uint64_t hash = 0;
  for (uint64_t word : value.words) hash = (std::rotl(hash, 23) ^ word) * kOdd;
  return (hash ^ hash >> 32) & (table.size() - 1);
}

Steering::Entry* Steering::Group::Find(const FlowKey& value) const {
  if (size == 0) return nullptr;
  const size_t last = table.size() - 1;
  for (size_t slot = Slot(value); table[slot] != nullptr; slot = (slot + 1) & last) {
    if (table[slot]->value == value) return table[slot].get();
  }
  return nullptr;
}

Steering::Entry* Steering::Group::Insert(const FlowKey& value, uint32_t tag) {
  if (2 * (size + 1) > table.size()) Rehash(std::max<size_t>(8, 2 * table.size()));
  size_t slot = Slot(value);
  while (table[slot] != nullptr) slot = (slot + 1) & (table.size() - 1);
  table[slot] = std::make_unique<Entry>(Entry{.value = value, .tag = tag});
  ++size;
  return table[slot].get();
}

// What probed past the freed slot is put in again, so that no search stops short of it.
void Steering::Group::Erase(Entry* entry) {
  const size_t last = table.size() - 1;
  size_t slot = Slot(entry->value);
  while (table[slot].get() != entry) slot = (slot + 1) & last;
  table[slot].reset();
  --size;
  for (slot = (slot + 1) & last; table[slot] != nullptr; slot = (slot + 1) & last) {
    std::unique_ptr<Entry> moved = std::move(table[slot]);
    size_t to = Slot(moved->value);
    while (table[to] != nullptr) to = (to + 1) & last;
    table[to] = std::move(moved);
  }
}

void Steering::Group::Rehash(size_t slots) {
  std::vector<std::unique_ptr<Entry>> old(slots);
  old.swap(table);
  for (std::unique_ptr<Entry>& entry : old) {
    if (entry == nullptr) continue;
    size_t slot = Slot(entry->value);
    while (table[slot] != nullptr) slot = (slot + 1) & (table.size() - 1);
    table[slot] = std::move(entry);
  }
}

}  // namespace xtreme::connectx
