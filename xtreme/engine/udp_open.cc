// SPDX-License-Identifier: Apache-2.0
//
// Opening a socket: what can be known at once is refused at once; port and rules are started.

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/udp/demux.h"
#include "stack/wire/address_text.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/port_stock.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/reassembly.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/slow_path.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/snapshot.h"

namespace xtreme::engine {
namespace {

// What opening a socket asks of the control thread.
struct OpenWork {
  Handle handle;
  wire::Endpoint local;
  bool reuse;
  bool deliver;
  int kernel_socket;
  std::unique_ptr<KernelPort> port;  // Null: it is to be leased.
  std::vector<nic::FlowRule> rules;
  std::shared_ptr<ControlSide> side;
  std::shared_ptr<Mailbox> mailbox;
  ControlThread* control;

  absl::Status Run(bool* fallback) {
    SocketHoldings& holdings = side->HoldingsOf(handle);
    holdings.port = std::move(port);
    if (holdings.port == nullptr) {
      auto leased = kernel_socket < 0 ? side->kernel->LeasePort(local, reuse, deliver)
                                      : side->kernel->AdoptPort(kernel_socket, deliver);
      if (!leased.ok()) return leased.status();
      holdings.port = *std::move(leased);
    }
    ServePort(*control, *side, handle);
    for (const nic::FlowRule& rule : rules) {
      auto held = side->rules.Hold(rule);
      if (!held.ok()) return held.status();
      holdings.rules.Add(held->entry);
      *fallback |= held->fallback;
    }
    return absl::OkStatus();
  }
};

// By which the listeners to broadcasts are counted: those of any address get them too.
uint64_t BroadcastKey(uint16_t vlan_id, uint16_t port) {
  return udp::BindingKey(wire::Ipv4Address::Any(), vlan_id, port);
}

}  // namespace

UdpSocket::UdpSocket(const udp::Endpoint::Options& options) : udp::Endpoint(options) {}
UdpSocket::~UdpSocket() = default;

UdpSeldom& UdpSocket::Seldom() {
  if (seldom == nullptr) seldom = std::make_unique<UdpSeldom>();
  return *seldom;
}

Udp::Udp(RingCore* core)
    : core_(core),
      demux_(std::make_unique<udp::Demux>()),
      sockets_(std::make_unique<SocketTable>(core->options.number, core->options.max_sockets)),
      neighbours_(std::make_unique<Neighbours>(core, this)),
      ledger_(std::make_unique<FrameLedger>()),
      ports_(std::make_unique<PortStock>()),
      prepared_(std::make_unique<PreparedOf<Udp>>(this)),
      next_id_(static_cast<uint16_t>(std::random_device()())) {
  core_->known.Watch(demux_->changes_counter());
  demux_->SetLocalAddresses(LocalAddresses());
  if (core->options.fragments == Fragments::kOwn) {
    // Fragments may hold a quarter of the pool.
    const packet::BufferPool& pool = *core->device.pool;
    reassembly_ = std::make_unique<Reassembly>(ip::Reassembler::Options{
        .datagrams = core->options.reassembly_datagrams,
        .buffers = pool.capacity() / 4,
        .bytes = size_t{pool.capacity()} / 4 * pool.payload_bytes()});
  }
}

Udp::~Udp() {
  if (reassembly_ != nullptr) core_->wheel.Cancel(&reassembly_->timer);
  sockets_->ForEach([this](UdpSocket& socket) {
    if (socket.attached()) demux_->Detach(socket);
  });
}

std::span<std::byte> Udp::memory() { return sockets_->memory(); }

UdpSocket* Udp::Find(Handle handle) const {
  UdpSocket* socket = sockets_->Find(handle);
  return socket != nullptr && socket->state == UdpSocket::State::kOpen ? socket : nullptr;
}

Outcome Udp::ChooseLocal(const UdpOptions& options, wire::Endpoint* local) const {
  *local = options.local;
  const wire::Ipv4Address address = local->address;
  const bool bindable = address.IsAny() || address.IsMulticast() || demux_->IsLocal(address) ||
                        demux_->IsBroadcast(address);
  if (!bindable) {
    return {EADDRNOTAVAIL, absl::StrCat("open UDP socket: ", wire::ToString(address),
                                        " asked, not an address of ",
                                        core_->options.interface_name)};
  }
  if (local->port == 0) return {};
  const uint16_t vlan_id = core_->device.vlan_id;
  const uint64_t key = udp::BindingKey(address, vlan_id, local->port);
  const bool taken = demux_->HasBinding(key) || sockets_->HasConnected(key) ||
                     sockets_->Listeners(key) > 0;
  if (!options.reuse && taken) {
    return {EADDRINUSE, absl::StrCat("open UDP socket: ", wire::ToString(*local),
                                     " asked, another socket of the ring has it")};
  }
  // A broadcast is taken when there is room for a completion of each.
  const bool hears_broadcasts = address.IsAny() || demux_->IsBroadcast(address);
  if (hears_broadcasts && sockets_->Listeners(BroadcastKey(vlan_id, local->port)) + 1 >=
                              core_->options.completions) {
    return {ENOBUFS, absl::StrCat("open UDP socket: ", wire::ToString(*local),
                                  " asked, completions ", core_->options.completions,
                                  " are too few for one more listener there")};
  }
  return {};
}

// Of a socket that is attached; of a group, its memberships are counted.
void Udp::CountLocal(const UdpSocket& socket, int change) {
  const wire::Endpoint& local = socket.local();
  const uint16_t vlan_id = core_->device.vlan_id;
  switch (socket.binding().kind) {
    case udp::Binding::Kind::kConnected:
      sockets_->CountConnected(udp::BindingKey(local.address, vlan_id, local.port), change);
      break;
    case udp::Binding::Kind::kWildcard:
    case udp::Binding::Kind::kBroadcast:
      core_->fanout = sockets_->CountListener(BroadcastKey(vlan_id, local.port), change);
      break;
    case udp::Binding::Kind::kUnicast:
    case udp::Binding::Kind::kGroup: break;
  }
}

Outcome Udp::Open(const UdpOptions& options, Handle* handle) {
  core_->CheckOwner();
  if (options.flow_tag > kMostFlowTag) {
    return {EINVAL, absl::StrCat("open UDP socket: flow tag ", options.flow_tag,
                                 " asked, at most ", kMostFlowTag)};
  }
  udp::Endpoint::Options endpoint{.vlan_id = core_->device.vlan_id};
  if (Outcome chosen = ChooseLocal(options, &endpoint.local); !chosen.ok()) return chosen;
  std::unique_ptr<KernelPort> port;
  if (endpoint.local.port == 0) {
    port = ports_->Take();
    if (port == nullptr) {
      return {EAGAIN, "open UDP socket: any port asked, none is leased yet: poll, then open again"};
    }
    endpoint.local.port = port->local().port;
  }
  UdpSocket* const socket = sockets_->Take(endpoint);
  if (socket == nullptr) {
    if (port != nullptr) ports_->Add(std::move(port));
    return {EMFILE, absl::StrCat("open UDP socket: max_sockets ", core_->options.max_sockets,
                                 " are open")};
  }
  UdpSocket& opened = *socket;
  *handle = opened.handle;
  opened.user_data = options.user_data;
  opened.settings = {
      .ttl = options.ttl == 0 ? uint8_t{64} : options.ttl,
      .multicast_ttl = options.multicast_ttl == 0 ? uint8_t{1} : options.multicast_ttl,
      .tos = options.tos,
      .multicast_loop = options.multicast_loop,
      .broadcast = options.broadcast,
      .reuse = options.reuse,
      .kernel_unicast = options.kernel_unicast};
  opened.SetFlowTag(options.flow_tag);
  if (options.max_held > 0) {
    if (sockets_->serials == nullptr) {
      sockets_->serials = std::make_unique<BufferSerials>(core_->device.pool->capacity());
    }
    // More than there are cannot be held.
    const uint32_t limit = std::min(options.max_held, core_->device.pool->capacity());
    opened.Seldom().held = std::make_unique<HeldBuffers>(limit, sockets_->serials.get());
  }
  demux_->Attach(opened);
  CountLocal(opened, +1);
  StartOpen(opened, options.kernel_socket, std::move(port));
  StockPorts();
  return {};
}

void Udp::StartOpen(UdpSocket& socket, int kernel_socket, std::unique_ptr<KernelPort> port) {
  OpenWork work{.handle = socket.handle,
                .local = socket.local(),
                .reuse = socket.settings.reuse,
                .deliver = core_->options.fragments == Fragments::kKernel ||
                           socket.settings.kernel_unicast,
                .kernel_socket = kernel_socket,
                .port = std::move(port),
                .rules = RulesOf(socket),
                .side = core_->host.control_side,
                .mailbox = core_->host.mailbox,
                .control = core_->host.control};
  core_->Start(MakeOperation([work = std::move(work)]() mutable {
    bool fallback = false;
    const Outcome outcome = OutcomeOf(work.Run(&fallback));
    work.mailbox->Push(MakeNotice([handle = work.handle, outcome, fallback](Ring& ring) {
      ring.udp().OpDone(handle, 0, outcome, fallback);
    }));
  }));
}

void Udp::StockPorts() {
  const size_t wanted = ports_->Wanted();
  if (wanted == 0) return;
  core_->Start(MakeOperation([wanted, side = core_->host.control_side,
                              deliver = core_->options.fragments == Fragments::kKernel,
                              mailbox = core_->host.mailbox] {
    auto leased = std::make_shared<std::vector<std::unique_ptr<KernelPort>>>();
    for (size_t i = 0; i < wanted; ++i) {
      auto port = side->kernel->LeasePort({}, /*reuse=*/false, deliver);
      if (!port.ok()) break;
      leased->push_back(*std::move(port));
    }
    mailbox->Push(MakeNotice([wanted, leased](Ring& ring) {
      for (auto& port : *leased) ring.udp().ports().Add(std::move(port));
      ring.udp().ports().Delivered(wanted);
    }));
  }));
}

}  // namespace xtreme::engine
