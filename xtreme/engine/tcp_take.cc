// SPDX-License-Identifier: Apache-2.0
//
// The segment that is expected, from the frame to the completion in one function: called by the
// driver's loop, with nothing between.
//
// Whatever else there is to tell has a longer way (tcp_receive.cc), and while something of TCP's
// waits to be told, everything has: so nothing overtakes it. So it is while the pool is low, for
// then payload is perhaps not taken at all.

#include <cstring>
#include <span>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/take_expected.h"
#include "stack/wire/tcp_plain.h"
#include "xtreme/completion/known_flows_write.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_loan.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

// Two words that are copied as one.
static_assert(offsetof(TcpSocket, user_data) == offsetof(TcpSocket, handle) + sizeof(Handle));
static_assert(offsetof(Completion, user_data) == offsetof(Completion, socket) + sizeof(Handle));
static_assert(wire::PlainTcpView::kReadableBytes <= completion::KnownFlows::kReadableBytes);

namespace {

// Of what stands in `buffer`.
[[gnu::always_inline]] inline void WritePacket(const RingCore& core, const TcpSocket& socket,
                                               packet::Buffer* buffer,
                                               std::span<uint8_t> payload, uint64_t hw_clock,
                                               Completion* out) {
  completion::SetHead(out, Kind::kPacket, core.clock.flags());
  std::memcpy(&out->socket, &socket.handle, sizeof(socket.handle) + sizeof(socket.user_data));
  out->buffer = buffer;
  out->data = payload.data();
  out->length = static_cast<uint32_t>(payload.size());
  out->count = 1;
  out->hw_time_ns = core.known.ToNanoseconds(hw_clock);
  out->poll_tsc = core.poll_ticks();
  out->source_ip = socket.peer_ip;
  out->destination_ip = socket.local_ip;
  out->source_port = socket.peer.port;
  out->destination_port = socket.local.port;
  out->interface_index = core.device.ifindex;
  out->hw_clock = hw_clock;
  out->cookie = 0;
  out->vlan = 0;
}

}  // namespace

Tcp::KnownFlows::Taken Tcp::Take(void* context, packet::Buffer* buffer, uint8_t* bytes,
                                 uint32_t length, uint64_t hw_clock, Completion* out) {
  using Taken = KnownFlows::Taken;
  Tcp& tcp = *static_cast<Tcp*>(context);
  RingCore& core = *tcp.core_;
  const wire::PlainTcpView frame(bytes);
  constexpr uint32_t kLongWay = kTcpNews | kRefillOwed;
  if ((core.attention & kLongWay) != 0 || !frame.IsTcp()) return Taken::kNot;
  tcp::Connection* const connection = tcp.stack_->FindPlain(frame);
  if (connection == nullptr) [[unlikely]] {
    tcp.found_ = nullptr;
    return tcp.TakeAny(buffer, bytes, length, hw_clock, out);
  }
  TcpSocket* const socket = SocketOf(connection->user);
  uint32_t header_bytes = 0, payload_bytes = 0;
  const bool taken =
      socket != nullptr &&
      frame.IsAck(connection->uses_timestamps(), length, &header_bytes, &payload_bytes) &&
      tcp.stack_->TakeIfExpected(*connection, frame, payload_bytes,
                                 [&core] { return core.PollTime(); });
  if (!taken) [[unlikely]] {
    tcp.found_ = connection;
    return tcp.TakeAny(buffer, bytes, length, hw_clock, out);
  }
  core.attention |= kTimersArmed;
  if (payload_bytes == 0) {
    packet::BufferPool::ReleaseByOwner(buffer);
    return Taken::kSilently;
  }
  uint8_t* const payload = bytes + wire::kEthernetHeaderBytes + header_bytes;
  buffer->data = payload;
  buffer->length = payload_bytes;
  if (!socket->profile->settings.manual_credit) [[likely]] {
    packet::BufferPool::Lend(buffer, LoanOf(socket->handle, payload_bytes));
  }
  ++socket->counters.received;
  socket->counters.received_bytes += payload_bytes;
  WritePacket(core, *socket, buffer, {payload, payload_bytes}, hw_clock, out);
  return Taken::kCompletion;
}

}  // namespace xtreme::engine
