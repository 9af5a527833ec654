// SPDX-License-Identifier: Apache-2.0
//
// The end of listeners and connections, and what is handed out to whom: after close() only TX_DONEs
// and TERMINATED.

#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack_tables.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_remains.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/host/icmp_errors.h"

namespace xtreme::engine {

Outcome Tcp::Shutdown(Handle handle) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "shutdown: no such socket"};
  if (socket->connection == nullptr ||
      socket->connection->state() == tcp::State::kSynSent) {
    return {ENOTCONN, "shutdown: not established"};
  }
  FollowPaths(*socket);
  stack_->Shutdown(*socket->connection, core_->clock.Now());
  EndCall(/*ring=*/true);
  return {};
}

Outcome Tcp::Close(Handle handle, base::Nanoseconds timeout) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "close: no such socket"};
  Silence(*socket);
  switch (socket->state) {
    case TcpSocket::State::kListening:
      CloseListener(*socket);
      break;
    case TcpSocket::State::kOpening:
      End(*socket, ECANCELED);
      break;
    case TcpSocket::State::kOpen:
      FollowPaths(*socket);
      if (HasUnread(handle)) {
        stack_->CloseUnread(*socket->connection, core_->clock.Now());
        EndCall(/*ring=*/true);
        break;
      }
      stack_->Close(*socket->connection,
                    timeout == base::kNever ? socket->profile->settings.close_timeout : timeout,
                    core_->clock.Now());
      EndCall(/*ring=*/true);
      break;
    case TcpSocket::State::kEnded:
      break;
  }
  return {};
}

// Something of it was received, and waits to be handed out.
bool Tcp::HasUnread(Handle handle) const {
  bool has = false;
  core_->fifo.ForEachWaiting([&](const Completion* waiting) {
    has |= waiting->kind == Kind::kPacket && waiting->socket == handle;
  });
  return has;
}

Outcome Tcp::Detach(Handle handle, base::Nanoseconds timeout) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "detach: no such socket"};
  socket->detached = true;
  return Close(handle, timeout);
}

Outcome Tcp::Abort(Handle handle) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "abort: no such socket"};
  const TcpSocket::State state = socket->state;
  if (state != TcpSocket::State::kOpen && state != TcpSocket::State::kOpening) return Close(handle);
  Silence(*socket);
  if (state == TcpSocket::State::kOpening) {  // No segment has left.
    End(*socket, ECONNABORTED);
    return {};
  }
  FollowPaths(*socket);
  stack_->Abort(*socket->connection, core_->clock.Now());
  EndCall(/*ring=*/true);
  return {};
}

void Tcp::Silence(TcpSocket& socket) {
  socket.closed = true;
  if (socket.prepares) core_->prepared->DiscardOf(socket.handle);
}

void Tcp::CloseListener(TcpSocket& socket) {
  stack_->CloseListener(*std::exchange(socket.listener, nullptr));
  End(socket, 0);
  EndCall(/*ring=*/true);
}

// Nothing of it goes on: what the control thread holds for it goes back, then its end is told.
void Tcp::End(TcpSocket& socket, int status) {
  socket.state = TcpSocket::State::kEnded;
  socket.termination = status;
  CancelEarly(socket);
  if (socket.trail != nullptr) EndTrail(socket);
  LeavePort(socket);
  TellEnd(socket);
}

// Now, or when it may be: children that nobody took still say that they are a listener's.
void Tcp::TellEnd(TcpSocket& socket) {
  if (socket.state != TcpSocket::State::kEnded || !socket.released) return;
  const bool later = core_->fifo.Room() == 0 || !core_->kept.empty() ||
                     (socket.connection == nullptr && stack_->HasEvents());
  if (later) {
    if (!socket.news.linked()) sockets_->news.PushBack(socket);
    core_->attention |= kTcpNews;
    return;
  }
  if (socket.detached) return Erase(socket);
  TellKind(socket, socket.departing ? Kind::kDeparted : Kind::kTerminated, socket.termination);
  // In the caller's array already, nothing of the socket can wait any more.
  if (core_->fifo.waiting() == 0) Erase(socket);
}

void Tcp::Erase(TcpSocket& socket) {
  if (socket.prepares) core_->prepared->DiscardOf(socket.handle);
  if (socket.connection != nullptr) stack_->Release(*socket.connection);
  if (socket.departing) PassCredit(socket.handle, socket.returned);
  sockets_->Put(&socket);
}

bool Tcp::Resolve(Completion* completion) {
  TcpSocket* socket = sockets_->Find(completion->socket);
  const bool last =
      completion->kind == Kind::kTerminated || completion->kind == Kind::kDeparted;
  const bool last_words = last || completion->kind == Kind::kTxDone;
  const bool silent = socket == nullptr || socket->detached ||
                      (socket->closed && !socket->departing && !last_words);
  if (silent) {
    if (completion->kind == Kind::kPacket) {
      packet::BufferPool::ReleaseChain(completion->buffer);
      core_->tally.drops.Count(Drop::kClosed);
    }
    if (socket != nullptr && completion->kind == Kind::kTerminated) Erase(*socket);
    return false;
  }
  if (completion->kind == Kind::kTxSpace) {
    socket->space_waits = false;
    // Room is on the ring that it went to; or there is none again, and another tells of the next.
    if (socket->departing || !KeepsSpace(*socket)) return false;
  }
  completion->user_data = socket->user_data;
  if (completion->kind == Kind::kAccepted && Find(completion->cookie) == nullptr) {
    // Its listener was closed before anybody heard of it.
    socket->detached = true;
    Abort(socket->handle);
    return false;
  }
  if (last) Erase(*socket);
  return true;
}

bool Tcp::Quiescent() const { return stack_ == nullptr || stack_->Quiescent(); }

void Tcp::OnBroken() {
  if (stack_ == nullptr) return;
  sockets_->ForEach([this](TcpSocket& socket) {
    if (socket.state == TcpSocket::State::kOpening) End(socket, ENETDOWN);
    if (socket.state == TcpSocket::State::kOpen) stack_->Fail(*socket.connection, ENETDOWN);
  });
  // Resets that are owed leave when there are other queues.
  if (!stack_->WaitsForRoom()) core_->attention &= ~kRoomWanted;
  core_->attention |= kTcpNews;
}

void Tcp::AbortAll() {
  if (stack_ == nullptr) return;
  sockets_->ForEach([this](TcpSocket& socket) {
    Silence(socket);
    CancelEarly(socket);
    if (socket.state == TcpSocket::State::kOpen) {
      stack_->Abort(*socket.connection, core_->clock.Now());
    }
  });
}

void Tcp::Bury(RingRemains* remains) {
  if (stack_ == nullptr) return;
  core_->device.pool->OnReturn(nullptr, nullptr);
  core_->known.SetOthers({});
  AbortAll();
  sockets_->ForEach([this](TcpSocket& socket) {
    if (socket.trail != nullptr) EndTrail(socket);
  });
  for (auto& [key, port] : ports_->single) {
    if (port.holdings != nullptr) remains->holdings.push_back(std::move(port.holdings));
  }
  if (ports_->holdings != nullptr) remains->holdings.push_back(std::move(ports_->holdings));
  // The device may still read what segments refer to; the stack gives its references back.
  const auto give_back = [&](SendLog& log) {
    log.ForEach([&](const SendRecord& record) {
      if (record.segment == nullptr) return;
      if (packet::Buffer* buffer = record.segment->buffer) {
        packet::BufferPool::AddReferenceByOwner(buffer);
        remains->sending.push_back(buffer);
      }
      stack_->OnWqeCompleted(*record.connection, *record.segment);
    });
    return true;
  };
  give_back(core_->sends);
  core_->paced->ForEachLog(give_back);
}

Tcp::~Tcp() = default;

}  // namespace xtreme::engine
