// SPDX-License-Identifier: Apache-2.0
#include "stack/udp/demux.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace xtreme::udp {
namespace {

// Puts `binding` before those with the same key: of equal sockets the last attached is served.
template <typename Key>
void LinkIn(base::KeyedSet<Key, Binding>& heads, Binding& binding) {
  heads.Reserve(heads.size() + 1);
  binding.next = heads.Find(Key::Of(binding));
  if (binding.next != nullptr) binding.next->answers_key = false;
  heads.Insert(&binding);
  binding.linked = true;
}

template <typename Key>
void UnlinkFrom(base::KeyedSet<Key, Binding>& heads, Binding& binding) {
  Binding* before = heads.Find(Key::Of(binding));
  if (before != &binding) {
    while (before->next != &binding) before = before->next;
    before->next = binding.next;
  } else if (binding.next != nullptr) {
    heads.Insert(binding.next);
    binding.next->answers_key = binding.next->admits_all;
  } else {
    heads.Erase(Key::Of(binding));
  }
  binding.next = nullptr;
  binding.linked = false;
  binding.answers_key = false;
}

// Of a group's binding.
const SourceFilter& FilterOf(const Binding& binding) {
  return static_cast<const Membership&>(binding).filter;
}

}  // namespace

void Demux::SetLocalAddresses(std::span<const LocalAddress> addresses) {
  local_addresses_.assign(addresses.begin(), addresses.end());
  ++changes_;
}

void Demux::Attach(Endpoint& endpoint) {
  endpoint.attached_ = true;
  LinkLocal(endpoint);
  for (const std::unique_ptr<Membership>& membership : endpoint.memberships()) {
    LinkGroup(endpoint, *membership);
  }
}

void Demux::Detach(Endpoint& endpoint) {
  Unlink(endpoint.binding_);
  for (const std::unique_ptr<Membership>& membership : endpoint.memberships()) {
    Unlink(*membership);
  }
  endpoint.attached_ = false;
}

void Demux::Rebind(Endpoint& endpoint, const Endpoint::Options& options) {
  const bool attached = endpoint.attached();
  if (attached) Detach(endpoint);
  endpoint.Become(options);
  if (attached) Attach(endpoint);
}

JoinResult Demux::Join(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id,
                       SourceFilter filter) {
  if (!group.IsMulticast()) return JoinResult::kNotMulticast;
  if (endpoint.FindMembership(group, vlan_id) != nullptr) return JoinResult::kAlreadyJoined;
  if (endpoint.groups_ == nullptr) endpoint.groups_ = std::make_unique<JoinedGroups>();
  auto membership = std::make_unique<Membership>();
  membership->group = group;
  membership->vlan_id = vlan_id;
  membership->filter = std::move(filter);
  if (endpoint.attached()) LinkGroup(endpoint, *membership);
  endpoint.groups_->memberships.push_back(std::move(membership));
  return JoinResult::kOk;
}

JoinResult Demux::SetFilter(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id,
                            SourceFilter filter) {
  for (const std::unique_ptr<Membership>& membership : endpoint.memberships()) {
    if (membership->group != group || membership->vlan_id != vlan_id) continue;
    Unlink(*membership);
    membership->filter = std::move(filter);
    if (endpoint.attached()) LinkGroup(endpoint, *membership);
    return JoinResult::kOk;
  }
  return JoinResult::kNotJoined;
}

JoinResult Demux::Leave(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id) {
  const Membership* membership = endpoint.FindMembership(group, vlan_id);
  if (membership == nullptr) return JoinResult::kNotJoined;
  auto& memberships = endpoint.groups_->memberships;
  const auto left = std::find_if(
      memberships.begin(), memberships.end(),
      [membership](const std::unique_ptr<Membership>& m) { return m.get() == membership; });
  Unlink(**left);
  memberships.erase(left);
  return JoinResult::kOk;
}

bool Demux::IsLocal(wire::Ipv4Address address) const {
  return std::any_of(local_addresses_.begin(), local_addresses_.end(),
                     [address](const LocalAddress& l) { return l.prefix.address == address; });
}

bool Demux::IsBroadcast(wire::Ipv4Address address) const {
  if (address.IsLimitedBroadcast()) return true;
  return std::any_of(
      local_addresses_.begin(), local_addresses_.end(),
      [address](const LocalAddress& l) { return l.prefix.DirectedBroadcast() == address; });
}

const Binding* Demux::Find(const wire::UdpFlow& flow, uint64_t key) {
  if (IsBadSource(flow.source)) {
    misaddressed_.Count(Misaddressed::kBadSource);
    return nullptr;
  }
  if (connected_.size() != 0) {
    const uint64_t remote = BindingKey(flow.source, 0, flow.source_port);
    if (const Binding* peer = connected_.Find({key, remote})) return peer;
  }
  if (const Binding* found = FirstAdmitting(bindings_.Find({key}), flow)) return found;
  if (const Binding* wildcard = FindWildcard(flow)) return wildcard;
  CountMisaddressed(flow, key);
  return nullptr;
}

const Binding* Demux::FindNext(const Binding* binding, const wire::UdpFlow& flow) {
  // Unicast ends with the first socket; a wildcard is found for both.
  if (binding->kind == Binding::Kind::kWildcard && !IsBroadcast(flow.destination)) return nullptr;
  if (const Binding* next = FirstAdmitting(binding->next, flow)) return next;
  return binding->kind == Binding::Kind::kBroadcast ? FindWildcard(flow) : nullptr;
}

const Binding* Demux::FindWildcard(const wire::UdpFlow& flow) {
  if (!IsLocal(flow.destination) && !IsBroadcast(flow.destination)) return nullptr;
  const uint64_t key = BindingKey(wire::Ipv4Address::Any(), kAnyVlan, flow.destination_port);
  return FirstAdmitting(bindings_.Find({key}), flow);
}

const Binding* Demux::FirstAdmitting(const Binding* binding, const wire::UdpFlow& flow) {
  while (binding != nullptr && !Admits(*binding, flow)) binding = binding->next;
  return binding;
}

bool Demux::Admits(const Binding& binding, const wire::UdpFlow& flow) {
  if (binding.admits_all) return true;
  Endpoint& endpoint = *binding.endpoint;
  if (endpoint.connected() && !endpoint.IsPeer(flow)) return false;
  if (binding.kind == Binding::Kind::kGroup && !FilterOf(binding).Admits(flow.source)) {
    ++endpoint.groups_->counters.source_filtered;
    return false;
  }
  // A wildcard is looked up without a VLAN; the others have it in their key.
  return binding.kind != Binding::Kind::kWildcard || endpoint.vlan_id() == kAnyVlan ||
         endpoint.vlan_id() == flow.vlan_id;
}

void Demux::CountMisaddressed(const wire::UdpFlow& flow, uint64_t key) {
  Misaddressed reason = Misaddressed::kNoSocket;
  if (flow.destination.IsMulticast()) {
    const Binding* member = bindings_.Find({key});
    reason = member == nullptr ? Misaddressed::kNotMember : Misaddressed::kSourceFiltered;
    for (; member != nullptr; member = member->next) {
      if (FilterOf(*member).Admits(flow.source)) reason = Misaddressed::kNoSocket;
    }
  } else if (!IsLocal(flow.destination) && !IsBroadcast(flow.destination)) {
    reason = Misaddressed::kNotLocal;
  }
  misaddressed_.Count(reason);
}

Binding::Kind Demux::KindOf(const Endpoint& endpoint) const {
  const wire::Ipv4Address address = endpoint.local().address;
  if (address.IsAny()) return Binding::Kind::kWildcard;
  if (address.IsMulticast()) return Binding::Kind::kGroup;
  if (IsBroadcast(address)) return Binding::Kind::kBroadcast;
  return endpoint.connected() ? Binding::Kind::kConnected : Binding::Kind::kUnicast;
}

void Demux::LinkLocal(Endpoint& endpoint) {
  ++changes_;
  const wire::Endpoint& local = endpoint.local();
  const Binding::Kind kind = KindOf(endpoint);
  Binding& binding = endpoint.binding_;
  binding.endpoint = &endpoint;
  binding.kind = kind;
  // Bound to a group: only a membership receives.
  if (kind == Binding::Kind::kGroup) return;
  const bool wildcard = kind == Binding::Kind::kWildcard;
  binding.key = BindingKey(local.address, wildcard ? kAnyVlan : endpoint.vlan_id(), local.port);
  binding.admits_all = !endpoint.connected() && (!wildcard || endpoint.vlan_id() == kAnyVlan);
  if (kind == Binding::Kind::kConnected) {
    LinkIn(connected_, binding);
  } else {
    LinkIn(bindings_, binding);
    binding.answers_key = binding.admits_all;
  }
}

void Demux::LinkGroup(Endpoint& endpoint, Membership& membership) {
  ++changes_;
  const wire::Endpoint& local = endpoint.local();
  // A socket bound to a unicast address receives what is sent to that address only.
  if (!local.address.IsAny() && !local.address.IsMulticast()) return;
  Binding& binding = membership;
  binding.endpoint = &endpoint;
  binding.kind = Binding::Kind::kGroup;
  binding.key = BindingKey(membership.group, membership.vlan_id, local.port);
  binding.admits_all = !endpoint.connected() && membership.filter.AdmitsEverybody();
  LinkIn(bindings_, binding);
  binding.answers_key = binding.admits_all;
}

void Demux::Unlink(Binding& binding) {
  if (!binding.linked) return;
  ++changes_;
  if (binding.kind == Binding::Kind::kConnected) {
    UnlinkFrom(connected_, binding);
  } else {
    UnlinkFrom(bindings_, binding);
  }
}

base::CounterName DescribeReason(Misaddressed reason) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"bad_source", "datagrams from a group, broadcast or class E address"},
      {"not_local", "datagrams to a unicast address that is not ours"},
      {"no_socket", "datagrams to a port where nobody takes them from this source"},
      {"not_member", "datagrams to a group that nobody joined with this port"},
      {"source_filtered", "group datagrams from a source that no member's filter admits"},
  });
  static_assert(kNames.size() == static_cast<size_t>(Misaddressed::kCount));
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace xtreme::udp
