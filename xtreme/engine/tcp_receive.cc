// SPDX-License-Identifier: Apache-2.0
//
// From a received frame to completions, and whatever else makes TCP tell something.
//
// The stack keeps what there is no room for, in order; then nothing more is received.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/take_expected.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_move.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {
namespace {

// What one poll tells of connections at most.
constexpr uint32_t kMostEvents = 256;

}  // namespace

// Only here: a nested type cannot be declared ahead.
struct TcpEvent : tcp::Stack::Event {};

// --- Completions ---

// With both ends as its packets have them: the peer is the source.
Completion* Tcp::TellKind(TcpSocket& socket, Kind kind, int status, uint64_t cookie) {
  Completion* completion = core_->Emit(kind);
  completion->status = status;
  completion->socket = socket.handle;
  completion->user_data = socket.user_data;
  completion->cookie = cookie;
  completion->source_ip = socket.peer_ip;
  completion->destination_ip = socket.local_ip;
  completion->source_port = socket.peer.port;
  completion->destination_port = socket.local.port;
  return completion;
}

bool Tcp::KeepsSpace(TcpSocket& socket) {
  if (stack_->KeepsSpace(*socket.connection, core_->PollTime())) return true;
  core_->attention |= kTimersArmed;  // It may wait for memory.
  return false;
}

// Of one that waits to be handed out nothing is new.
void Tcp::TellSpace(TcpSocket& socket) {
  if (socket.space_waits || !KeepsSpace(socket)) return;
  TellKind(socket, Kind::kTxSpace);
  socket.space_waits = core_->fifo.waiting() != 0;
}

inline void Tcp::SetTime(uint64_t hw_clock, Completion* completion) const {
  if (hw_clock == 0) return;
  completion->hw_clock = hw_clock;
  completion->hw_time_ns = core_->clock.DeviceTime(hw_clock);
  completion->flags |= core_->clock.flags();
}

void Tcp::ForgetTimes() {
  if (stack_ != nullptr) stack_->ForgetStamps();
}

[[gnu::always_inline]] inline void Tcp::TellData(TcpSocket& socket, const TcpEvent& event) {
  RingCore& core = *core_;
  uint32_t links = 0;
  for (packet::Buffer* link = event.chain; link != nullptr; link = link->next) {
    ++links;
    if (!socket.profile->settings.manual_credit) {
      packet::BufferPool::Lend(link, LoanOf(socket.handle, link->length));
    }
  }
  ++core.tally.counters.packets;
  ++socket.counters.received;
  socket.counters.received_bytes += event.bytes;
  Completion* completion = TellKind(socket, Kind::kPacket);
  SetTime(event.stamp, completion);
  completion->flags |= core.after_drop | (links > 1 ? kChained : 0);
  completion->buffer = event.chain;
  completion->data = event.chain->data;
  completion->length = event.bytes;
  completion->count = links;
  core.after_drop = 0;
}

// --- What comes in ---

// A frame that may arm timers and be answered. The answer goes the way that is known; where the
// world has changed since, paths are looked at before the next: a peer that sends the same again,
// because it moved and hears no answer, causes nothing else.
[[gnu::always_inline]] inline void Tcp::NoteAnswer() {
  core_->attention |= kTimersArmed;
  if (epoch_ != core_->host.routes_version) [[unlikely]] core_->attention |= kTcpNews;
}

void Tcp::Receive(const nic::RxFrame& rx) {
  packet::Buffer* const buffer = rx.buffer;
  wire::TcpFrame frame;
  const wire::FrameVerdict verdict = wire::ParseTcpFrame(
      buffer->data, buffer->length, rx.flags & wire::kAllChecksumsVerified, &frame);
  if ((rx.flags & nic::kRxVlanStripped) != 0) [[unlikely]] frame.SetTag(rx.vlan);
  if (verdict != wire::FrameVerdict::kTcp) [[unlikely]] {
    const bool icmp = verdict == wire::FrameVerdict::kNotTcp && ReceiveIcmp(*buffer, frame);
    if (!icmp) ledger_->verdicts.Count(verdict);
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  const uint64_t stamp = (rx.flags & nic::kRxTimestamp) != 0 ? rx.hw_clock : 0;
  const bool arrives = ArrivalsWait() && !IsKnown(frame) && !frame.segment.Has(wire::kTcpSyn);
  if (arrives) [[unlikely]] {
    // Perhaps the connection is there, and its rule was faster: the frame queues behind it.
    core_->host.mailbox->Push(
        std::make_unique<StrayNotice>(frame, buffer, stamp, /*early=*/true));
    return;
  }
  TakeFrame(frame, buffer, stamp);
}

bool Tcp::ArrivalsWait() const {
  return core_->host.mailbox->knocked() || (core_->attention & kNoticesWait) != 0;
}

bool Tcp::IsKnown(const wire::TcpFrame& frame) const {
  const tcp::FlowKey key = tcp::FlowKey::Of(frame.flow);
  return stack_->Find(key) != nullptr || stack_->FindDeparted(key) != nullptr;
}

[[gnu::always_inline]] inline void Tcp::TakeFrame(const wire::TcpFrame& frame,
                                                  packet::Buffer* buffer, uint64_t stamp) {
  if (!ports_->ours.test(frame.flow.destination_port) && !IsKnown(frame)) [[unlikely]] {
    // By the rule of one that had moved here and is gone, which is taken off right now.
    core_->tally.drops.Count(Drop::kTcpPort);
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  NoteAnswer();
  // There is room for one.
  TcpEvent first;
  const base::Nanoseconds now = core_->PollTime();
  if (stack_->Input(frame, buffer, stamp, now, &first)) Tell(first);
  if (stack_->HasEvents()) [[unlikely]] Drain();
}

// What could have arrived before it has.
void Tcp::OnEarly(const StrayNotice& early) {
  packet::BufferPool::AddReference(early.buffer);
  TakeFrame(early.frame, early.buffer, early.stamp);
}

// From inside the driver's loop, so that the frames of a handshake, of an end, and of whatever else
// is not expected go no longer way than others. Not those that need more than a look at their port:
// what is no such frame as PlainTcpView sees, and strays.
Tcp::KnownFlows::Taken Tcp::TakeAny(packet::Buffer* buffer, uint8_t* bytes, uint32_t length,
                                    uint64_t hw_clock, Completion* out) {
  using Taken = KnownFlows::Taken;
  RingCore& core = *core_;
  constexpr uint32_t kLongWay = kTcpNews | kRefillOwed;
  wire::TcpFrame& frame = *frame_;
  if ((core.attention & kCompletionsWait) != 0 ||
      !wire::ReadTcpFrame(bytes, length, &frame) ||
      (found_ == nullptr &&
       (!ports_->ours.test(frame.flow.destination_port) || ArrivalsWait()))) [[unlikely]] {
    return Taken::kNot;
  }
  buffer->data = bytes;
  buffer->length = length;
  NoteAnswer();
  TcpEvent event;
  const base::Nanoseconds now = core.PollTime();
  const bool first = stack_->Input(found_, frame, buffer, hw_clock, now, &event);
  if (!first && !stack_->HasEvents()) return Taken::kSilently;
  CompletionFifo::Single single(core.fifo, out);
  if (first) Tell(event);
  // What it is told by first: some causes tell nothing.
  while (!single.written() && stack_->TakeEvent(&event)) Tell(event);
  if (!single.written()) return Taken::kSilently;
  if (stack_->HasEvents()) core.attention |= kTcpNews;
  --core.tally.counters.packets;  // The poll counts what it takes here as packets.
  // Nothing is written behind what waits.
  const bool last = (core.attention & kLongWay) != 0 || core.fifo.waiting() != 0;
  return last ? Taken::kFirst : Taken::kCompletion;
}

// False: there was no room for all, or more than one poll tells: of some nobody is told.
bool Tcp::Drain() {
  TcpEvent event;
  for (uint32_t left = kMostEvents; stack_->HasEvents(); --left) {
    if (core_->fifo.Room() == 0 || left == 0) {
      core_->attention |= kTcpNews;
      return false;
    }
    if (!stack_->TakeEvent(&event)) break;
    Tell(event);
  }
  return true;
}

void Tcp::TellNews() {
  core_->attention &= ~kTcpNews;
  FollowPaths();
  if (!sockets_->credit.empty()) CreditReturned(core_->PollTime());
  if (forwards_ != nullptr && forwards_->credit_due) PassCredits();
  core_->attention |= kTimersArmed;  // What is taken may let some leave.
  if (!Drain()) return;
  uint32_t left = kMostEvents;
  while (TcpSocket* socket = sockets_->news.PopFront()) {
    if (core_->fifo.Room() == 0 || left-- == 0) {
      sockets_->news.PushFront(*socket);
      core_->attention |= kTcpNews;
      return;
    }
    TellEnd(*socket);
  }
}

void Tcp::Settle(const SendRecord& record) {
  // The socket is looked up before the segment may be the last thing that kept it.
  TcpSocket* const socket = SocketOf(record.connection->user);
  const tcp::SegmentQueue::Due due = stack_->OnWqeCompleted(*record.connection, *record.segment);
  if (stack_->HasEvents()) core_->attention |= kTcpNews;
  if (socket == nullptr || socket->detached) return;
  if (due.wire && (!socket->closed || socket->departing) && record.error == 0) {
    core_->SetSendTime(record.hw_clock, TellKind(*socket, Kind::kTxWire, 0, due.cookie));
  }
  if (due.done) TellKind(*socket, Kind::kTxDone, due.cancelled ? ECANCELED : 0, due.cookie);
}

void Tcp::OnRoom() {
  stack_->OnRoom(core_->PollTime());
  if (!stack_->WaitsForRoom()) core_->attention &= ~kRoomWanted;
  EndCall(/*ring=*/false);
}

void Tcp::SetShortOfBuffers(bool is) {
  if (stack_ != nullptr) stack_->SetShortOfBuffers(is);
}

void Tcp::OnTimers(base::Nanoseconds now) {
  FollowPaths();
  stack_->OnTimers(now);
  EndCall(/*ring=*/false);
}

// --- What happened ---

void Tcp::Tell(const TcpEvent& event) {
  using EventKind = tcp::Stack::Event::Kind;
  if (event.kind == EventKind::kAccepted) return TellAccepted(event);
  TcpSocket* const socket = SocketOf(event.connection->user);
  if (socket == nullptr) {  // It was accepted by nobody, and reset.
    if (event.kind == EventKind::kTerminated) stack_->Release(*event.connection);
    if (event.chain != nullptr) packet::BufferPool::ReleaseChain(event.chain);
    return;
  }
  switch (event.kind) {
    case EventKind::kAccepted:
      return;
    case EventKind::kData:
      return TellData(*socket, event);
    case EventKind::kEstablished:
      TellKind(*socket, Kind::kEstablished);
      if (socket->prepares) core_->prepared->BuildOf(socket->handle);
      return;
    case EventKind::kPeerClosed:
      TellKind(*socket, Kind::kPeerClosed);
      return;
    case EventKind::kSendSpace:
      return TellSpace(*socket);
    case EventKind::kDone:
      if (socket->detached) return;
      TellKind(*socket, Kind::kTxDone, event.cancelled ? ECANCELED : 0, event.cookie);
      return;
    case EventKind::kTerminated:
      return End(*socket, event.status);
    case EventKind::kDeparted:
      stack_->Release(*event.connection);
      return End(*socket, 0);
  }
}

void Tcp::TellAccepted(const TcpEvent& event) {
  TcpSocket* const listener = SocketOf(event.connection->user);
  event.connection->user = 0;
  const bool wanted = event.connection->listener() != nullptr && !listener->closed;
  TcpSocket* const child = wanted ? sockets_->Take() : nullptr;
  if (child == nullptr) return stack_->Abort(*event.connection, core_->clock.Now());
  event.connection->user = reinterpret_cast<uintptr_t>(child);
  ++listener->counters.accepted;
  child->state = TcpSocket::State::kOpen;
  child->user_data = listener->user_data;
  child->connection = event.connection;
  child->port = listener->port;
  ++child->port->users;
  child->profile = listener->profile;
  const TcpSettings& settings = child->profile->settings;
  if (settings.tos != 0 || settings.ttl != 64) MarkPath(*child);
  child->local = event.connection->flow_key().local();
  child->peer = event.connection->flow_key().remote();
  StoreIp(child->local.address, &child->local_ip);
  StoreIp(child->peer.address, &child->peer_ip);
  TellKind(*child, Kind::kAccepted, 0, listener->handle);
  // Others may end by that, which takes room.
  Refresh(*child, /*accepted=*/true);
}

// --- Credit ---

// May be in the midst of a call of the stack: if the peer is to be told, that is noted only.
void Tcp::OnReturn(void* context, uint64_t loan) {
  Tcp* const tcp = static_cast<Tcp*>(context);
  const auto bytes = static_cast<uint32_t>(loan >> kLoanBytesShift);
  // Of what its upper bits say a handle's key knows nothing.
  TcpSocket* const socket = tcp->sockets_->Find(loan);
  if (socket == nullptr) [[unlikely]] return tcp->PassCredit(loan, bytes);
  tcp->CreditRelease(*socket, bytes);
}

void Tcp::ReleaseRead(TcpSocket& socket, packet::Buffer* buffer) {
  const auto bytes = static_cast<uint32_t>(buffer->loan >> kLoanBytesShift);
  if (packet::BufferPool::TakeBack(buffer)) [[likely]] return CreditRelease(socket, bytes);
  packet::BufferPool::ReleaseByOwner(buffer);
}

bool Tcp::Join(packet::Buffer* to, packet::Buffer* from) {
  const packet::BufferPool& pool = *core_->device.pool;
  if (to->pool != &pool || from->pool != &pool || from->next != nullptr) return false;
  if (to->next != nullptr || (to->loan ^ from->loan) << (64 - kLoanBytesShift) != 0) return false;
  uint8_t* const end = to->data + to->length;
  const uint32_t bytes = from->length;
  if (pool.slot(to) + pool.buffer_bytes() - end < bytes) return false;
  const uint64_t lent = from->loan >> kLoanBytesShift << kLoanBytesShift;
  memcpy(end, from->data, bytes);
  if (!packet::BufferPool::TakeBack(from)) return false;
  to->length += bytes;
  to->loan += lent;
  return true;
}

inline void Tcp::CreditRelease(TcpSocket& socket, uint32_t bytes) {
  const bool nothing_before = socket.returned == 0 && socket.early_credit == 0;
  if (nothing_before && socket.connection != nullptr &&
      stack_->CreditQuietly(*socket.connection, bytes)) [[likely]] {
    return;
  }
  OweCredit(socket, bytes);
}

[[gnu::noinline]] void Tcp::OweCredit(TcpSocket& socket, uint32_t bytes) {
  socket.returned += bytes;
  if (!socket.credit.linked()) sockets_->credit.PushBack(socket);
  core_->attention |= kTcpNews;
}

void Tcp::CreditReturned(base::Nanoseconds now) {
  while (TcpSocket* socket = sockets_->credit.PopFront()) {
    const uint32_t returned = std::exchange(socket->returned, 0);
    if (socket->departing) {
      PassCredit(socket->handle, returned);
      continue;
    }
    const uint32_t early = std::min(returned, socket->early_credit);
    socket->early_credit -= early;
    if (returned == early || socket->connection == nullptr) continue;
    stack_->Credit(*socket->connection, returned - early, now);
  }
}

Outcome Tcp::Credit(Handle handle, uint32_t bytes) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr || socket->connection == nullptr) {
    return {EBADF, "credit: no such connection"};
  }
  const base::Nanoseconds now = core_->clock.Now();
  CreditReturned(now);
  if (bytes > socket->connection->owed_credit()) {
    return {EINVAL, "credit: more bytes than were handed out and not credited"};
  }
  if (!socket->profile->settings.manual_credit) socket->early_credit += bytes;
  stack_->Credit(*socket->connection, bytes, now);
  EndCall(/*ring=*/true);
  return {};
}

}  // namespace xtreme::engine
