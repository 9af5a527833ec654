// SPDX-License-Identifier: Apache-2.0
//
// A connection comes from another ring: it is admitted, and told by ARRIVED, or refused, its peer
// reset, and told by TERMINATED.
//
// What it had sent or held is copied into buffers of this ring: its device gathers only from these,
// and what a PACKET credits is known by them. So are frames that its old ring passes on.

#include <cerrno>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/time_wait.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/copy_in.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {
namespace {

// To each ring of `trail` but `own`, that the connection is gone; its home learns of TIME-WAIT.
void TellGone(const TcpTrail& trail, const TcpDoor* own, const tcp::FlowKey& key,
              const tcp::TimeWaitRecord* time_wait) {
  std::shared_ptr<tcp::TimeWaitRecord> record;
  if (time_wait != nullptr) {
    record = std::make_shared<tcp::TimeWaitRecord>();
    record->key = key;
    record->snd_nxt = time_wait->snd_nxt;
    record->rcv_nxt = time_wait->rcv_nxt;
    record->ts_recent = time_wait->ts_recent;
    record->timestamp_offset = time_wait->timestamp_offset;
    record->window = time_wait->window;
    record->timestamps = time_wait->timestamps;
    record->peer_mac = time_wait->peer_mac;
  }
  for (const auto& door : trail) {
    if (door.get() == own) continue;
    door->mailbox->Push(
        MakeNotice([key, record = door == trail.front() ? record : nullptr](Ring& ring) {
          ring.tcp().OnGone(key, record.get());
        }));
  }
}

}  // namespace

// Its last ring resets the peer; the others learn that it is gone.
ArrivalNotice::~ArrivalNotice() {
  if (move == nullptr) return;
  const std::shared_ptr<TcpDoor> last = move->trail.back();
  TellGone(move->trail, last.get(), move->departure->flow_key(), nullptr);
  last->mailbox->Push(MakeNotice([move = std::shared_ptr<TcpMove>(std::move(move))](Ring& ring) {
    ring.tcp().OnUndelivered(*move);
  }));
}

void ArrivalNotice::Arrive(Ring& ring) { ring.tcp().OnArrival(std::move(move)); }

void Tcp::OnArrival(std::unique_ptr<TcpMove> move) {
  packet::BufferPool& pool = *core_->device.pool;
  if (pool.HasReturns()) pool.DrainReturns();
  const bool works = core_->device.started && !core_->device.broken;
  if (!works) return RefuseArrival(*move, ENETDOWN);
  TcpSocket* const socket = sockets_->Take();
  if (socket == nullptr) return RefuseArrival(*move, EMFILE);
  socket->profile = sockets_->profiles.Hold(move->settings, move->departure->options().mss);
  const tcp::Stack::Opened opened = stack_->Admit(
      *move->departure, socket->profile->options, reinterpret_cast<uintptr_t>(socket),
      core_->clock.Now());
  if (opened.connection == nullptr) {
    sockets_->Put(socket);
    return RefuseArrival(*move, opened.error);
  }
  const tcp::FlowKey& key = opened.connection->flow_key();
  socket->connection = opened.connection;
  socket->state = TcpSocket::State::kOpen;
  socket->user_data = move->user_data;
  socket->next_hop = move->next_hop;
  socket->local = key.local();
  socket->peer = key.remote();
  StoreIp(socket->local.address, &socket->local_ip);
  StoreIp(socket->peer.address, &socket->peer_ip);
  TakePort(*socket, *move);
  for (const auto& door : move->trail) {
    if (door == door_) continue;
    door->mailbox->Push(
        MakeNotice([key, here = door_](Ring& ring) { ring.tcp().OnElsewhere(key, here); }));
  }
  socket->trail = std::make_unique<TcpTrail>(std::move(move->trail));
  TellKind(*socket, Kind::kArrived, 0, move->cookie);
  EndCall(/*ring=*/false);
}

// Back home, it receives by what it did; elsewhere by a rule of its own, of a port that its home
// has leased.
void Tcp::TakePort(TcpSocket& socket, TcpMove& move) {
  if (move.holdings != nullptr) {
    socket.port = ports_->AddOfOne(socket.local);
    socket.port->holdings = std::move(move.holdings);
  }
  if (forwards_ == nullptr) return;
  const tcp::FlowKey& key = socket.connection->flow_key();
  forwards_->ForEachOf(key, [&](TcpForward& forward) {
    forward.to = door_;
    TcpPort* const before = std::exchange(forward.port, nullptr);
    if (before == nullptr) return;
    if (socket.port == nullptr) {
      socket.port = before;
    } else {
      GiveBack(before, /*user=*/0);  // Of an earlier stay here.
    }
  });
}

// The sends that it had promised to tell of are told here too.
void Tcp::RefuseArrival(const TcpMove& move, int error) {
  const tcp::FlowKey& key = move.departure->flow_key();
  Completion completion;
  Clear(&completion, Kind::kTxDone);
  completion.user_data = move.user_data;
  completion.interface_index = core_->device.ifindex;
  StoreIp(key.remote().address, &completion.source_ip);
  StoreIp(key.local().address, &completion.destination_ip);
  completion.source_port = key.remote().port;
  completion.destination_port = key.local().port;
  const auto tell = [&](Kind kind, int status, uint64_t cookie) {
    completion.kind = kind;
    completion.status = status;
    completion.cookie = cookie;
    core_->Tell(completion);
  };
  move.departure->ForEachPromised(
      [&](uint64_t cookie) { tell(Kind::kTxDone, ECANCELED, cookie); });
  tell(Kind::kTerminated, error, move.cookie);
  stack_->Refuse(*move.departure, core_->clock.Now());
  TellGone(move.trail, door_.get(), key, nullptr);
  OnGone(key, nullptr);
  if (move.holdings != nullptr) {
    core_->Start(MakeOperation([holdings = move.holdings, side = core_->host.control_side,
                                control = core_->host.control] {
      holdings->Release(*side, *control);
    }));
  }
  EndCall(/*ring=*/false);
}

void Tcp::OnStray(const StrayNotice& stray) {
  const tcp::FlowKey key = tcp::FlowKey::Of(stray.frame.flow);
  packet::BufferPool& pool = *core_->device.pool;
  packet::Buffer* copy = nullptr;
  const packet::Buffer& from = *stray.buffer;
  if (stack_->Find(key) == nullptr && stack_->FindDeparted(key) != nullptr) {
    // It has left here too: the buffer goes on as it is.
    copy = stray.buffer;
    packet::BufferPool::AddReference(copy);
  } else if (from.length <= pool.payload_bytes()) {
    copy = CopyIn(&pool, {from.data, from.length});
  }
  if (copy == nullptr) return core_->CountLoss(Drop::kStrayBuffers);
  stack_->InputStray(stray.frame, copy, stray.stamp, core_->clock.Now());
  EndCall(/*ring=*/false);
}

// The device has no rule for it: its old ring goes on passing on.
void Tcp::OnUnsteered(const Outcome& why) {
  const bool full = why.error == ENOSPC;
  ++core_->tally.counters.fallback_rules;
  Completion news = core_->Draft(RingEvent::kRuleFallback);
  news.status = full ? 0 : why.error;
  news.text = full ? "the device's table of rules is full: a connection that moved here gets its "
                     "segments through its old ring"
                   : why.text.c_str();
  core_->Tell(news);
}

// It has ended here: the rings it came by forget it.
void Tcp::EndTrail(TcpSocket& socket) {
  const std::unique_ptr<TcpTrail> trail = std::exchange(socket.trail, nullptr);
  const tcp::FlowKey key = tcp::FlowKey::Of(socket.local, socket.peer, core_->device.vlan_id);
  TellGone(*trail, door_.get(), key, stack_->FindTimeWait(key));
  if (forwards_ == nullptr) return;
  stack_->Forget(key);
  forwards_->Erase(key);
}

}  // namespace xtreme::engine
