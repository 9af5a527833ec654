// SPDX-License-Identifier: Apache-2.0
// What the kernel knew about interfaces, addresses, routes and neighbours at one moment, and where
// a datagram to an address would go.
//
// Immutable: any thread may read it while it holds the shared_ptr; no lookup makes a system call,
// takes a lock or allocates.
//
// Units: MTU in bytes; an ifindex of 0 is "none". Spec: RFC 1122 section 3.3.1 (routing outbound
// datagrams), 3.3.4.3 (choosing a source address); where they leave a choice, the choice of Linux.

#ifndef XTREME_XTREME_HOST_SNAPSHOT_H_
#define XTREME_XTREME_HOST_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stack/wire/address.h"
#include "xtreme/host/fib.h"
#include "xtreme/host/kernel_tables.h"

namespace xtreme::host {

enum class RouteKind : uint8_t { kUnicast, kMulticast, kBroadcast, kLocal, kUnreachable };

enum class UnreachableReason : uint8_t {
  kNone,                // it is reachable
  kInvalidDestination,  // 0.0.0.0
  kInvalidSource,       // a group, the broadcast, or 127/8 on an interface of the network
  kSourceNotLocal,
  kUnknownInterface,
  kInterfaceDown,
  kNoRoute,
  kUnreachableRoute,
  kBlackholeRoute,
  kProhibitRoute,
  kForeignGateway,  // the gateway is an IPv6 address
};

// A few words for messages: "no route", "interface is down". A static string.
std::string_view Describe(UnreachableReason reason);

struct RouteResult {
  // What the frame's destination MAC address is: kMulticast is a group's own, and a group that a
  // route sends through a gateway is kUnicast.
  RouteKind kind = RouteKind::kUnreachable;
  UnreachableReason reason = UnreachableReason::kNone;
  // Where it leaves; the loopback interface for kLocal.
  uint32_t ifindex = 0;
  // Whose MAC address the frame needs: the gateway, or the destination itself.
  wire::Ipv4Address next_hop;
  bool via_gateway = false;
  // The one asked for, else the one the kernel would choose; Any when the host has none.
  wire::Ipv4Address source;
  // Largest IP datagram, 68 to 65,535: the route's, never above the interface's.
  uint32_t mtu = 0;

  bool reachable() const { return kind != RouteKind::kUnreachable; }
  friend bool operator==(const RouteResult&, const RouteResult&) = default;
};

struct KernelTables {
  std::vector<Interface> interfaces;
  // Of each interface in the kernel's order: the first that fits is the source.
  std::vector<InterfaceAddress> addresses;
  // Shared between snapshots that differ elsewhere. Never nullptr.
  std::shared_ptr<const Fib> fib = std::make_shared<Fib>();
  std::vector<Neighbour> neighbours;
};

class Snapshot {
 public:
  Snapshot(uint64_t version, KernelTables tables);

  // Grows with each snapshot of one monitor.
  uint64_t version() const { return version_; }

  // nullptr when there is none.
  const Interface* FindInterface(uint32_t ifindex) const;
  const Interface* FindInterface(std::string_view name) const;
  // The interface that has `address`; the one with the lowest index when there are several.
  const Interface* FindInterfaceOf(wire::Ipv4Address address) const;
  // The VLAN interface above `parent_ifindex` with identifier `vlan_id`.
  const Interface* FindVlan(uint32_t parent_ifindex, uint16_t vlan_id) const;
  // The bond that `ifindex` is a port of.
  const Interface* FindBondOf(uint32_t ifindex) const;
  // Whatever its state: ask `usable()`.
  const Neighbour* FindNeighbour(uint32_t ifindex, wire::Ipv4Address address) const;

  // Whether datagrams to `address` are for this host.
  bool IsLocal(wire::Ipv4Address address) const;

  // Where a datagram to `destination` goes, with the source and the interface that the sender bound
  // to, if it did.
  RouteResult RouteTo(wire::Ipv4Address destination,
                      std::optional<wire::Ipv4Address> source = std::nullopt,
                      std::optional<uint32_t> ifindex = std::nullopt) const;

  // By ascending ifindex.
  std::span<const Interface> interfaces() const { return tables_.interfaces; }
  std::span<const InterfaceAddress> addresses() const { return tables_.addresses; }
  // By ascending ifindex, then address.
  std::span<const Neighbour> neighbours() const { return tables_.neighbours; }
  const Fib& fib() const { return *tables_.fib; }

 private:
  struct Flow;

  UnreachableReason CheckSource(Flow& flow) const;
  UnreachableReason CheckInterface(Flow& flow) const;
  RouteResult LookUp(const Flow& flow) const;
  RouteResult Deliver(const Flow& flow, const Route& route) const;
  RouteResult OnLink(const Flow& flow) const;
  RouteResult Finish(const Flow& flow, const Interface& out, const FibResult& found) const;
  wire::Ipv4Address SelectSource(uint32_t ifindex, std::optional<wire::Ipv4Address> near,
                                 uint8_t scope) const;

  uint64_t version_;
  KernelTables tables_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_SNAPSHOT_H_
