// SPDX-License-Identifier: Apache-2.0
//
// Connections that move to another stack, and from one: packed up on one thread, admitted on the
// other, while what still comes to the old one is passed on.

#include <cerrno>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/departure.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {

bool Stack::MayDepart(const Connection& connection) const {
  return !connection.closed_ && !connection.departed_ && connection.Pcb::MayDepart();
}

std::unique_ptr<Departure> Stack::Depart(Connection& connection, Onward& to,
                                         base::Nanoseconds now) {
  now_ = now;
  ++counters_.departed;
  if ((connection.news_ & Pcb::kSendSpace) != 0) connection.OweSendSpace();
  auto departure =
      std::make_unique<Departure>(connection, connection.key_, connection.headers_);
  tables_->dones_promised -= departure->promised();
  connection.departed_ = true;
  connection.news_ &= static_cast<uint8_t>(~(Pcb::kDeliverable | Pcb::kSendSpace));  // it took them
  if (connection.news_ == 0) connection.news_hook_.Unlink();
  tables_->departed.Reserve(tables_->departed.size() + 1);
  tables_->departed.Insert(connection.key_, &to);
  connection.Leave();
  return departure;
}

Stack::Opened Stack::Admit(Departure& departure, const PcbOptions& options, uint64_t user,
                           base::Nanoseconds now) {
  now_ = now;
  const FlowKey& key = departure.flow_key();
  if (tables_->demux.Find(key) != nullptr || tables_->syns.Find(key) != nullptr) {
    return {.error = EADDRINUSE};
  }
  const uint32_t promised = departure.promised();
  if (tables_->options.segments - tables_->dones_promised < promised) return {.error = ENOBUFS};
  Connection* const connection = Make(key, options);
  if (connection == nullptr) return {.error = ENOBUFS};
  if (!connection->TakeOver(departure.pcb_)) {
    Detach(*connection);
    Release(*connection);
    return {.error = ENOBUFS};
  }
  ++counters_.admitted;
  tables_->dones_promised += promised;
  connection->headers_ = departure.headers();
  connection->user = user;
  if (TimeWaitRecord* const old = tables_->time_wait.Find(key)) tables_->time_wait.Remove(*old);
  tables_->departed.Erase(key);
  connection->Resume(now);
  Schedule(*connection);
  return {.connection = connection};
}

void Stack::Refuse(const Departure& departure, base::Nanoseconds now) {
  now_ = now;
  wire::TcpTemplate headers = departure.headers();
  if (headers.timestamps()) headers.UseTimestamps(false);
  const Outgoing reset{.sequence = departure.pcb().NextWithinWindow(),
                       .acknowledgement = departure.pcb().receive_next(),
                       .flags = wire::kTcpRst | wire::kTcpAck};
  const Taken taken = device_->Transmit({.headers = &headers, .outgoing = &reset});
  if (taken == Taken::kRefused) OweReset(headers, reset);
}

void Stack::InputStray(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
                       base::Nanoseconds now) {
  now_ = now;
  const FlowKey key = FlowKey::Of(frame.flow);
  if (Connection* const connection = tables_->demux.Find(key)) {
    ++counters_.strays_taken;
    return Arrive(*connection, frame, buffer, stamp, now);
  }
  if (Onward* const to = tables_->departed.Find(key)) {
    ++counters_.strays_passed_on;
    return to->PassOn(frame, buffer, stamp);
  }
  ++counters_.strays_lost;
  packet::BufferPool::Release(buffer);
}

Connection* Stack::Find(const FlowKey& key) const { return tables_->demux.Find(key); }

Onward* Stack::FindDeparted(const FlowKey& key) const { return tables_->departed.Find(key); }

void Stack::Forget(const FlowKey& key) { tables_->departed.Erase(key); }

const TimeWaitRecord* Stack::FindTimeWait(const FlowKey& key) const {
  return tables_->time_wait.Find(key);
}

void Stack::EnterTimeWait(const TimeWaitRecord& record, base::Nanoseconds now) {
  TimeWaitRecord& entered = tables_->time_wait.Enter(record.key, now);
  entered.snd_nxt = record.snd_nxt;
  entered.rcv_nxt = record.rcv_nxt;
  entered.ts_recent = record.ts_recent;
  entered.timestamp_offset = record.timestamp_offset;
  entered.window = record.window;
  entered.timestamps = record.timestamps;
  entered.peer_mac = record.peer_mac;
}

}  // namespace xtreme::tcp
