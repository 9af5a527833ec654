// SPDX-License-Identifier: Apache-2.0
//
// A connection leaves for another ring: what it is goes to that ring's mailbox, in one piece, and a
// rule for its frames is made there. What still comes here is passed on; so is the credit of what
// was handed out here.

#include "xtreme/engine/tcp_move.h"

#include <cerrno>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/time_wait.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {
namespace {

// The rules of a connection that moved: what the device is to do for it, on the control thread.
struct SteeringWork {
  nic::FlowRule rule;
  std::shared_ptr<SocketHoldings> holdings;  // Of the new ring; null: nothing is to be made there.
  std::shared_ptr<TcpDoor> to;
  std::shared_ptr<SocketHoldings> before;    // Of the ring it leaves; null: its rule stays.
  std::shared_ptr<ControlSide> side;         // Of that ring.
  ControlThread* control;

  // The new rule stands before the old one goes.
  void Run() {
    if (holdings != nullptr && !to->mailbox->closed()) {
      auto held = to->side->rules.HoldBefore(rule);
      if (held.ok()) {
        holdings->rules.Add(held->entry);
      } else {
        to->mailbox->Push(MakeNotice(
            [why = OutcomeOf(held.status())](Ring& ring) { ring.tcp().OnUnsteered(why); }));
      }
    }
    if (before != nullptr) before->Release(*side, *control);
  }
};

}  // namespace

// --- Leaving ---

Outcome Tcp::MayMove(const TcpSocket& socket, const TcpDoor* to) const {
  constexpr const char* kAction = "move";
  if (to == nullptr) return {EOPNOTSUPP, "move: the new ring was opened with max_connections 0"};
  if (to == door_.get()) return {EINVAL, "move: the connection is on that ring"};
  if (to->mailbox->closed()) return {EPIPE, "move: the new ring is closed"};
  if (to->ifindex.load(std::memory_order_relaxed) != core_->device.ifindex ||
      to->vlan_id != core_->device.vlan_id) {
    return {EXDEV, absl::StrCat(kAction, ": the new ring is not on interface ",
                                core_->options.interface_name)};
  }
  if (!core_->device.started || core_->device.broken) {
    return {ENETDOWN, "move: the ring is not started, or broken"};
  }
  const bool open = socket.state == TcpSocket::State::kOpen && socket.connection != nullptr;
  if (open && socket.connection->RefersToMemory()) {
    return {EBUSY, "move: registered memory is not acknowledged yet"};
  }
  if (!open || !stack_->MayDepart(*socket.connection)) {
    return {ENOTCONN, "move: a listener, or not established, or closing both ways"};
  }
  if (socket.prepares && core_->prepared->AnyOf(socket.handle)) {
    return {EBUSY, "move: sends of it are prepared, which are to be discarded first"};
  }
  if (socket.pace != nullptr) return {EBUSY, "move: it has a rate, which is to be taken off first"};
  if (socket.rates_asked != 0) return {EBUSY, "move: its rate is being set"};
  if (to->open->load(std::memory_order_relaxed) >= to->capacity) {
    return {EMFILE, absl::StrCat(kAction, ": max_connections ", to->capacity,
                                 " connections and listeners are open there")};
  }
  return {};
}

Outcome Tcp::Move(Handle handle, const std::shared_ptr<TcpDoor>& to, uint64_t cookie) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "move: no such socket"};
  if (Outcome may = MayMove(*socket, to.get()); !may.ok()) return may;
  const base::Nanoseconds now = core_->clock.Now();
  CreditReturned(now);
  auto move = std::make_unique<TcpMove>();
  move->settings = socket->profile->settings;
  move->user_data = socket->user_data;
  move->cookie = cookie;
  move->next_hop = socket->next_hop;
  if (socket->trail != nullptr) move->trail = *std::exchange(socket->trail, nullptr);
  if (std::ranges::count(move->trail, door_) == 0) move->trail.push_back(door_);
  TcpForward& forward = AddForward(*socket, to);
  socket->departing = socket->closed = true;
  socket->state = TcpSocket::State::kEnded;  // DEPARTED is told when the stack says so.
  tcp::Connection& connection = *std::exchange(socket->connection, nullptr);
  // Of a TX_SPACE that was not handed out here (Resolve drops it) the new ring tells.
  core_->fifo.ForEachWaiting([&](const Completion* told) {
    if (told->kind == Kind::kTxSpace && told->socket == handle) connection.OweSendSpace();
  });
  move->departure = stack_->Depart(connection, forward, now);
  EndCall(/*ring=*/true);
  std::promise<void> under_way;
  StartSteering(*move, forward, under_way.get_future());
  to->mailbox->Push(std::make_unique<ArrivalNotice>(std::move(move)));
  under_way.set_value();
  if (to->mailbox->closed()) [[unlikely]] {
    // Perhaps its remains were looked through before.
    core_->Start(MakeOperation(
        [to] { to->mailbox->inbox().TakeAll([](std::unique_ptr<Notice>) {}); }));
  }
  return {};
}

TcpForward& Tcp::AddForward(TcpSocket& socket, const std::shared_ptr<TcpDoor>& to) {
  if (forwards_ == nullptr) forwards_ = std::make_unique<TcpForwards>();
  auto added = std::make_unique<TcpForward>();
  added->key = socket.connection->flow_key();
  added->to = to;
  added->port = std::exchange(socket.port, nullptr);
  added->early_credit = std::exchange(socket.early_credit, 0);
  forwards_->ForEachOf(added->key, [&to](TcpForward& older) { older.to = to; });
  return forwards_->Add(socket.handle, std::move(added));
}

// Before the move itself is on its way, so that what the new ring asks for comes after it; but the
// rule is made when it is: a frame by that rule finds the connection in the mailbox.
void Tcp::StartSteering(TcpMove& move, TcpForward& forward, std::future<void> under_way) {
  const bool is_home = move.trail.front() == forward.to;
  if (!is_home) move.holdings = std::make_shared<SocketHoldings>();
  SteeringWork work{.rule = RuleOf(forward.key),
                    .holdings = move.holdings,
                    .to = forward.to,
                    .before = nullptr,
                    .side = core_->host.control_side,
                    .control = core_->host.control};
  // The rule that it came here by is its own; a listener's and the block's stay.
  const bool own_rule = move.trail.front() != door_ && forward.port != nullptr;
  if (own_rule) work.before = std::move(forward.port->holdings);
  core_->Start(MakeOperation([work = std::move(work), under_way = std::move(under_way)]() mutable {
    under_way.wait();
    work.Run();
  }));
}

// --- What comes for those that left ---

void Tcp::PassCredit(Handle handle, uint32_t bytes) {
  TcpForward* const forward = forwards_ == nullptr ? nullptr : forwards_->Find(handle);
  if (forward == nullptr) return;
  const uint32_t early = std::min(bytes, forward->early_credit);
  forward->early_credit -= early;
  forward->returned += bytes - early;
  forwards_->credit_due = true;
  core_->attention |= kTcpNews;
}

void Tcp::PassCredits() {
  forwards_->credit_due = false;
  for (auto& [handle, forward] : forwards_->by_handle) {
    const uint32_t bytes = std::exchange(forward->returned, 0);
    if (bytes == 0) continue;
    forward->to->mailbox->Push(MakeNotice(
        [key = forward->key, bytes](Ring& ring) { ring.tcp().OnCredit(key, bytes); }));
  }
}

// On its ring, or on one that it left too.
void Tcp::OnCredit(const tcp::FlowKey& key, uint32_t bytes) {
  if (tcp::Connection* const connection = stack_->Find(key)) {
    TcpSocket& socket = *SocketOf(connection->user);
    const uint32_t early = std::min(bytes, socket.early_credit);
    socket.early_credit -= early;
    if (bytes != early) stack_->Credit(*connection, bytes - early, core_->clock.Now());
    return EndCall(/*ring=*/false);
  }
  auto* const forward = static_cast<TcpForward*>(stack_->FindDeparted(key));
  if (forward == nullptr) return;
  forward->to->mailbox->Push(
      MakeNotice([key, bytes](Ring& ring) { ring.tcp().OnCredit(key, bytes); }));
}

// The connection is on another ring now: strays need not go round by those between.
void Tcp::OnElsewhere(const tcp::FlowKey& key, const std::shared_ptr<TcpDoor>& where) {
  if (forwards_ == nullptr || stack_->Find(key) != nullptr) return;
  forwards_->ForEachOf(key, [&where](TcpForward& forward) { forward.to = where; });
}

// It has ended where it was.
void Tcp::OnGone(const tcp::FlowKey& key, const tcp::TimeWaitRecord* time_wait) {
  if (forwards_ == nullptr || stack_->Find(key) != nullptr) return;
  stack_->Forget(key);
  if (time_wait != nullptr) stack_->EnterTimeWait(*time_wait, core_->clock.Now());
  forwards_->ForEachOf(key, [this](TcpForward& forward) {
    if (forward.port != nullptr) GiveBack(std::exchange(forward.port, nullptr), /*user=*/0);
  });
  forwards_->Erase(key);
  core_->attention |= kTimersArmed;
}

// The new ring closed before it looked: nobody goes on with the connection.
void Tcp::OnUndelivered(const TcpMove& move) {
  stack_->Refuse(*move.departure, core_->clock.Now());
  OnGone(move.departure->flow_key(), nullptr);
  EndCall(/*ring=*/false);
}

StrayNotice::~StrayNotice() {
  if (buffer != nullptr) packet::BufferPool::Release(buffer);
}

// A ring keeps its notices until it tells something again, which may be never.
void StrayNotice::Arrive(Ring& ring) {
  early ? ring.tcp().OnEarly(*this) : ring.tcp().OnStray(*this);
  packet::BufferPool::Release(std::exchange(buffer, nullptr));
}

}  // namespace xtreme::engine
