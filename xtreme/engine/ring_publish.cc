// SPDX-License-Identifier: Apache-2.0
//
// The counters of a ring and its sockets, published for other programs: a few hundred stores, once
// a second, and nothing per packet.

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "stack/tcp/connection.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/udp.h"
#include "xtreme/stats/publisher.h"

namespace xtreme::engine {
namespace {

using Names = std::vector<stats::Publisher::Name>;

constexpr size_t CountersOfUdp() {
  return udp::EndpointCounters::Table().size() + udp::GroupCounters::Table().size() +
         SendCounters::Table().size() + UdpCounters::Table().size() +
         HeldCounters::Table().size();
}

Names SocketNames() {
  Names names;
  const auto add = [&names](std::string_view name, std::string_view meaning, const uint64_t&) {
    names.push_back({"udp", name, meaning});
  };
  base::VisitCounters(udp::EndpointCounters(), add);
  base::VisitCounters(udp::GroupCounters(), add);
  base::VisitCounters(SendCounters(), add);
  base::VisitCounters(UdpCounters(), add);
  base::VisitCounters(HeldCounters(), add);
  const auto add_tcp = [&names](std::string_view name, std::string_view meaning,
                                const uint64_t&) { names.push_back({"tcp", name, meaning}); };
  base::VisitCounters(TcpCounters(), add_tcp);
  return names;
}

std::string_view NameOf(UdpSocket::State state) {
  switch (state) {
    case UdpSocket::State::kOpen: return "open";
    case UdpSocket::State::kClosing: return "closing";
    case UdpSocket::State::kTerminated: return "terminated";
    case UdpSocket::State::kDetached: break;
  }
  return "detached";
}

stats::SocketHeader HeaderOf(const UdpSocket& socket) {
  stats::SocketHeader header = {};
  header.handle = socket.handle;
  StoreIp(socket.local().address, &header.local_ip);
  StoreIp(socket.remote().address, &header.remote_ip);
  header.local_port = socket.local().port;
  header.remote_port = socket.remote().port;
  header.protocol = IPPROTO_UDP;
  const std::string_view state = NameOf(socket.state);
  std::copy(state.begin(), state.end(), header.state.begin());
  return header;
}

std::string_view NameOf(const TcpSocket& socket) {
  if (socket.state == TcpSocket::State::kListening) return "LISTEN";
  if (socket.state == TcpSocket::State::kEnded) return "ended";
  if (socket.connection == nullptr) return "opening";
  return tcp::NameOf(socket.connection->state());
}

stats::SocketHeader HeaderOf(const TcpSocket& socket) {
  stats::SocketHeader header = {};
  header.handle = socket.handle;
  StoreIp(socket.local.address, &header.local_ip);
  StoreIp(socket.peer.address, &header.remote_ip);
  header.local_port = socket.local.port;
  header.remote_port = socket.peer.port;
  header.protocol = IPPROTO_TCP;
  const std::string_view state = NameOf(socket);
  std::copy(state.begin(), state.end(), header.state.begin());
  return header;
}

void PublishTcp(const TcpSocket& socket, stats::Publisher* to) {
  if (!to->BeginSocket(HeaderOf(socket))) return;
  // Behind those of UDP.
  for (size_t i = 0; i < CountersOfUdp(); ++i) to->PutOfSocket(0);
  base::VisitCounters(socket.counters, [to](std::string_view, std::string_view,
                                            const uint64_t& value) { to->PutOfSocket(value); });
}

void PublishGroups(const UdpSocket& socket, stats::Publisher* to) {
  for (const auto& membership : socket.memberships()) {
    stats::GroupEntry entry = {};
    entry.socket = socket.handle;
    StoreIp(membership->group, &entry.group_ip);
    entry.port = socket.local().port;
    entry.vlan_id = membership->vlan_id;
    to->PutGroup(entry);
  }
}

}  // namespace

// Who publishes is part of what the ring got; a ring without is a ring all the same.
void Ring::OpenPublisher() {
  if (core_->options.counters_directory.empty()) return;
  Names names;
  VisitCounters([&names](std::string_view scope, std::string_view name, std::string_view meaning,
                         uint64_t) { names.push_back({scope, name, meaning}); });
  auto publisher = stats::Publisher::Create(
      {.directory = core_->options.counters_directory,
       .access = core_->options.counters_access,
       .ring = core_->options.number,
       .interface = core_->options.interface_name,
       .program = program_invocation_short_name,
       .ring_counters = std::move(names),
       .socket_counters = SocketNames(),
       .socket_slots = std::min(core_->options.max_sockets, stats::kMaxSocketSlots),
       .group_slots = std::min(core_->options.max_groups, stats::kMaxGroupSlots)});
  if (!publisher.ok()) {
    absl::StrAppend(&description_, "; ", publisher.status().message());
    return;
  }
  publisher_ = *std::move(publisher);
  absl::StrAppend(&description_, "; counters in ", publisher_->path());
  Publish();
}

void Ring::Publish() {
  PublishAs(/*closed=*/false);
  NoteLosses();
}

void Ring::PublishAs(bool closed) {
  if (publisher_ == nullptr) return;
  stats::Publisher& to = *publisher_;
  prepared_->Settle();
  to.Begin();
  VisitCounters([&to](std::string_view, std::string_view, std::string_view, uint64_t value) {
    to.Put(value);
  });
  const auto put = [&to](std::string_view, std::string_view, const uint64_t& value) {
    to.PutOfSocket(value);
  };
  to.Describe(description_);
  udp_->sockets().ForEach([&](const UdpSocket& socket) {
    PublishGroups(socket, &to);
    if (!to.BeginSocket(HeaderOf(socket))) return;
    base::VisitCounters(socket.counters(), put);
    base::VisitCounters(socket.group_counters(), put);
    base::VisitCounters(SendFlows::CountersOf(socket.flows.get()), put);
    base::VisitCounters(socket.sends, put);
    base::VisitCounters(HeldBuffers::CountersOf(socket.held()), put);
  });
  if (tcp_->table() != nullptr) {
    tcp_->table()->ForEach([&to](const TcpSocket& socket) { PublishTcp(socket, &to); });
  }
  to.End(Now().count(), closed);
}

}  // namespace xtreme::engine
