// SPDX-License-Identifier: Apache-2.0
//
// The user's calls: RFC 9293 section 3.10.1 to 3.10.5, and what a move of the ring asks.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"

namespace xtreme::tcp {
namespace {

Pcb::SendOptions OptionsOf(const Stack::Send& send) {
  const int flags =
      (send.want_wire ? Segment::kWantWire : 0) | (send.want_done ? Segment::kWantDone : 0);
  return {.now_or_fail = send.now_or_fail,
          .more = send.more,
          .promised = send.promised,
          .flags = static_cast<uint16_t>(flags),
          .cookie = send.cookie};
}

}  // namespace

Stack::Opened Stack::Open(const Connect& connect, base::Nanoseconds now) {
  now_ = now;
  const FlowKey key = FlowKey::Of(connect.local, connect.remote, connect.vlan_id);
  if (tables_->demux.Find(key) != nullptr || tables_->syns.Find(key) != nullptr ||
      (tables_->departed.size() != 0 && tables_->departed.Find(key) != nullptr)) {
    return {.error = EADDRINUSE};
  }
  Connection* const connection = Make(key, *connect.options);
  if (connection == nullptr) return {.error = ENOBUFS};
  Seq iss = tables_->initial_sequence.Next(key, now).iss;
  if (TimeWaitRecord* const old = tables_->time_wait.Find(key)) {
    // The peer's own TIME-WAIT, and old duplicates, take it for newer: RFC 9293 section 3.6.1.
    if (iss <= old->snd_nxt) iss = old->snd_nxt + 1;
    tables_->time_wait.Remove(*old);
  }
  connection->user = connect.user;
  SetHeaders(*connection, connect.path, /*timestamps=*/false);
  connection->Pcb::Connect(iss, now);
  Schedule(*connection);
  return {.connection = connection};
}

// Each promise has its place, so that no completion of a send is ever lost.
bool Stack::HasRoomForDone() const {
  return tables_->dones_promised < tables_->options.segments;
}

SendResult Stack::After(Connection& connection, const Send& send, SendResult result) {
  tables_->dones_promised += send.want_done && !IsRefused(result);
  Schedule(connection);
  return result;
}

SendResult Stack::SendCopy(Connection& connection, std::span<const uint8_t> bytes, const Send& send,
                           base::Nanoseconds now) {
  now_ = now;
  if (bytes.empty()) return connection.SendNothing();
  const uint32_t length = AskedBytes(bytes.size());
  const Pcb::SendOptions options = OptionsOf(send);
  if (send.want_done && !HasRoomForDone()) return connection.RefuseForDone(length, options);
  return After(connection, send, connection.Pcb::Send(bytes, options, now));
}

size_t Stack::SendSome(Connection& connection, std::span<const uint8_t> bytes, const Send& send,
                       base::Nanoseconds now) {
  const size_t fits = std::min<size_t>(bytes.size(), connection.CopyRoom(send.now_or_fail, now));
  // What is refused here tells kSendSpace when a byte fits, at least.
  const std::span<const uint8_t> part = bytes.first(std::max<size_t>(fits, !bytes.empty()));
  return IsRefused(SendCopy(connection, part, send, now)) ? 0 : part.size();
}

void Stack::AwaitAmpleRoom(Connection& connection) { connection.Pcb::AwaitAmpleRoom(); }

void Stack::OnShortOfRoom(Pcb& pcb) {
  Block(static_cast<Connection&>(pcb));
  device_->OnShortOfRoom();
}

void Stack::Block(Connection& connection) {
  if (!connection.blocked_hook_.linked()) tables_->blocked.PushBack(connection);
}

bool Stack::KeepsSpace(Connection& connection, base::Nanoseconds now) {
  now_ = now;
  return connection.Pcb::KeepsSpace();
}

SendResult Stack::SendInPlace(Connection& connection, const SegmentQueue::Payload& payload,
                              const Send& send, base::Nanoseconds now) {
  now_ = now;
  if (payload.length == 0) [[unlikely]] {
    const SendResult nothing = connection.SendNothing();
    const bool taken = !IsRefused(nothing) && payload.buffer != nullptr;
    if (taken) packet::BufferPool::Release(payload.buffer);
    return nothing;
  }
  Pcb::SendOptions options = OptionsOf(send);
  options.in_place = true;
  if (send.want_done && !HasRoomForDone()) {
    return connection.RefuseForDone(payload.length, options);
  }
  return After(connection, send, connection.Pcb::Send(payload, options, now));
}

void Stack::Credit(Connection& connection, uint32_t bytes, base::Nanoseconds now) {
  now_ = now;
  connection.Pcb::Credit(bytes, now);
  Schedule(connection);
}

void Stack::Shutdown(Connection& connection, base::Nanoseconds now) {
  now_ = now;
  connection.Pcb::Shutdown(now);
  Schedule(connection);
}

void Stack::Close(Connection& connection, base::Nanoseconds timeout, base::Nanoseconds now) {
  if (HasDeliveries(connection)) return CloseUnread(connection, now);
  now_ = now;
  Silence(connection);
  connection.Pcb::Close(timeout, now);
  Schedule(connection);
}

void Stack::CloseUnread(Connection& connection, base::Nanoseconds now) {
  now_ = now;
  Silence(connection);
  connection.Pcb::CloseUnread(now);
}

void Stack::Abort(Connection& connection, base::Nanoseconds now) {
  now_ = now;
  Silence(connection);
  connection.Pcb::Abort(now);
}

void Stack::Fail(Connection& connection, int error) { connection.Pcb::Fail(error); }

void Stack::ForgetStamps() {
  tables_->reassembly.ForgetStamps();
  tables_->deliveries.ForEach([](StackTables::Delivery& delivery) { delivery.stamp = 0; });
}

bool Stack::HasDeliveries(const Connection& connection) const {
  bool has = false;
  tables_->deliveries.ForEach([&](const StackTables::Delivery& delivery) {
    has |= delivery.connection == &connection;
  });
  return has;
}

void Stack::DropDeliveries(const Connection& connection) {
  tables_->deliveries.ForEach([&](StackTables::Delivery& delivery) {
    if (delivery.connection != &connection) return;
    ++counters_.unread;
    packet::BufferPool::ReleaseChain(delivery.chain);
    delivery.connection = nullptr;
  });
}

// What the application has not been told is of no interest to it any more.
void Stack::Silence(Connection& connection) {
  connection.closed_ = true;
  DropDeliveries(connection);
  if ((connection.news_ & Connection::kAccepted) != 0 && connection.listener_ != nullptr) {
    --connection.listener_->waiting;
  }
  connection.news_ &= Pcb::kTerminated;
  if (connection.news_ == 0) connection.news_hook_.Unlink();
}

void Stack::UseOptions(Connection& connection, const PcbOptions& options, base::Nanoseconds now) {
  connection.Pcb::UseOptions(options);
  OnOptionsChanged(connection, now);
}

void Stack::OnOptionsChanged(Connection& connection, base::Nanoseconds now) {
  now_ = now;
  connection.Pcb::OnOptionsChanged(now);
  Schedule(connection);
}

void Stack::SetLinkMtu(uint32_t mtu) {
  if (std::exchange(context_.link_mtu, mtu) == mtu) return;
  tables_->demux.ForEach([](Connection& connection) { connection.Pcb::OnLinkMtu(); });
}

void Stack::OnLinkUp(base::Nanoseconds now) {
  now_ = now;
  tables_->demux.ForEach([&](Connection& connection) {
    connection.Pcb::OnLinkUp(now);
    Schedule(connection);
  });
}

void Stack::SetPath(Connection& connection, const LinkPath& path) {
  SetHeaders(connection, path, connection.headers_.timestamps());
}

}  // namespace xtreme::tcp
