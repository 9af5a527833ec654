// SPDX-License-Identifier: Apache-2.0
//
// A listener goes, and whoever connects from then on is the kernel's: another process may listen
// there, with the same socket or soon with one of its own, or this one without a ring. What the
// listener accepted gets rules of both ends, and then those of the port are taken off; the port
// itself stays leased as long as one of them is there.
//
// Where the kernel's listener goes on, what comes between is not answered, so that it comes again.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "stack/tcp/flow_key.h"
#include "stack/tcp/stack.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

// A connection that a listener left, and what the control thread holds for it.
struct TcpHeir {
  Handle handle;
  nic::FlowRule rule;
  std::shared_ptr<SocketHoldings> holdings;
};

namespace {

// A lease that several have.
class SharedPort final : public KernelPort {
 public:
  explicit SharedPort(std::shared_ptr<KernelPort> port) : port_(std::move(port)) {}
  wire::Endpoint local() const override { return port_->local(); }
  int fd() const override { return -1; }  // Nothing comes to a port of TCP.
  void Drain(const std::function<void(const KernelDatagram&)>&) override {}

 private:
  const std::shared_ptr<KernelPort> port_;
};

// What it is to do for them.
struct HandOverWork {
  std::vector<TcpHeir> heirs;
  std::shared_ptr<SocketHoldings> port;
  std::shared_ptr<ControlSide> side;
  bool keeps_lease;

  // All or nothing: as long as the port has its rules they receive by these.
  absl::Status Run() const {
    for (const TcpHeir& heir : heirs) {
      auto held = side->rules.HoldBefore(heir.rule);
      if (!held.ok()) {
        for (const TcpHeir& other : heirs) other.holdings->rules.DropAll(side->rules);
        return held.status();
      }
      heir.holdings->rules.Add(held->entry);
    }
    port->rules.DropAll(side->rules);
    if (!keeps_lease) return absl::OkStatus();
    const std::shared_ptr<KernelPort> lease = std::move(port->port);
    for (const TcpHeir& heir : heirs) heir.holdings->port = std::make_unique<SharedPort>(lease);
    return absl::OkStatus();
  }
};

}  // namespace

Outcome Tcp::DetachListener(Handle handle) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr || socket->listener == nullptr) {
    return {EBADF, "detach listener: no listener"};
  }
  bool is_leased = false, kept = false;
  core_->host.control->RunAndWait([&is_leased, &kept, holdings = socket->port->holdings] {
    is_leased = holdings != nullptr && holdings->port != nullptr;
    if (is_leased) kept = holdings->port->EndListening();
  });
  if (!is_leased) return Detach(handle);
  if (!kept) stack_->Hush(*socket->listener);
  TcpPort& port = *socket->port;
  const bool has_heirs = port.users > 1;
  (void)Detach(handle);
  if (has_heirs) StartHandOver(port, kept);
  return {};
}

void Tcp::StartHandOver(TcpPort& port, bool keeps_lease) {
  HandOverWork work{.heirs = {},
                    .port = port.holdings,
                    .side = core_->host.control_side,
                    .keeps_lease = keeps_lease};
  sockets_->ForEach([&](const TcpSocket& socket) {
    if (socket.port != &port || socket.state != TcpSocket::State::kOpen) return;
    const tcp::FlowKey key =
        tcp::FlowKey::Of(socket.local, socket.peer, core_->device.vlan_id);
    work.heirs.push_back({socket.handle, RuleOf(key), std::make_shared<SocketHoldings>()});
  });
  // Those that moved to another ring receive by the port's rules.
  if (work.heirs.size() != port.users) return;
  core_->Start(MakeOperation([work = std::move(work), mailbox = core_->host.mailbox] {
    mailbox->Push(MakeNotice([work, outcome = OutcomeOf(work.Run())](Ring& ring) {
      ring.tcp().OnHandedOver(*work.port, work.heirs, outcome);
    }));
  }));
}

// Some may have ended meanwhile.
void Tcp::OnHandedOver(const SocketHoldings& holdings, const std::vector<TcpHeir>& heirs,
                       const Outcome& outcome) {
  if (!outcome.ok()) {
    ++core_->tally.counters.fallback_rules;
    Completion news = core_->Draft(RingEvent::kRuleFallback);
    news.status = outcome.error == ENOSPC ? 0 : outcome.error;
    news.text = outcome.error == ENOSPC
                    ? "the device's table of rules is full: a port whose listener was closed is "
                      "not the kernel's before its connections have ended"
                    : outcome.text.c_str();
    return core_->Tell(news);
  }
  TcpPort* const port = ports_->FindBy(&holdings);
  if (port != nullptr) ++port->users;  // It stays until the end of this.
  for (const TcpHeir& heir : heirs) {
    TcpSocket* const socket = sockets_->Find(heir.handle);
    if (port == nullptr || socket == nullptr || socket->port != port) {
      core_->Start(MakeOperation([holdings = heir.holdings, side = core_->host.control_side,
                                  control = core_->host.control] {
        holdings->Release(*side, *control);
      }));
      continue;
    }
    socket->port = ports_->AddOfOne(socket->local);
    socket->port->holdings = heir.holdings;
    GiveBack(port, /*user=*/0);
  }
  if (port != nullptr) GiveBack(port, /*user=*/0);
}

}  // namespace xtreme::engine
