// SPDX-License-Identifier: Apache-2.0
//
// Which frames a socket's rules take, by the addresses of the interface; when those change, sockets
// bound to any address follow.

#include <algorithm>
#include <utility>

#include "stack/udp/demux.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

std::vector<udp::LocalAddress> Udp::LocalAddresses() const {
  std::vector<udp::LocalAddress> local;
  for (const host::InterfaceAddress& address : core_->host.routes->addresses()) {
    if (!core_->device.Owns(address.ifindex)) continue;
    local.push_back({.prefix = {address.local, address.prefix_length},
                     .vlan_id = core_->device.vlan_id});
  }
  return local;
}

std::vector<nic::FlowRule> Udp::RulesOf(const UdpSocket& socket) const {
  std::vector<nic::FlowRule> rules;
  nic::FlowRule rule;
  rule.match.destination_mac = core_->device.nic->mac();
  if (core_->device.vlan_id != 0) rule.match.vlan_id = core_->device.vlan_id;
  rule.match.protocol = wire::kIpProtocolUdp;
  // No fragment matches a port: who reassembles takes the whole address.
  if (reassembly_ == nullptr) rule.match.destination_port = socket.local().port;
  const wire::Ipv4Address bound = socket.local().address;
  for (const udp::LocalAddress& local : demux_->local_addresses()) {
    if (socket.settings.kernel_unicast) break;
    if (!bound.IsAny() && bound != local.prefix.address) continue;
    rule.match.destination_ip = local.prefix.address;
    // A port that is ours alone: the tag is a hint to its socket.
    const bool tagged = !socket.settings.reuse && !bound.IsAny() &&
                        rule.match.destination_port.has_value();
    rule.tag = tagged ? PlaceOf(socket.handle) + 1 : 0;
    rules.push_back(rule);
  }
  if (socket.settings.broadcast || demux_->IsBroadcast(bound)) {
    rule.match.destination_mac = wire::MacAddress::Broadcast();
    rule.match.destination_ip.reset();
    rule.tag = 0;
    rules.push_back(rule);
  }
  if (socket.flow_tag() != 0) {
    for (nic::FlowRule& each : rules) each.tag = socket.flow_tag();
  }
  return rules;
}

void Udp::AdoptRoutes() {
  const std::vector<udp::LocalAddress> local = LocalAddresses();
  if (!std::ranges::equal(local, demux_->local_addresses())) FollowAddresses(local);
  neighbours_->AdoptRoutes();
}

// What an address is (our own, a broadcast) may have changed with the list.
void Udp::FollowAddresses(const std::vector<udp::LocalAddress>& local) {
  const auto visit_bound = [this](auto act) {
    sockets_->ForEach([&](UdpSocket& socket) {
      const wire::Ipv4Address bound = socket.local().address;
      const bool open = socket.state == UdpSocket::State::kOpen;
      if (open && !bound.IsAny() && !bound.IsMulticast()) act(socket);
    });
  };
  visit_bound([this](UdpSocket& socket) { CountLocal(socket, -1); });
  demux_->SetLocalAddresses(local);
  visit_bound([this](UdpSocket& socket) {
    demux_->Rebind(socket, {.local = socket.local(),
                            .remote = socket.remote(),
                            .vlan_id = socket.vlan_id()});
    CountLocal(socket, +1);
  });
  sockets_->ForEach([this](UdpSocket& socket) {
    const bool open = socket.state == UdpSocket::State::kOpen;
    if (open && socket.local().address.IsAny()) StartRules(socket);
  });
}

void Udp::StartRules(UdpSocket& socket) {
  core_->Start(MakeOperation([handle = socket.handle, rules = RulesOf(socket),
                              side = core_->host.control_side,
                              mailbox = core_->host.mailbox] {
    SocketHoldings& holdings = side->HoldingsOf(handle);
    if (holdings.port == nullptr) return;  // Opening it failed.
    const absl::Status replaced = holdings.ReplaceRules(*side, rules);
    if (replaced.ok()) return;
    mailbox->Push(MakeNotice([handle, error = ErrnoOf(replaced)](Ring& ring) {
      ring.udp().SocketError(handle, {}, error);
    }));
  }));
}

absl::Status SocketHoldings::ReplaceRules(ControlSide& side,
                                          const std::vector<nic::FlowRule>& wanted) {
  absl::Status first;
  // The new ones before the old ones go: what is in both stands all the time.
  HeldRules before = std::exchange(rules, {});
  for (const nic::FlowRule& rule : wanted) {
    auto held = side.rules.Hold(rule);
    if (held.ok()) {
      rules.Add(held->entry);
    } else {
      first.Update(held.status());
    }
  }
  before.DropAll(side.rules);
  return first;
}

}  // namespace xtreme::engine
