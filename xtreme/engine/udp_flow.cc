// SPDX-License-Identifier: Apache-2.0
//
// Flows: where a destination is, by the kernel's tables as of the ring's epoch, without a system
// call; and what the poll brings to change that.

#include <algorithm>
#include <cstring>

#include "stack/udp/demux.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

SendFlow& Udp::FlowTo(UdpSocket& socket, const wire::Endpoint& peer) {
  if (socket.flows == nullptr) socket.flows = std::make_unique<SendFlows>();
  SendFlows& flows = *socket.flows;
  for (SendFlow& flow : flows.recent) {
    if (flow.peer == peer) return flow;
  }
  SendFlow& flow = flows.recent[flows.next++ % SendFlows::kRemembered];
  flow = SendFlow();
  flow.peer = peer;
  return flow;
}

void Udp::Resolve(UdpSocket& socket, SendFlow& flow) {
  flow.state = SendFlow::State::kNoRoute;
  flow.TakeTheLongWay();
  const wire::Ipv4Address local = socket.local().address;
  std::optional<wire::Ipv4Address> source;
  if (local.IsUnicastHost()) source = local;
  // If not asked otherwise, a group leaves by the ring's interface; for the rest the kernel's
  // routes decide.
  using Groups = UdpSocket::Groups;
  const bool group = flow.peer.address.IsMulticast();
  std::optional<uint32_t> ifindex = core_->device.route_interface();
  if (group && socket.settings.groups == Groups::kByRing) ifindex = core_->device.ifindex;
  if (flow.peer.address.IsLimitedBroadcast()) ifindex = core_->device.ifindex;
  if (group && !source && !socket.group_source().IsAny()) {
    source = socket.group_source();
  }
  const host::RouteResult route =
      core_->host.routes->RouteTo(flow.peer.address, source, ifindex);
  flow.epoch = core_->host.routes_version;
  if (group && socket.settings.groups == Groups::kElsewhere) return;
  if (!route.reachable() || route.kind == host::RouteKind::kLocal || flow.peer.port == 0) return;
  if (route.ifindex != core_->device.ifindex) return;
  if (route.kind == host::RouteKind::kBroadcast && !socket.settings.broadcast) return;

  flow.source = {route.source, socket.local().port};
  flow.next_hop = route.next_hop;
  // A changed MTU is followed, but never above that of bring-up: the pool's buffers hold no more.
  flow.mtu = std::min(route.mtu, core_->device.mtu);
  flow.max_payload =
      flow.mtu - static_cast<uint32_t>(wire::kIpv4MinHeaderBytes + wire::kUdpHeaderBytes);
  if (route.kind == host::RouteKind::kMulticast) {
    flow.loopback =
        socket.settings.multicast_loop && IsHeardHere(flow.peer.address, flow.peer.port);
    return BuildHeaders(socket, flow, wire::MulticastMac(flow.peer.address));
  }
  if (route.kind == host::RouteKind::kBroadcast) {
    return BuildHeaders(socket, flow, wire::MacAddress::Broadcast());
  }
  const std::optional<wire::MacAddress> mac = neighbours_->MacOf(flow.next_hop);
  BuildHeaders(socket, flow, mac.value_or(wire::MacAddress()));
  if (mac) return;
  flow.state = SendFlow::State::kNeighbour;
  flow.TakeTheLongWay();
}

void Udp::BuildHeaders(const UdpSocket& socket, SendFlow& flow, wire::MacAddress mac) {
  const bool group = flow.peer.address.IsMulticast();
  wire::FrameTemplate::Fields fields{
      .destination_mac = mac,
      .source_mac = core_->device.nic->mac(),
      .destination = flow.peer,
      .source = flow.source,
      .ttl = group ? socket.settings.multicast_ttl : socket.settings.ttl,
      .tos = socket.settings.tos,
      .dont_fragment = socket.settings.dont_fragment};
  if (core_->device.vlan_id != 0) fields.vlan = wire::VlanTag{.id = core_->device.vlan_id};
  flow.pattern = wire::FrameTemplate(fields);
  flow.header_bytes = static_cast<uint8_t>(flow.pattern.header_bytes());
  flow.tx_flags =
      core_->device.transmit_checksum ? nic::kTxIpChecksum | nic::kTxL4Checksum : 0;
  // Must not leave the host (RFC 1112 section 6.1): all of a send but the wire.
  if (fields.ttl == 0) flow.tx_flags |= nic::kTxWarm;
  flow.state = SendFlow::State::kReady;
  const RingDevice& device = core_->device;
  const auto ip = static_cast<uint16_t>(flow.pattern.ip_offset());
  const auto udp = static_cast<uint16_t>(flow.pattern.udp_offset());
  device.queue->Prepare(
      {.bytes = flow.pattern.data(),
       .length = flow.header_bytes,
       .flags = flow.tx_flags,
       .lengths = {{{.at = static_cast<uint16_t>(ip + wire::kIpv4TotalLengthAt),
                     .constant = wire::kIpv4MinHeaderBytes + wire::kUdpHeaderBytes},
                    {.at = static_cast<uint16_t>(udp + wire::kUdpLengthAt),
                     .constant = wire::kUdpHeaderBytes}}}},
      &flow.prepared);
  // Those that may be cut on their way differ in their identification.
  const bool is_short = device.started && !device.broken && device.transmit_checksum &&
                        !flow.loopback && socket.pace() == nullptr && fields.dont_fragment &&
                        fields.ttl != 0;
  flow.short_below =
      is_short ? std::min(flow.max_payload, flow.prepared.max_payload_bytes) + 1 : 0;
  flow.stored_lengths =
      is_short && device.device_memory ? flow.max_payload + 1 - flow.short_below : 0;
}

void Udp::NeighbourSeen(wire::Ipv4Address address, wire::MacAddress mac) {
  neighbours_->Seen(address, mac);
}

namespace {

void EndWaiting(SendFlows& flows, const WaitingFrame& frame) {
  if (frame.last) --flows.waiting;
  flows.waiting_bytes -= frame.length;
}

}  // namespace

void Udp::OnPosted(const WaitingFrame& frame) {
  core_->tally.counters.fragments_sent += !frame.last || frame.length_before != 0;
  UdpSocket* socket = sockets_->Find(frame.record.socket);
  if (socket == nullptr) return;
  EndWaiting(*socket->flows, frame);
  // Those before it were not a datagram yet: one behind them may have failed.
  if (frame.last) CountSent(*socket->flows, frame.length_before + frame.length);
}

void Udp::OnFailed(const WaitingFrame& frame, int error) {
  if (frame.buffer != nullptr) packet::BufferPool::Release(frame.buffer);
  UdpSocket* socket = sockets_->Find(frame.record.socket);
  if (socket == nullptr) return;
  EndWaiting(*socket->flows, frame);
  if (!frame.last) return;
  Completion completion;
  Clear(&completion, Kind::kError);
  completion.status = error;
  completion.socket = socket->handle;
  completion.user_data = socket->user_data;
  completion.interface_index = core_->device.ifindex;
  StoreIp(frame.peer.address, &completion.destination_ip);
  completion.destination_port = frame.peer.port;
  if (socket->state == UdpSocket::State::kOpen) core_->Tell(completion);
  if (frame.record.wants == kWantNothing) return;
  if ((frame.record.wants & kWantDone) != 0 && socket->state != UdpSocket::State::kDetached) {
    completion.kind = Kind::kTxDone;
    completion.status = ECANCELED;
    completion.cookie = frame.record.cookie;
    core_->Tell(completion);
  }
  if (--socket->sends_wanted == 0) AddNews(*socket);
}

void Udp::OnConnected(const WaitingConnect& connect, int error) {
  if (IsTcp(connect.socket)) return core_->tcp->OnResolved(connect.socket, error);
  UdpSocket* socket = Find(connect.socket);
  if (socket == nullptr) return;
  Completion completion;
  Clear(&completion, Kind::kOpDone);
  completion.status = error;
  completion.socket = socket->handle;
  completion.user_data = socket->user_data;
  completion.interface_index = core_->device.ifindex;
  completion.cookie = connect.cookie;
  if (error == ENOBUFS) {
    completion.text = "connect: too many next hops are being asked for";
  } else if (error != 0) {
    completion.text = "connect: the next hop does not answer";
  }
  core_->Tell(completion);
}

void Udp::OnLost(wire::Ipv4Address next_hop) {
  Completion completion = core_->Draft(RingEvent::kNeighbourLost);
  StoreIp(next_hop, &completion.destination_ip);
  core_->Tell(completion);
}

}  // namespace xtreme::engine
