// SPDX-License-Identifier: Apache-2.0
//
// A listener goes, and whoever connects from then on is the kernel's: another process may listen
// there, with the same socket or soon with one of its own, or this one without a ring. What the
// listener accepted gets rules of both ends, and then those of the port are taken off; the port
// itself stays leased as long as one of them is there.
//
// Where the kernel's listener goes on, what comes between is not answered, so that it comes again.

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "stack/tcp/connection.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/stack.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

// A connection that a listener left, and what the control thread holds for it.
struct TcpHeir {
  tcp::FlowKey key;
  nic::FlowRule rule;
  bool moved;  // To another ring, where it has a rule that stands before this one, or none.
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

// What it is to do for them: a few at a time, so that whatever else it has to do need not wait for
// all of them.
class HandOver final : public Operation {
 public:
  struct For {
    std::vector<TcpHeir> heirs;
    TcpPortKey key;
    std::shared_ptr<SocketHoldings> port;
    std::shared_ptr<ControlSide> side;
    std::shared_ptr<Mailbox> mailbox;
    ControlThread* control;
    bool keeps_lease;
  };

  explicit HandOver(For with) : for_(std::move(with)) {}

  // All or nothing: as long as the port has its rules they receive by these.
  void Run() override {
    if (for_.mailbox->closed()) return End();  // The ring's rules have ended, or will now.
    const size_t end = std::min(made_ + kRulesAtOnce, for_.heirs.size());
    for (; made_ < end; ++made_) {
      const absl::Status made = Make(for_.heirs[made_]);
      if (made.ok()) continue;
      End();
      return for_.mailbox->Push(MakeNotice(
          [why = OutcomeOf(made)](Ring& ring) { ring.tcp().OnNotHandedOver(why); }));
    }
    if (made_ == for_.heirs.size()) Tell();
  }

  void Pass(std::unique_ptr<Operation> self) override {
    if (made_ != for_.heirs.size()) for_.control->StartNow(std::move(self));
  }

 private:
  static constexpr size_t kRulesAtOnce = 32;

  // The ring may have moved to another port since it was asked for.
  absl::Status Make(TcpHeir& heir) {
    RuleTable& rules = for_.side->rules;
    heir.rule.match.destination_mac = for_.side->nic->mac();
    auto held = heir.moved ? rules.Hold(heir.rule) : rules.HoldBefore(heir.rule);
    if (!held.ok()) return held.status();
    heir.holdings = std::make_shared<SocketHoldings>();
    heir.holdings->rules.Add(held->entry);
    return absl::OkStatus();
  }

  // Nothing comes of it.
  void End() {
    for (size_t i = 0; i < made_; ++i) for_.heirs[i].holdings->rules.DropAll(for_.side->rules);
    made_ = for_.heirs.size();
  }

  void Tell() {
    for_.port->rules.DropAll(for_.side->rules);
    if (for_.keeps_lease && for_.port->port != nullptr) {
      const std::shared_ptr<KernelPort> lease = std::move(for_.port->port);
      for (TcpHeir& heir : for_.heirs) heir.holdings->port = std::make_unique<SharedPort>(lease);
    }
    for (size_t first = 0; first < for_.heirs.size(); first += kRulesAtOnce) {
      const size_t end = std::min(first + kRulesAtOnce, for_.heirs.size());
      std::vector<TcpHeir> some(&for_.heirs[first], &for_.heirs[0] + end);
      for_.mailbox->Push(MakeNotice([key = for_.key, some = std::move(some)](Ring& ring) {
        ring.tcp().OnHandedOver(key, some);
      }));
    }
  }

  For for_;
  size_t made_ = 0;  // So many of them have been looked after.
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
  std::vector<TcpHeir> heirs;
  heirs.reserve(port.users);
  const auto add = [&](const tcp::FlowKey& key, bool moved) {
    heirs.push_back({.key = key, .rule = RuleOf(key), .moved = moved, .holdings = nullptr});
  };
  sockets_->ForEach([&](const TcpSocket& socket) {
    if (socket.port != &port || socket.state != TcpSocket::State::kOpen) return;
    add(tcp::FlowKey::Of(socket.local, socket.peer, core_->device.vlan_id), /*moved=*/false);
  });
  if (forwards_ != nullptr) {
    for (const auto& [handle, forward] : forwards_->by_handle) {
      if (forward->port == &port) add(forward->key, /*moved=*/true);
    }
  }
  if (heirs.size() != port.users) return;  // One opens there by itself.
  core_->Start(std::make_unique<HandOver>(HandOver::For{.heirs = std::move(heirs),
                                                        .key = port.key,
                                                        .port = port.holdings,
                                                        .side = core_->host.control_side,
                                                        .mailbox = core_->host.mailbox,
                                                        .control = core_->host.control,
                                                        .keeps_lease = keeps_lease}));
}

// What says that the connection of `key` receives by `port`, here or where it went from here; null:
// it does not.
TcpPort** Tcp::PlaceOfPort(const TcpPort* port, const tcp::FlowKey& key) {
  if (port == nullptr) return nullptr;
  if (tcp::Connection* const connection = stack_->Find(key)) {
    TcpSocket* const socket = SocketOf(connection->user);
    return socket != nullptr && socket->port == port ? &socket->port : nullptr;
  }
  TcpPort** place = nullptr;
  if (forwards_ == nullptr) return place;
  forwards_->ForEachOf(key, [&](TcpForward& forward) {
    if (forward.port == port) place = &forward.port;
  });
  return place;
}

// Some may have ended meanwhile.
void Tcp::OnHandedOver(const TcpPortKey& key, const std::vector<TcpHeir>& heirs) {
  TcpPort* const port = ports_->FindBy(key);
  if (port != nullptr) ++port->users;  // It stays until the end of this.
  for (const TcpHeir& heir : heirs) {
    TcpPort** const place = PlaceOfPort(port, heir.key);
    if (place == nullptr) {
      core_->Start(MakeOperation([holdings = heir.holdings, side = core_->host.control_side,
                                  control = core_->host.control] {
        holdings->Release(*side, *control);
      }));
      continue;
    }
    *place = ports_->AddOfOne(heir.key.local());
    (*place)->holdings = heir.holdings;
    GiveBack(port, /*user=*/0);
  }
  if (port != nullptr) GiveBack(port, /*user=*/0);
}

void Tcp::OnNotHandedOver(const Outcome& outcome) {
  ++core_->tally.counters.fallback_rules;
  Completion news = core_->Draft(RingEvent::kRuleFallback);
  news.status = outcome.error == ENOSPC ? 0 : outcome.error;
  news.text = outcome.error == ENOSPC
                  ? "the device's table of rules is full: a port whose listener was closed is "
                    "not the kernel's before its connections have ended"
                  : outcome.text.c_str();
  core_->Tell(news);
}

}  // namespace xtreme::engine
