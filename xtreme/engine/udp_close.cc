// SPDX-License-Identifier: Apache-2.0
//
// The end of a socket, and what is handed out to whom: after close() only TX_DONEs and TERMINATED.

#include <utility>

#include "stack/udp/demux.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/port_stock.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

Outcome Udp::SetUserData(Handle handle, uint64_t user_data) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "set user data: no such socket"};
  socket->user_data = user_data;
  core_->known.Forget();
  return {};
}

Outcome Udp::Close(Handle handle, bool detach) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "close: no such socket"};
  socket->state = detach ? UdpSocket::State::kDetached : UdpSocket::State::kClosing;
  CountLocal(*socket, -1);
  for (const auto& membership : socket->memberships()) {
    core_->fanout = sockets_->CountListener(
        udp::BindingKey(membership->group, core_->device.vlan_id, socket->local().port), -1);
    --sockets_->groups;
  }
  core_->prepared->DiscardOf(handle);
  demux_->Detach(*socket);
  core_->ChangeWorld();
  StartRelease(*socket);
  return {};
}

void Udp::StartRelease(UdpSocket& socket) {
  core_->Start(MakeOperation([handle = socket.handle, side = core_->host.control_side,
                              control = core_->host.control, mailbox = core_->host.mailbox] {
    side->HoldingsOf(handle).Release(*side, *control);
    mailbox->Push(MakeNotice([handle](Ring& ring) { ring.udp().Released(handle); }));
  }));
}

void SocketHoldings::Release(ControlSide& side, ControlThread& control) {
  rules.DropAll(side.rules);
  if (const std::unique_ptr<Groups> joined = std::move(groups)) {
    for (auto& [address, group] : *joined) {
      side.directory->Part(side.loopback.get(), group.key);
      side.rules.Drop(group.rule);
      side.kernel->Leave(group.membership);
    }
  }
  if (port != nullptr && port->fd() >= 0) control.UnwatchOneOf(port->fd());
  port.reset();
}

void Udp::Released(Handle handle) {
  UdpSocket* socket = sockets_->Find(handle);
  if (socket == nullptr) return;
  socket->released = true;
  AddNews(*socket);
}

void Udp::AddNews(UdpSocket& socket) {
  sockets_->AddNews(socket);
  core_->attention |= kSocketNews;
}

// A socket that has nothing more to tell but its end.
void Udp::TellNews() {
  while (sockets_->HasNews() && core_->fifo.Room() > 0) {
    UdpSocket* socket = sockets_->TakeNews();
    if (!socket->released || socket->sends_wanted > 0) continue;
    if (socket->state == UdpSocket::State::kDetached) {
      sockets_->Put(socket);
      continue;
    }
    socket->state = UdpSocket::State::kTerminated;
    Completion* completion = core_->Emit(Kind::kTerminated);
    completion->socket = socket->handle;
    completion->user_data = socket->user_data;
    // In the caller's array already, nothing of the socket can wait any more.
    if (core_->fifo.waiting() == 0) sockets_->Put(socket);
  }
  if (!sockets_->HasNews()) core_->attention &= ~kSocketNews;
}

bool Udp::Resolve(Completion* completion) {
  UdpSocket* socket = sockets_->Find(completion->socket);
  const UdpSocket::State state =
      socket == nullptr ? UdpSocket::State::kDetached : socket->state;
  const bool last_words =
      completion->kind == Kind::kTxDone || completion->kind == Kind::kTerminated;
  if (state == UdpSocket::State::kDetached || (state != UdpSocket::State::kOpen && !last_words)) {
    if (completion->kind == Kind::kPacket) {
      packet::BufferPool::ReleaseChain(completion->buffer);
      core_->tally.drops.Count(Drop::kClosed);
    }
    return false;
  }
  completion->user_data = socket->user_data;
  if (completion->kind == Kind::kTerminated) sockets_->Put(socket);
  return true;
}

void Udp::Settle(const SendRecord& record) {
  UdpSocket* socket = sockets_->Find(record.socket);
  if (socket == nullptr) return;
  const bool open = socket->state == UdpSocket::State::kOpen;
  const auto tell = [&](Kind kind) {
    Completion* completion = core_->Emit(kind);
    completion->status = record.error;
    completion->socket = socket->handle;
    completion->user_data = socket->user_data;
    completion->cookie = record.cookie;
    return completion;
  };
  if ((record.wants & kWantWire) != 0 && open && record.error == 0) {
    core_->SetSendTime(record.hw_clock, tell(Kind::kTxWire));
  }
  const bool told = open || socket->state == UdpSocket::State::kClosing;
  if ((record.wants & kWantDone) != 0 && told) tell(Kind::kTxDone);
  if (--socket->sends_wanted == 0) AddNews(*socket);
}

void Udp::OpDone(Handle handle, uint64_t cookie, const Outcome& outcome, bool fallback) {
  UdpSocket* socket = Find(handle);
  if (fallback) core_->TellFallback();
  if (socket == nullptr) return;
  Completion* completion = core_->Emit(Kind::kOpDone);
  completion->status = outcome.error;
  completion->socket = handle;
  completion->user_data = socket->user_data;
  completion->cookie = cookie;
  // The notice that brought it lives until it was handed out.
  completion->text = outcome.text.empty() ? nullptr : outcome.text.c_str();
}

void Udp::SocketError(Handle handle, const wire::Endpoint& destination, int error) {
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return;
  Completion* completion = core_->Emit(Kind::kError);
  completion->status = error;
  completion->socket = handle;
  completion->user_data = socket->user_data;
  StoreIp(destination.address, &completion->destination_ip);
  completion->destination_port = destination.port;
}

}  // namespace xtreme::engine
