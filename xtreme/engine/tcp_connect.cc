// SPDX-License-Identifier: Apache-2.0
//
// Connecting: a port, a route and a next hop, then SYN; and how paths follow the kernel's tables.
// None of it enters the kernel.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "stack/wire/address_text.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_options_of.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine {

// The route that was looked up last. Connections go to few hosts, and of a change in the kernel's
// tables each asks again: mostly for what the one before was told.
struct TcpRoute {
  // All that the answer depends on.
  struct Asked {
    uint64_t epoch = 0;    // RingHost::routes_version.
    uint32_t ifindex = 0;  // The ring's.
    wire::Ipv4Address peer;
    wire::Ipv4Address local;  // Any: what the route says.

    friend bool operator==(const Asked&, const Asked&) = default;
  };

  Asked asked;
  host::RouteResult found;
};

namespace {

// So many are looked at in one poll when the world has changed.
constexpr uint32_t kPathsAtOnce = 32;

// How the next hop with `mac` is reached.
tcp::LinkPath PathTo(wire::MacAddress mac, const RingDevice& device, const TcpSettings& settings) {
  tcp::LinkPath path{.local = device.nic->mac(),
                     .peer = mac,
                     .tos = settings.tos,
                     .ttl = settings.ttl == 0 ? uint8_t{64} : settings.ttl};
  if (device.vlan_id != 0) path.vlan_tci = device.vlan_id;
  return path;
}

// By the kernel's tables as they are: through the ring's interface, or not at all.
host::RouteResult LookUpRoute(const RingCore& core, wire::Ipv4Address peer,
                              wire::Ipv4Address local) {
  std::optional<wire::Ipv4Address> source;
  if (!local.IsAny()) source = local;
  const host::Snapshot& routes = *core.host.routes;
  const auto to = [&] { return routes.RouteTo(peer, source, core.device.route_interface()); };
  host::RouteResult route = to();
  if (!source && route.reachable() && routes.fib().minds_source()) {
    source = route.source;
    route = to();
  }
  const bool ours =
      route.kind == host::RouteKind::kUnicast && route.ifindex == core.device.ifindex;
  if (!ours) route.kind = host::RouteKind::kUnreachable;
  return route;
}

}  // namespace

host::RouteResult Tcp::RouteOf(const wire::Endpoint& peer, wire::Ipv4Address local) const {
  const TcpRoute::Asked asked = {.epoch = core_->host.routes_version,
                                 .ifindex = core_->device.ifindex,
                                 .peer = peer.address,
                                 .local = local};
  std::shared_ptr<TcpRoute>& last = sockets_->last_route;
  if (last == nullptr) [[unlikely]] last = std::make_shared<TcpRoute>();
  if (last->asked != asked) *last = {asked, LookUpRoute(*core_, peer.address, local)};
  return last->found;
}

// At the backup too, an address of the ring's own interface: it goes back with the ring, where the
// backup's stays with that port.
wire::Ipv4Address Tcp::SourceOf(const host::RouteResult& route) const {
  const RingDevice& device = core_->device;
  if (device.ifindex == device.home_ifindex) return route.source;
  std::optional<wire::Ipv4Address> first;
  for (const host::InterfaceAddress& address : core_->host.routes->addresses()) {
    if (address.ifindex != device.home_ifindex) continue;
    if (wire::Ipv4Prefix{address.peer, address.prefix_length}.Contains(route.next_hop)) {
      return address.local;
    }
    if (!first) first = address.local;
  }
  return first.value_or(route.source);
}

Outcome Tcp::Connect(const TcpConnectOptions& options, Handle* handle) {
  core_->CheckOwner();
  constexpr const char* kAction = "connect";
  if (Outcome admitted = Admit(kAction, options.settings); !admitted.ok()) return admitted;
  const wire::Endpoint& peer = options.peer;
  if (peer.port == 0 || !peer.address.IsUnicastHost()) {
    return {EINVAL, absl::StrCat(kAction, ": ", wire::ToString(peer),
                                 " asked, a host's address and a port needed")};
  }
  if (!options.local.address.IsAny() && !IsOurs(options.local.address)) {
    return {EADDRNOTAVAIL, absl::StrCat(kAction, ": from ", wire::ToString(options.local.address),
                                        " asked, not an address of ",
                                        core_->options.interface_name)};
  }
  const host::RouteResult route = RouteOf(peer, options.local.address);
  if (!route.reachable()) {
    return {ENETUNREACH, absl::StrCat(kAction, ": no route to ", wire::ToString(peer.address),
                                      " through ", core_->options.interface_name)};
  }
  TcpSocket& socket = *sockets_->Take();
  socket.user_data = options.user_data;
  Behave(socket, options.settings, route.mtu);
  const bool any = options.local.address.IsAny();
  socket.local = {any ? SourceOf(route) : route.source, options.local.port};
  socket.peer = peer;
  StoreIp(socket.local.address, &socket.local_ip);
  StoreIp(socket.peer.address, &socket.peer_ip);
  *handle = socket.handle;
  if (socket.local.port != 0) {
    StartOpen(socket, options.kernel_socket);
  } else if (HasPort(socket)) {
    GoOnBy(socket, route);
  }
  return {};
}

void Tcp::Behave(TcpSocket& socket, const TcpSettings& settings, uint32_t mtu) {
  socket.profile =
      sockets_->profiles.Hold(settings, MssOf(settings, std::min(mtu, core_->device.mtu)));
}

// The next step of a connect: whatever is missing is started, and comes back here.
void Tcp::GoOn(TcpSocket& socket) {
  if (!HasPort(socket)) return;
  const host::RouteResult route = RouteOf(socket.peer, socket.local.address);
  if (!route.reachable()) return End(socket, EHOSTUNREACH);
  Behave(socket, socket.profile->settings, route.mtu);
  GoOnBy(socket, route);
}

bool Tcp::HasPort(const TcpSocket& socket) {
  if (!core_->device.started) return false;
  if (socket.port != nullptr) return socket.port->state == TcpPort::State::kReady;
  if (ports_->state == TcpPorts::State::kReady) return true;
  StartPorts();
  return false;
}

void Tcp::GoOnBy(TcpSocket& socket, const host::RouteResult& route) {
  socket.next_hop = route.next_hop;
  const std::optional<wire::MacAddress> mac = neighbours_->MacOf(route.next_hop);
  if (!mac) {
    const int error = neighbours_->Wait(route.next_hop, WaitingConnect{.socket = socket.handle});
    if (error != 0) End(socket, error);
    return;
  }
  SendSyn(socket, PathTo(*mac, core_->device, socket.profile->settings));
}

void Tcp::SendSyn(TcpSocket& socket, const tcp::LinkPath& path) {
  tcp::Stack::Opened opened{.error = EADDRINUSE};
  const auto try_port = [&](uint16_t port) {
    opened = stack_->Open({.local = {socket.local.address, port},
                           .remote = socket.peer,
                           .vlan_id = core_->device.vlan_id,
                           .options = &socket.profile->options,
                           .path = path,
                           .user = reinterpret_cast<uintptr_t>(&socket)},
                          core_->clock.Now());
    socket.local.port = port;
    return opened.error != EADDRINUSE;
  };
  socket.port != nullptr ? try_port(socket.local.port) : ports_->TryEach(try_port);
  if (opened.connection == nullptr) return End(socket, opened.error);
  socket.connection = opened.connection;
  socket.state = TcpSocket::State::kOpen;
  HandOverEarly(socket);
  EndCall(/*ring=*/true);
}

void Tcp::OnResolved(Handle handle, int error) {
  TcpSocket* socket = sockets_->Find(handle);
  if (socket == nullptr || socket->state != TcpSocket::State::kOpening) return;
  error == 0 ? GoOn(*socket) : End(*socket, error);
}

void Tcp::OnStart() {
  if (stack_ == nullptr) return;
  stack_->SetLinkMtu(LinkMtu());
  sockets_->ForEach([this](TcpSocket& socket) {
    if (socket.state == TcpSocket::State::kOpening) GoOn(socket);
  });
}

// --- Paths follow ---

// Looked at when something is sent, not for every change: what is idle costs nothing. Some each
// poll, until it was all of them; who sends meanwhile is looked at as it does.
void Tcp::FollowSome() {
  constexpr uint32_t kPlacesAtOnce = 512;
  auto& [epoch, next, left, end] = following_;
  uint64_t& world = core_->host.routes_version;
  if (epoch != world) {
    end = left = sockets_->used();
    if (next >= end) next = 0;
  }
  uint32_t paths = 0;
  for (uint32_t places = 0; left > 0 && paths < kPathsAtOnce && places < kPlacesAtOnce; ++places) {
    TcpSocket& socket = sockets_->At(next);
    next = next + 1 == end ? 0 : next + 1;
    --left;
    if (socket.state != TcpSocket::State::kOpen) continue;
    Refresh(socket);
    ++paths;
  }
  epoch = world;  // Asking for a neighbour may itself have moved it on.
  if (left > 0) {
    core_->attention |= kTcpNews;  // The next poll goes on.
    return;
  }
  epoch_ = epoch;
  // Whatever of the device changes moves the version on.
  const RingDevice& device = core_->device;
  const bool may = device.started && !device.broken && device.transmit_checksum &&
                   device.pool->payload_bytes() >= nic::StreamSegment::kPayloadReadable;
  direct_epoch_ = may ? epoch_ : 0;
  ChooseSend();
}

void Tcp::FollowPaths() {
  if (epoch_ != core_->host.routes_version) [[unlikely]] FollowSome();
}

void Tcp::FollowPaths(TcpSocket& socket) {
  if (epoch_ != core_->host.routes_version) [[unlikely]] FollowNow(socket);
}

// Whether the others are looked at yet or not.
void Tcp::FollowNow(TcpSocket& socket) {
  if (sockets_->used() <= kPathsAtOnce) return FollowSome();
  const bool begun = following_.epoch == core_->host.routes_version;
  if (socket.state == TcpSocket::State::kOpen) Refresh(socket);
  if (begun) following_.epoch = core_->host.routes_version;
  core_->attention |= kTcpNews;
}

void Tcp::RefreshPaths() {
  following_.epoch = 0;
  do {
    FollowSome();
  } while (following_.left > 0);
}

// Of the port that the ring is on, whose queues take nothing longer, and of the interface now.
uint32_t Tcp::LinkMtu() const {
  const host::Interface* interface = core_->host.routes->FindInterface(core_->device.ifindex);
  return interface == nullptr ? core_->device.mtu : std::min(core_->device.mtu, interface->mtu);
}

void Tcp::OnMoved() {
  if (stack_ == nullptr) return;
  door_->ifindex.store(core_->device.ifindex, std::memory_order_relaxed);
  RefreshPaths();
  stack_->SetOwedSource(core_->device.nic->mac());
  OnLinkUp();
}

void Tcp::OnLinkUp() {
  if (stack_ == nullptr) return;
  stack_->OnLinkUp(core_->clock.Now());
  EndCall(/*ring=*/false);
}

// What it sends from here on has the time to live and the type of service of its settings, and goes
// where it went.
void Tcp::MarkPath(TcpSocket& socket) {
  if (socket.state != TcpSocket::State::kOpen || socket.connection == nullptr) return;
  const uint8_t* ethernet = socket.connection->headers().data();
  tcp::LinkPath path =
      PathTo(wire::MacAddress::Load(ethernet), core_->device, socket.profile->settings);
  path.local = wire::MacAddress::Load(ethernet + wire::MacAddress::kBytes);
  stack_->SetPath(*socket.connection, path);
}

// `accepted`: just now, so that it goes the way its frames came. They may be older than what is
// known of the peer, which has moved since; a peer of which nothing is known is not asked for.
void Tcp::Refresh(TcpSocket& socket, bool accepted) {
  const host::RouteResult route = RouteOf(socket.peer, socket.local.address);
  if (!route.reachable()) return;  // It may come back before the connection gives up.
  socket.next_hop = route.next_hop;
  // Both ends of the path: a ring may have moved to another port, of the same networks, where the
  // next hop's address is the same until it is known better.
  const uint8_t* ethernet = socket.connection->headers().data();
  const auto before = wire::MacAddress::Load(ethernet);
  const auto known = accepted ? neighbours_->KnownMacOf(route.next_hop)
                              : neighbours_->MacOf(route.next_hop);
  const wire::MacAddress mac = known.value_or(before);
  if (mac == before &&
      core_->device.nic->mac() == wire::MacAddress::Load(ethernet + wire::MacAddress::kBytes)) {
    return;
  }
  stack_->SetPath(*socket.connection, PathTo(mac, core_->device, socket.profile->settings));
}

}  // namespace xtreme::engine
