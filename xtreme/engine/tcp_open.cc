// SPDX-License-Identifier: Apache-2.0
//
// Opening: what can be known at once is refused at once; ports and rules are started.

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/tcp/stack.h"
#include "stack/wire/address_text.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_options_of.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/host/icmp_errors.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {
namespace {

// What connections share: `each` for the first so many, and one for each of the others, for not all
// of very many are busy at once.
uint32_t Shared(uint32_t connections, uint32_t each) {
  constexpr uint32_t kBusy = 4096;
  return connections <= kBusy ? each * connections : each * kBusy + (connections - kBusy);
}

// What comes after holes waits in buffers of the ring, and so that what fills the holes finds one,
// in no more than half of them, and a quarter for one connection.
tcp::Stack::Options StackOptions(const RingOptions& ring, uint32_t buffers) {
  constexpr uint32_t kMostOpening = 16'384;  // SYN cookies serve the others.
  constexpr uint32_t kMostHeld = 16'384;
  const uint32_t connections = ring.max_connections;
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  return {.connections = connections,
          .segments = std::max(1024u, Shared(connections, 8)),
          .deliveries = std::max(256u, ring.completions),
          .syn_queue = std::clamp(connections, 256u, kMostOpening),
          .time_wait = std::max(1024u, Shared(connections, 4)),
          .time_wait_duration = base::Milliseconds(ring.tcp_time_wait_ms),
          .held_segments = std::min(buffers / 2, kMostHeld),
          .held_buffers = std::min(buffers / 4, kMostHeld),
          .secret = {word(), word()}};
}

// A buffer came back on another thread: the next poll credits its bytes.
class Bell final : public packet::ReturnBell {
 public:
  explicit Bell(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}
  void Ring() override { mailbox_->Knock(); }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

// What opening asks of the control thread.
struct LeaseWork {
  wire::Endpoint local;
  uint8_t count_log2 = 0;
  int kernel_socket = -1;
  std::vector<nic::FlowRule> rules;  // Their port counts from 0.
  std::shared_ptr<ControlSide> side;
  std::shared_ptr<SocketHoldings> holdings;

  absl::Status Run(bool* fallback) {
    auto port = kernel_socket < 0
                    ? side->kernel->LeaseTcpPorts(local, count_log2)
                    : side->kernel->AdoptPort(kernel_socket, /*deliver=*/false);
    if (!port.ok()) return port.status();
    holdings->port = *std::move(port);
    for (nic::FlowRule& rule : rules) {
      rule.match.destination_port = holdings->port->local().port;
      auto held = side->rules.Hold(rule);
      if (!held.ok()) return held.status();
      holdings->rules.Add(held->entry);
      *fallback |= held->fallback;
    }
    return absl::OkStatus();
  }
};

}  // namespace

Tcp::Tcp(RingCore* core, Neighbours* neighbours, FrameLedger* ledger)
    : core_(core),
      neighbours_(neighbours),
      ledger_(ledger),
      device_(std::make_unique<TcpDevice>(core)),
      prepared_(std::make_unique<PreparedOf<Tcp>>(this)) {
  if (core->options.max_connections == 0) return;
  sockets_ = std::make_unique<TcpSockets>(core->options.number, core->options.max_connections);
  ports_ = std::make_unique<TcpPorts>(core->options.tcp_ports_log2);
  ports_->addresses = OwnAddresses();
  icmp_refusals_ = std::make_unique<host::IcmpRefusals>();
  stack_ = std::make_unique<tcp::Stack>(
      StackOptions(core->options, core->device.pool->capacity()), *device_, *core->device.pool,
      core->clock.Now());
  frame_ = std::make_unique<wire::TcpFrame>();
  core->device.pool->OnReturn(&Tcp::OnReturn, this);
  core->known.SetOthers({.take = &Tcp::Take, .context = this});
  core->device.pool->SetBell(std::make_shared<Bell>(core->host.mailbox));
  door_ = std::make_shared<TcpDoor>();
  door_->mailbox = core->host.mailbox;
  door_->side = core->host.control_side;
  door_->vlan_id = core->device.vlan_id;
  door_->capacity = sockets_->capacity();
  door_->ifindex = core->device.ifindex;
  door_->open = sockets_->open;
}

Outcome Tcp::Admit(const char* action, const TcpSettings& settings) const {
  if (stack_ == nullptr) {
    return {EOPNOTSUPP, absl::StrCat(action, ": the ring was opened with max_connections 0")};
  }
  if (const char* wrong = WrongIn(settings); wrong != nullptr) {
    return {EINVAL, absl::StrCat(action, ": setting ", wrong, " is out of range")};
  }
  if (sockets_->size() == sockets_->capacity()) {
    return {EMFILE, absl::StrCat(action, ": max_connections ", sockets_->capacity(),
                                 " connections and listeners are open")};
  }
  return {};
}

std::vector<wire::Ipv4Address> Tcp::OwnAddresses() const {
  std::vector<wire::Ipv4Address> own;
  for (const host::InterfaceAddress& address : core_->host.routes->addresses()) {
    if (core_->device.Owns(address.ifindex)) own.push_back(address.local);
  }
  return own;
}

bool Tcp::IsOurs(wire::Ipv4Address address) const {
  return std::ranges::count(ports_->addresses, address) != 0;
}

nic::FlowRule Tcp::AnyRule() const {
  nic::FlowRule rule;
  rule.match.destination_mac = core_->device.nic->mac();
  if (core_->device.vlan_id != 0) rule.match.vlan_id = core_->device.vlan_id;
  rule.match.protocol = wire::kIpProtocolTcp;
  return rule;
}

// Of one connection, by both ends.
nic::FlowRule Tcp::RuleOf(const tcp::FlowKey& key) const {
  nic::FlowRule rule = AnyRule();
  rule.match.source_ip = key.remote().address;
  rule.match.source_port = key.remote().port;
  rule.match.destination_ip = key.local().address;
  rule.match.destination_port = key.local().port;
  return rule;
}

// One for each address; the control thread fills in the port.
std::vector<nic::FlowRule> Tcp::RulesOf(const wire::Endpoint& local, uint16_t port_mask) const {
  std::vector<nic::FlowRule> rules;
  nic::FlowRule rule = AnyRule();
  rule.match.destination_port = local.port;
  rule.match.destination_port_mask = port_mask;
  for (const wire::Ipv4Address own : ports_->addresses) {
    if (!local.address.IsAny() && local.address != own) continue;
    rule.match.destination_ip = own;
    rules.push_back(rule);
  }
  return rules;
}

Outcome Tcp::OpenListener(const TcpListenerOptions& options, Handle* handle) {
  core_->CheckOwner();
  constexpr const char* kAction = "open listener";
  if (Outcome admitted = Admit(kAction, options.settings); !admitted.ok()) return admitted;
  const wire::Endpoint& local = options.local;
  if (local.port == 0 || options.backlog == 0) {
    return {EINVAL, absl::StrCat(kAction, ": ", local.port == 0 ? "no port" : "backlog 0",
                                 " asked")};
  }
  if (options.syns_per_second > kMostSynsPerSecond) {
    return {EINVAL, absl::StrCat(kAction, ": ", options.syns_per_second,
                                 " SYNs a second asked, 0 to ", kMostSynsPerSecond, " possible")};
  }
  if (!local.address.IsAny() && !IsOurs(local.address)) {
    return {EADDRNOTAVAIL, absl::StrCat(kAction, ": ", wire::ToString(local.address),
                                        " asked, not an address of ",
                                        core_->options.interface_name)};
  }
  TcpSocket& socket = *sockets_->Take();
  Behave(socket, options.settings, core_->device.mtu);
  socket.listener = stack_->OpenListener({.local = local,
                                          .vlan_id = core_->device.vlan_id,
                                          .options = &socket.profile->options,
                                          .backlog = options.backlog,
                                          .user = reinterpret_cast<uintptr_t>(&socket),
                                          .syns_per_second = options.syns_per_second,
                                          .hushed = options.hushed,
                                          .holds = options.holds});
  if (socket.listener == nullptr) {
    sockets_->Put(&socket);
    return {EADDRINUSE, absl::StrCat(kAction, ": ", wire::ToString(local),
                                     " asked, another listener of the ring has it")};
  }
  socket.state = TcpSocket::State::kListening;
  socket.user_data = options.user_data;
  socket.local = local;
  *handle = socket.handle;
  StartOpen(socket, options.kernel_socket);
  return {};
}

Outcome Tcp::Welcome(Handle handle) {
  core_->CheckOwner();
  TcpSocket* const socket = Find(handle);
  if (socket == nullptr || socket->listener == nullptr) return {EBADF, "welcome: no listener"};
  stack_->Welcome(*socket->listener);
  return {};
}

Outcome Tcp::SetBacklog(Handle handle, uint32_t backlog) {
  core_->CheckOwner();
  TcpSocket* const socket = Find(handle);
  if (socket == nullptr || socket->listener == nullptr) return {EBADF, "set backlog: no listener"};
  stack_->SetBacklog(*socket->listener, backlog);
  return {};
}

Outcome Tcp::TookOne(Handle handle) {
  core_->CheckOwner();
  TcpSocket* const socket = Find(handle);
  if (socket == nullptr || socket->listener == nullptr) return {EBADF, "took one: no listener"};
  stack_->TookOne(*socket->listener);
  return {};
}

// The port of a listener that went may stand still: its children receive by it. One that is being
// leased for another socket is for this one too.
void Tcp::StartOpen(TcpSocket& socket, int kernel_socket) {
  socket.port = kernel_socket < 0 ? ports_->Find(socket.local) : nullptr;
  if (socket.port == nullptr) return StartLease(socket, kernel_socket);
  ++socket.port->users;
  if (socket.port->state == TcpPort::State::kStarted) return;
  core_->Start(MakeOperation([handle = socket.handle, mailbox = core_->host.mailbox] {
    mailbox->Push(MakeNotice([handle](Ring& ring) { ring.tcp().OnOpened(handle, {}); }));
  }));
}

void Tcp::StartLease(TcpSocket& socket, int kernel_socket) {
  socket.port = ports_->Add(socket.local);
  socket.port->holdings = std::make_shared<SocketHoldings>();
  LeaseWork work{.local = socket.local,
                 .kernel_socket = kernel_socket,
                 .rules = RulesOf(socket.local, 0xFFFF),
                 .side = core_->host.control_side,
                 .holdings = socket.port->holdings};
  core_->Start(MakeOperation([work = std::move(work), key = socket.port->key,
                              handle = socket.handle, mailbox = core_->host.mailbox]() mutable {
    bool fallback = false;
    const Outcome outcome = OutcomeOf(work.Run(&fallback));
    mailbox->Push(MakeNotice([key, handle, outcome, fallback](Ring& ring) {
      ring.tcp().OnLeased(key, handle, outcome, fallback);
    }));
  }));
}

// Whoever waited for it goes on: mostly who asked for it, alone.
void Tcp::OnLeased(const TcpPortKey& key, Handle asked, const Outcome& outcome, bool fallback) {
  if (fallback) core_->TellFallback();
  TcpPort* const port = ports_->FindBy(key);
  if (port == nullptr) return;
  port->state = outcome.ok() ? TcpPort::State::kReady : TcpPort::State::kNone;
  const TcpSocket* const first = sockets_->Find(asked);
  if (port->users == 1 && first != nullptr && first->port == port) return OnOpened(asked, outcome);
  sockets_->ForEach([&](TcpSocket& socket) {
    if (socket.port == port) OnOpened(socket.handle, outcome);
  });
}

void Tcp::OnOpened(Handle handle, const Outcome& outcome) {
  TcpSocket* socket = sockets_->Find(handle);
  if (socket == nullptr || socket->port == nullptr || socket->closed) return;
  const bool waits = socket->state == TcpSocket::State::kOpening ||
                     socket->state == TcpSocket::State::kListening;
  if (!waits) return;  // Accepted, or it has ended.
  if (socket->state == TcpSocket::State::kOpening) {
    return outcome.ok() ? GoOn(*socket) : End(*socket, outcome.error);
  }
  // Those that waited with it may have taken the room.
  Completion done = core_->Draft(Kind::kOpDone);
  done.status = outcome.error;
  done.socket = handle;
  done.user_data = socket->user_data;
  // The notice that brought it lives until it was handed out.
  done.text = outcome.ok() ? nullptr : outcome.text.c_str();
  core_->Tell(done);
}

// The last one that receives by it has the control thread give it back.
void Tcp::LeavePort(TcpSocket& socket) {
  TcpPort* const port = std::exchange(socket.port, nullptr);
  if (port == nullptr) return;
  socket.released = port->users > 1;
  GiveBack(port, socket.handle);
}

// `user`, or 0: one that has moved away, receives by it no more.
void Tcp::GiveBack(TcpPort* port, Handle user) {
  if (--port->users > 0) return;
  core_->Start(MakeOperation([user, local = port->local, side = core_->host.control_side,
                              holdings = std::move(port->holdings),
                              control = core_->host.control, mailbox = core_->host.mailbox] {
    if (holdings != nullptr) holdings->Release(*side, *control);
    mailbox->Push(
        MakeNotice([user, local](Ring& ring) { ring.tcp().OnReleased(user, local); }));
  }));
  ports_->Remove(*port);
}

void Tcp::OnReleased(Handle handle, const wire::Endpoint& local) {
  ports_->OnReleased(local.port);
  stack_->ForgetClosed(local, core_->device.vlan_id);
  TcpSocket* socket = sockets_->Find(handle);
  if (socket == nullptr) return;
  socket->released = true;
  TellEnd(*socket);
}

// --- The block of ports for connects ---

void Tcp::StartPorts() {
  if (ports_->state != TcpPorts::State::kNone) return;
  ports_->state = TcpPorts::State::kStarted;
  ports_->holdings = std::make_shared<SocketHoldings>();
  LeaseWork work{.local = {},
                 .count_log2 = static_cast<uint8_t>(core_->options.tcp_ports_log2),
                 .rules = RulesOf({}, ports_->mask()),
                 .side = core_->host.control_side,
                 .holdings = ports_->holdings};
  core_->Start(MakeOperation([work = std::move(work), mailbox = core_->host.mailbox,
                              control = core_->host.control]() mutable {
    bool fallback = false;
    Outcome outcome = OutcomeOf(work.Run(&fallback));
    if (work.holdings->port == nullptr) outcome.error = EADDRINUSE;  // Without a rule: why.
    const uint16_t first = outcome.ok() ? work.holdings->port->local().port : 0;
    if (!outcome.ok()) work.holdings->Release(*work.side, *control);
    mailbox->Push(MakeNotice([first, outcome, fallback](Ring& ring) {
      ring.tcp().OnPorts(first, outcome, fallback);
    }));
  }));
}

// --- Addresses follow ---

// Ports on any address take the new ones, and leave those that are gone.
void Tcp::OnRoutes() {
  if (stack_ == nullptr) return;
  stack_->SetLinkMtu(LinkMtu());
  std::vector<wire::Ipv4Address> own = OwnAddresses();
  if (own == ports_->addresses) return;
  ports_->addresses = std::move(own);
  if (ports_->holdings != nullptr) StartRules(ports_->holdings, RulesOf({}, ports_->mask()));
  for (const auto& [key, port] : ports_->single) {
    if (port.local.address.IsAny()) StartRules(port.holdings, RulesOf(port.local, 0xFFFF));
  }
}

void Tcp::StartRules(const std::shared_ptr<SocketHoldings>& holdings,
                     std::vector<nic::FlowRule> rules) {
  core_->Start(MakeOperation([holdings, rules = std::move(rules),
                              side = core_->host.control_side,
                              mailbox = core_->host.mailbox]() mutable {
    if (holdings->port == nullptr) return;  // Opening it failed.
    for (nic::FlowRule& rule : rules) rule.match.destination_port = holdings->port->local().port;
    const absl::Status replaced = holdings->ReplaceRules(*side, rules);
    if (replaced.ok()) return;
    mailbox->Push(MakeNotice([](Ring& ring) { ring.core().tally.drops.Count(Drop::kTcpRule); }));
  }));
}

void Tcp::OnPorts(uint16_t first_port, const Outcome& outcome, bool fallback) {
  if (fallback) core_->TellFallback();
  if (outcome.ok()) {
    ports_->state = TcpPorts::State::kReady;
    ports_->next = std::random_device()() & (ports_->count - 1);
    ports_->AddBlock(first_port);
  } else {
    // The next connect tries again.
    ports_->state = TcpPorts::State::kNone;
    ports_->holdings.reset();
  }
  sockets_->ForEach([&](TcpSocket& socket) {
    const bool waits = socket.state == TcpSocket::State::kOpening && socket.port == nullptr;
    if (!waits) return;
    outcome.ok() ? GoOn(socket) : End(socket, outcome.error);
  });
}

}  // namespace xtreme::engine
