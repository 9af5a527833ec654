// SPDX-License-Identifier: Apache-2.0
//
// The segment that is expected, from the frame to the completion in one function: called by the
// driver's loop, with nothing between.
//
// Whatever else there is to tell has a longer way (tcp_receive.cc), and while something of TCP's
// waits to be told, everything has: so nothing overtakes it. So it is while the pool is low, for
// then payload is perhaps not taken at all.

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/take_expected.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

[[gnu::always_inline]] inline void Tcp::WritePacket(TcpSocket& socket, packet::Buffer* buffer,
                                                    uint64_t hw_clock, Completion* out) const {
  const RingCore& core = *core_;
  out->kind = Kind::kPacket;
  out->event = RingEvent::kNone;
  out->flags = core.clock.flags();
  out->status = 0;
  out->socket = socket.handle;
  out->user_data = socket.user_data;
  out->buffer = buffer;
  out->data = buffer->data;
  out->length = buffer->length;
  out->count = 1;
  out->hw_time_ns = core.clock.DeviceTime(hw_clock);
  out->poll_tsc = core.poll_ticks;
  out->source_ip = socket.peer_ip;
  out->destination_ip = socket.local_ip;
  out->source_port = socket.peer.port;
  out->destination_port = socket.local.port;
  out->interface_index = core.device.ifindex;
  out->hw_clock = hw_clock;
  out->cookie = 0;
  out->vlan = 0;
}

Tcp::KnownFlows::Taken Tcp::Take(void* context, packet::Buffer* buffer, uint8_t* bytes,
                                 uint32_t length, uint64_t hw_clock, Completion* out) {
  using Taken = KnownFlows::Taken;
  Tcp& tcp = *static_cast<Tcp*>(context);
  RingCore& core = *tcp.core_;
  wire::TcpFrame frame;
  constexpr uint32_t kLongWay = kTcpNews | kRefillOwed;
  if ((core.attention & kLongWay) != 0 || !wire::ParsePlainTcpFrame(bytes, length, &frame)) {
    return tcp.TakeAny(buffer, bytes, length, hw_clock, out);
  }
  tcp::Connection* const connection = tcp.stack_->FindExpecting(frame);
  TcpSocket* const socket = connection == nullptr ? nullptr : SocketOf(connection->user);
  if (socket == nullptr) return tcp.TakeAny(buffer, bytes, length, hw_clock, out);
  const uint32_t payload_bytes = frame.segment.payload_bytes;
  core.attention |= kTimersArmed;
  tcp.stack_->TakeExpected(*connection, frame.segment, core.clock.ToTime(core.poll_ticks));
  if (payload_bytes == 0) {
    packet::BufferPool::ReleaseByOwner(buffer);
    return Taken::kSilently;
  }
  buffer->data = bytes + frame.payload_offset;
  buffer->length = payload_bytes;
  if (!socket->profile->settings.manual_credit) {
    packet::BufferPool::Lend(buffer, LoanOf(socket->handle, payload_bytes));
  }
  ++socket->counters.received;
  socket->counters.received_bytes += payload_bytes;
  tcp.WritePacket(*socket, buffer, hw_clock, out);
  return Taken::kCompletion;
}

}  // namespace xtreme::engine
