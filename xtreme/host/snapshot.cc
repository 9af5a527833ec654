// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/snapshot.h"

#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace xtreme::host {
namespace {

constexpr uint32_t kMaxDatagramBytes = 65'535;
// What every link carries: RFC 791 section 3.2. The kernel lets a route say less.
constexpr uint32_t kMinMtuBytes = 68;

// 224.0.0.0/24, never forwarded: RFC 5771 section 4.
bool IsLinkLocalGroup(wire::Ipv4Address address) { return address.value() >> 8 == 0xE00000; }

bool IsGroupOrBroadcast(wire::Ipv4Address address) {
  return address.IsMulticast() || address.IsLimitedBroadcast();
}

auto NeighbourKey(const Neighbour& neighbour) {
  return std::tuple(neighbour.ifindex, neighbour.address);
}

UnreachableReason ReasonOf(FibVerdict verdict) {
  switch (verdict) {
    case FibVerdict::kRoute:
      return UnreachableReason::kNone;
    case FibVerdict::kNoRoute:
      return UnreachableReason::kNoRoute;
    case FibVerdict::kUnreachable:
      return UnreachableReason::kUnreachableRoute;
    case FibVerdict::kBlackhole:
      return UnreachableReason::kBlackholeRoute;
    case FibVerdict::kProhibit:
      return UnreachableReason::kProhibitRoute;
  }
  return UnreachableReason::kNoRoute;
}

RouteKind KindOf(wire::Ipv4Address destination, const FibResult& found) {
  if (destination.IsLimitedBroadcast()) return RouteKind::kBroadcast;
  if (destination.IsMulticast()) return RouteKind::kMulticast;
  if (found.route == nullptr) return RouteKind::kUnicast;
  return found.route->type == RouteType::kBroadcast ? RouteKind::kBroadcast : RouteKind::kUnicast;
}

// Whether gateway and MTU of the route hold. A broadcast has no gateway, and a group that only the
// default route covers (a prefix shorter than 224.0.0.0/4) is sent on the link.
bool RouteApplies(RouteKind kind, const FibResult& found) {
  if (found.route == nullptr || kind == RouteKind::kBroadcast) return false;
  return kind != RouteKind::kMulticast || found.route->destination.length >= 4;
}

RouteResult Unreachable(UnreachableReason reason) { return {.reason = reason}; }

uint32_t MtuOf(const Interface& interface, uint32_t route_mtu) {
  const uint32_t mtu = route_mtu == 0 ? interface.mtu : std::min(interface.mtu, route_mtu);
  return std::clamp(mtu, kMinMtuBytes, kMaxDatagramBytes);
}

}  // namespace

std::string_view Describe(UnreachableReason reason) {
  switch (reason) {
    case UnreachableReason::kNone:
      return "reachable";
    case UnreachableReason::kInvalidDestination:
      return "no destination of a datagram";
    case UnreachableReason::kInvalidSource:
      return "no source of a datagram there";
    case UnreachableReason::kSourceNotLocal:
      return "source address is not of this host";
    case UnreachableReason::kUnknownInterface:
      return "no such interface";
    case UnreachableReason::kInterfaceDown:
      return "interface is down";
    case UnreachableReason::kNoRoute:
      return "no route";
    case UnreachableReason::kUnreachableRoute:
      return "a route says unreachable";
    case UnreachableReason::kBlackholeRoute:
      return "a route says blackhole";
    case UnreachableReason::kProhibitRoute:
      return "a route says prohibit";
    case UnreachableReason::kForeignGateway:
      return "the gateway has an IPv6 address";
  }
  return "unknown";
}

// What is being routed; filled in as the choices are made.
struct Snapshot::Flow {
  wire::Ipv4Address destination;
  wire::Ipv4Address source;
  // The interface that the sender bound to, or that its source implies; nullptr: any.
  const Interface* bound = nullptr;
  uint32_t ifindex = 0;
  // Decided without the forwarding table: on the link of `bound`.
  bool on_link = false;
};

Snapshot::Snapshot(uint64_t version, KernelTables tables)
    : version_(version), tables_(std::move(tables)) {
  std::sort(tables_.interfaces.begin(), tables_.interfaces.end(),
            [](const Interface& a, const Interface& b) { return a.ifindex < b.ifindex; });
  std::sort(
      tables_.neighbours.begin(), tables_.neighbours.end(),
      [](const Neighbour& a, const Neighbour& b) { return NeighbourKey(a) < NeighbourKey(b); });
}

const Interface* Snapshot::FindInterface(uint32_t ifindex) const {
  const auto found = std::lower_bound(
      tables_.interfaces.begin(), tables_.interfaces.end(), ifindex,
      [](const Interface& interface, uint32_t index) { return interface.ifindex < index; });
  if (found == tables_.interfaces.end() || found->ifindex != ifindex) return nullptr;
  return &*found;
}

const Interface* Snapshot::FindInterface(std::string_view name) const {
  for (const Interface& interface : tables_.interfaces) {
    if (interface.name == name) return &interface;
  }
  return nullptr;
}

const Interface* Snapshot::FindInterfaceOf(wire::Ipv4Address address) const {
  const Interface* found = nullptr;
  for (const InterfaceAddress& row : tables_.addresses) {
    if (row.local != address || (found != nullptr && found->ifindex <= row.ifindex)) continue;
    if (const Interface* interface = FindInterface(row.ifindex)) found = interface;
  }
  return found;
}

const Interface* Snapshot::FindVlan(uint32_t parent_ifindex, uint16_t vlan_id) const {
  for (const Interface& interface : tables_.interfaces) {
    if (interface.vlan && interface.vlan->id == vlan_id &&
        interface.parent_ifindex == parent_ifindex) {
      return &interface;
    }
  }
  return nullptr;
}

const Interface* Snapshot::FindBondOf(uint32_t ifindex) const {
  const Interface* port = FindInterface(ifindex);
  if (port == nullptr) return nullptr;
  const Interface* master = FindInterface(port->master_ifindex);
  return master != nullptr && master->kind == "bond" ? master : nullptr;
}

const Neighbour* Snapshot::FindNeighbour(uint32_t ifindex, wire::Ipv4Address address) const {
  const std::tuple key(ifindex, address);
  const auto found = std::lower_bound(
      tables_.neighbours.begin(), tables_.neighbours.end(), key,
      [](const Neighbour& neighbour, const auto& k) { return NeighbourKey(neighbour) < k; });
  if (found == tables_.neighbours.end() || NeighbourKey(*found) != key) return nullptr;
  return &*found;
}

bool Snapshot::IsLocal(wire::Ipv4Address address) const {
  return FindInterfaceOf(address) != nullptr || tables_.fib->IsLocal(address);
}

RouteResult Snapshot::RouteTo(wire::Ipv4Address destination,
                              std::optional<wire::Ipv4Address> source,
                              std::optional<uint32_t> ifindex) const {
  Flow flow{.destination = destination,
            .source = source.value_or(wire::Ipv4Address::Any()),
            .ifindex = ifindex.value_or(0)};
  if (destination.IsAny()) return Unreachable(UnreachableReason::kInvalidDestination);
  if (const auto reason = CheckSource(flow); reason != UnreachableReason::kNone) {
    return Unreachable(reason);
  }
  if (const auto reason = CheckInterface(flow); reason != UnreachableReason::kNone) {
    return Unreachable(reason);
  }
  return flow.on_link ? OnLink(flow) : LookUp(flow);
}

UnreachableReason Snapshot::CheckSource(Flow& flow) const {
  if (flow.source.IsAny()) return UnreachableReason::kNone;
  if (IsGroupOrBroadcast(flow.source)) return UnreachableReason::kInvalidSource;
  // A sender to a group that is bound to an address means the interface of that address, whatever
  // the routes say.
  if (flow.ifindex == 0 && IsGroupOrBroadcast(flow.destination)) {
    flow.bound = FindInterfaceOf(flow.source);
    if (flow.bound == nullptr) {
      flow.bound = FindInterface(tables_.fib->LocalInterface(flow.source));
    }
    if (flow.bound == nullptr) return UnreachableReason::kSourceNotLocal;
    flow.ifindex = flow.bound->ifindex;
    flow.on_link = true;
  }
  return IsLocal(flow.source) ? UnreachableReason::kNone : UnreachableReason::kSourceNotLocal;
}

UnreachableReason Snapshot::CheckInterface(Flow& flow) const {
  if (flow.ifindex == 0 || flow.on_link) return UnreachableReason::kNone;
  flow.bound = FindInterface(flow.ifindex);
  if (flow.bound == nullptr) return UnreachableReason::kUnknownInterface;
  if (!flow.bound->up) return UnreachableReason::kInterfaceDown;
  flow.on_link = IsLinkLocalGroup(flow.destination) || flow.destination.IsLimitedBroadcast();
  if (flow.source.IsAny() && flow.destination.IsMulticast()) {
    const uint8_t scope = flow.on_link ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    flow.source = SelectSource(flow.ifindex, std::nullopt, scope);
  }
  return UnreachableReason::kNone;
}

RouteResult Snapshot::LookUp(const Flow& flow) const {
  const FibResult found = tables_.fib->Lookup(
      {.destination = flow.destination,
       .source = flow.source,
       .ifindex = flow.ifindex,
       .interface_name = flow.bound == nullptr ? std::string_view() : flow.bound->name});
  // Who names an interface gets it, with or without a route there.
  if (found.verdict != FibVerdict::kRoute && flow.bound != nullptr) return OnLink(flow);
  if (found.verdict != FibVerdict::kRoute) return Unreachable(ReasonOf(found.verdict));
  if (found.route->type == RouteType::kLocal) return Deliver(flow, *found.route);
  if (found.next_hop->foreign_gateway) return Unreachable(UnreachableReason::kForeignGateway);
  const Interface* out = FindInterface(found.next_hop->ifindex);
  // The interface went while the routes were being read; the next snapshot knows.
  if (out == nullptr) return Unreachable(UnreachableReason::kUnknownInterface);
  Flow chosen = flow;
  if (chosen.source.IsAny()) {
    chosen.source = found.route->preferred_source.value_or(wire::Ipv4Address::Any());
  }
  if (chosen.source.IsAny()) {
    chosen.source = SelectSource(out->ifindex, found.next_hop->gateway, found.route->scope);
  }
  return Finish(chosen, *out, found);
}

RouteResult Snapshot::Deliver(const Flow& flow, const Route& route) const {
  RouteResult result{
      .kind = RouteKind::kLocal, .next_hop = flow.destination, .source = flow.source};
  if (result.source.IsAny()) result.source = route.preferred_source.value_or(flow.destination);
  for (const Interface& interface : tables_.interfaces) {
    if (!interface.loopback) continue;
    result.ifindex = interface.ifindex;
    result.mtu = MtuOf(interface, route.mtu);
    return result;
  }
  return Unreachable(UnreachableReason::kUnknownInterface);
}

RouteResult Snapshot::OnLink(const Flow& flow) const {
  Flow chosen = flow;
  if (chosen.source.IsAny()) {
    chosen.source = SelectSource(flow.ifindex, std::nullopt, RT_SCOPE_LINK);
  }
  return Finish(chosen, *flow.bound, {});
}

RouteResult Snapshot::Finish(const Flow& flow, const Interface& out, const FibResult& found) const {
  if (flow.source.IsLoopback() && !out.loopback) {
    return Unreachable(UnreachableReason::kInvalidSource);
  }
  RouteResult result{.kind = KindOf(flow.destination, found),
                     .ifindex = out.ifindex,
                     .next_hop = flow.destination,
                     .source = flow.source,
                     .mtu = MtuOf(out, 0)};
  if (!RouteApplies(result.kind, found)) return result;
  result.mtu = MtuOf(out, found.route->mtu);
  if (!found.next_hop->gateway) return result;
  // A group behind a gateway is sent to the gateway's MAC address, as the kernel does.
  result.kind = RouteKind::kUnicast;
  result.via_gateway = true;
  result.next_hop = *found.next_hop->gateway;
  return result;
}

// The first address of the interface in the network of `near`, else its first; else, for an
// interface without, the first of any other. A smaller `scope` asks for a wider validity. Secondary
// addresses are never chosen: the kernel lists each after its primary, which has the same network
// and scope.
wire::Ipv4Address Snapshot::SelectSource(uint32_t ifindex, std::optional<wire::Ipv4Address> near,
                                         uint8_t scope) const {
  wire::Ipv4Address first;
  for (const InterfaceAddress& row : tables_.addresses) {
    if (row.ifindex != ifindex) continue;
    if (std::min<uint8_t>(row.scope, RT_SCOPE_HOST) > scope) continue;
    const wire::Ipv4Prefix network{row.peer, row.prefix_length};
    if (!near || network.Contains(*near)) return row.local;
    if (first.IsAny()) first = row.local;
  }
  if (!first.IsAny()) return first;
  for (const Interface& interface : tables_.interfaces) {
    for (const InterfaceAddress& row : tables_.addresses) {
      if (row.ifindex != interface.ifindex) continue;
      if (row.scope != RT_SCOPE_LINK && row.scope <= scope) return row.local;
    }
  }
  return first;
}

}  // namespace xtreme::host
