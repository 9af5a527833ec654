// SPDX-License-Identifier: Apache-2.0
//
// Sends that are too long for their WQE, one segment each: gathered from the copy that is kept of
// them, on headers that go from registers into the WQE. What is not such a one is sent otherwise.

#include <optional>

#include "stack/base/copy.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/fire.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_half.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine {

SendResult Tcp::SendLong(TcpSocket* socket, const Payload& payload, const SendOptions& options) {
  if (!SendGathered(*socket, payload, options)) [[unlikely]] {
    return SendOtherwise(socket, payload, options);
  }
  return SendResult::kSent;
}

// Of a payload without a buffer: a segment that may leave now, of which nothing is told, by a queue
// that takes its headers from registers. False: it is not one, and nothing has changed.
[[gnu::always_inline]] inline bool Tcp::SendGathered(TcpSocket& socket, const Payload& payload,
                                                     const SendOptions& options) {
  RingCore& core = *core_;
  tcp::Connection* const connection = socket.connection;
  // One by one, as in SendDirect().
  if (direct_epoch_ != core.host.routes_version) [[unlikely]] return false;
  if (connection == nullptr || socket.paced) [[unlikely]] return false;
  if ((options.flags & ~uint32_t{kNowOrFail | kNoDoorbell}) != 0) [[unlikely]] return false;
  const wire::TcpTemplate& headers = connection->headers();
  const bool timestamps = connection->uses_timestamps();
  if (headers.shape() != (timestamps ? kLongHeaders : kShortHeaders)) [[unlikely]] return false;
  const uint32_t header_bytes = timestamps ? nic::StreamSegment::kLongestHeader
                                           : nic::StreamSegment::kShortestHeader;
  if (header_bytes + payload.length <= core.device.max_inline_bytes) return false;
  if (payload.length > core.device.pool->payload_bytes()) [[unlikely]] return false;
  const auto length = static_cast<uint32_t>(payload.length);
  const tcp::Stack::Send send{.now_or_fail = (options.flags & kNowOrFail) != 0};
  if (!connection->MayLeave(length, send.now_or_fail)) [[unlikely]] return false;
  nic::QueuePair& queue = *core.device.queue;
  if (!queue.TakesStreams() || core.sends.full()) [[unlikely]] return false;
  packet::Buffer* const kept =
      core.device.pool->AcquireAbove(core.device.short_copies_leave);
  if (kept == nullptr) [[unlikely]] return false;
  base::CopyLong(kept->data, payload.data, length);
  const base::Nanoseconds now = core.clock.Now();
  tcp::Outgoing outgoing;
  connection->FillFired(now, &outgoing);
  const bool rings = (options.flags & kNoDoorbell) == 0;
  const std::optional<uint32_t> frame = queue.PostGathered(
      {.headers = headers.data(),
       .header_bytes = header_bytes,
       .tcp = TcpHalf(headers.data(), outgoing, kept->data),
       .payload = kept->data,
       .payload_length = length},
      core.device.pool_key, rings ? nic::kTxSignal : nic::kTxMore);
  if (!frame.has_value()) [[unlikely]] {
    packet::BufferPool::ReleaseByOwner(kept);
    return false;
  }
  tcp::Segment& segment = stack_->Fired(
      *connection, outgoing, {.bytes = kept->data, .length = length, .buffer = kept}, send,
      /*posts_reference=*/true, now);
  core.NoteSegment(*frame, rings, connection, &segment);
  core.attention |= kTimersArmed;
  ++socket.counters.sends;
  socket.counters.sent_bytes += length;
  return true;
}

}  // namespace xtreme::engine
