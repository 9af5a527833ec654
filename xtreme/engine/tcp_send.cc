// SPDX-License-Identifier: Apache-2.0
//
// Sends. The stack decides; here its answer becomes the ring's, and the doorbell is rung.

#include <algorithm>
#include <array>
#include <cstring>

#include "stack/base/copy.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/fire.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/keep_sent.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_half.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine {
namespace {

SendResult ResultOf(tcp::SendResult result) {
  switch (result) {
    case tcp::SendResult::kSent: return SendResult::kSent;
    case tcp::SendResult::kQueued: return SendResult::kQueued;
    case tcp::SendResult::kWindow: return SendResult::kRefusedWindow;
    case tcp::SendResult::kCongestion: return SendResult::kRefusedCongestion;
    case tcp::SendResult::kRecovery: return SendResult::kRefusedRecovery;
    case tcp::SendResult::kDevice: return SendResult::kRefusedSqFull;
    case tcp::SendResult::kBuffers: return SendResult::kRefusedBuffers;
    case tcp::SendResult::kState: break;
  }
  return SendResult::kRefusedState;
}

tcp::Stack::Send StackSend(const SendOptions& options) {
  return {.now_or_fail = (options.flags & kNowOrFail) != 0,
          .more = (options.flags & kMore) != 0,
          .want_wire = (options.flags & kSendWantWire) != 0,
          .want_done = (options.flags & kSendWantDone) != 0,
          .cookie = options.cookie};
}

// A function of its own, so that lengths are constants in the other.
template <typename See>
[[gnu::noinline]] void PostWithoutTimestamps(nic::TxFront& front, const uint8_t* headers,
                                             const tcp::Outgoing& outgoing,
                                             const nic::TxPayload& payload, const See& see) {
  nic::PostStream(front,
                  {.headers = headers,
                   .header_bytes = nic::StreamSegment::kShortestHeader,
                   .tcp = TcpHalf(headers, outgoing, payload.data),
                   .payload = payload.data,
                   .payload_length = payload.length},
                  see);
}

// Where no more is due than the post, and what `see` does.
template <typename See>
[[gnu::always_inline]] inline void PostAlone(nic::TxFront& front, const uint8_t* headers,
                                             const tcp::Outgoing& outgoing,
                                             const nic::TxPayload& payload, bool timestamps,
                                             const See& see) {
  if (!timestamps) [[unlikely]] {
    const tcp::Outgoing says = outgoing;  // Only here does it need an address.
    return PostWithoutTimestamps(front, headers, says, payload, see);
  }
  nic::PostStream(front,
                  {.headers = headers,
                   .header_bytes = nic::StreamSegment::kLongestHeader,
                   .tcp = TcpHalf(headers, outgoing, payload.data),
                   .payload = payload.data,
                   .payload_length = payload.length},
                  see);
}

// On a queue where more is due than the post. False: it was not posted.
[[gnu::always_inline]] inline bool PostWithDue(nic::QueuePair& queue, const uint8_t* headers,
                                               const tcp::Outgoing& outgoing,
                                               const nic::TxPayload& payload) {
  return queue.PostStreamOtherwise(
      {.headers = headers,
       .header_bytes = outgoing.has_timestamps ? nic::StreamSegment::kLongestHeader
                                               : nic::StreamSegment::kShortestHeader,
       .tcp = TcpHalf(headers, outgoing, payload.data),
       .payload = payload.data,
       .payload_length = payload.length});
}

}  // namespace

bool Tcp::CanSend(const TcpSocket& socket) const {
  return socket.connection != nullptr && core_->device.started && !core_->device.broken;
}

SendResult Tcp::Refuse(TcpSocket& socket, SendResult reason) {
  ++socket.counters.refused;
  core_->tally.refusals.Count(RefusalOf(reason));
  return reason;
}

void Tcp::Uncount(TcpSocket& socket, SendResult reason) {
  --socket.counters.refused;
  core_->tally.refusals.Uncount(RefusalOf(reason));
}

// After a call that may have posted frames, armed timers or told something.
void Tcp::EndCall(bool ring) {
  core_->attention |= kTimersArmed;
  if (stack_->HasEvents()) core_->attention |= kTcpNews;
  if (epoch_ != core_->host.routes_version) core_->attention |= kTcpNews;
  if (!ring || (core_->attention & kAnyDoorbellOwed) == 0) return;
  core_->Flush();
}

// Posts a segment that MayFire() let go, and copies its payload to `kept`: it leaves whole in its
// WQE if it fits there, else gathered from that copy.
[[gnu::always_inline]] inline bool Tcp::PostSegment(tcp::Connection& connection,
                                                    const tcp::Outgoing& outgoing,
                                                    const Payload& payload, packet::Buffer* kept,
                                                    uint32_t flags, bool* gathered) {
  RingCore& core = *core_;
  const auto length = static_cast<uint32_t>(payload.length);
  const wire::TcpTemplate& headers = stack_->Headers(connection, outgoing, length);
  nic::TxFrame frame;  // Not cleared first.
  frame.header = headers.data();
  frame.payload = payload.data;
  frame.header_length = static_cast<uint32_t>(headers.header_bytes());
  frame.payload_length = length;
  frame.key = 0;
  frame.flags = static_cast<uint16_t>(nic::kTxIpChecksum | nic::kTxL4Checksum | flags);
  *gathered = frame.header_length + length > core.device.max_inline_bytes;
  if (!*gathered) [[likely]] {
    if (core.device.queue->Post(frame) != nic::TxStatus::kPosted) return false;
    // It is on its way; what is kept of it, until it is acknowledged, can be seen to now.
    base::CopyShort(kept->data, payload.data, length);
    return true;
  }
  memcpy(kept->data, payload.data, length);
  frame.payload = kept->data;
  frame.key = core.device.pool_key;
  SendRecord record{.wants = kWantSegment, .connection = &connection};
  return core.Post(frame, &record) == nic::TxStatus::kPosted;
}

// Most sends: a short segment that may leave now, of which nothing is told, by a queue that takes
// it from registers. False: it is not one, and nothing has changed.
template <Tcp::Due kDue>
[[gnu::always_inline]] inline bool Tcp::SendDirect(TcpSocket& socket, const Payload& payload,
                                                   const SendOptions& options) {
  RingCore& core = *core_;
  nic::QueuePair& queue = *core.device.queue;
  nic::TxFront& front =
      kDue == Due::kPostAndKeep ? *queue.sent_tap().front : *queue.StreamFront();
  // One by one, each unlikely: of all in one expression the compiler takes what follows to be rare.
  if (kDue != Due::kMore && !front.Ready()) [[unlikely]] return false;
  tcp::Connection* const connection = socket.connection;
  if (direct_epoch_ != core.host.routes_version) [[unlikely]] return false;
  if (connection == nullptr || socket.paced) [[unlikely]] return false;
  if (payload.buffer != nullptr) [[unlikely]] return false;
  if ((options.flags & ~uint32_t{kNowOrFail}) != 0) [[unlikely]] return false;
  if (payload.length - 1 >= nic::StreamSegment::kMostPayloadBytes) [[unlikely]] return false;
  const wire::TcpTemplate& headers = connection->headers();
  // A header of the other kind is made anew with the next segment.
  if (connection->uses_timestamps()) [[likely]] {
    if (headers.shape() != kLongHeaders) [[unlikely]] return false;
  } else {
    if (headers.shape() != kShortHeaders) [[unlikely]] return false;
  }
  const auto length = static_cast<uint32_t>(payload.length);
  const tcp::Stack::Send send{.now_or_fail = (options.flags & kNowOrFail) != 0};
  if (!connection->MayLeave(length, send.now_or_fail)) [[unlikely]] return false;
  packet::Buffer* const kept =
      core.device.pool->AcquireAbove(core.device.short_copies_leave);
  if (kept == nullptr) [[unlikely]] return false;
  // The WQE is written from what is kept, which is long enough to be read by half lines.
  base::CopyShort(kept->data, payload.data, length);
  // Not before: what the header says goes from registers into the WQE.
  const base::Nanoseconds now = core.clock.Now();
  tcp::Outgoing outgoing;
  connection->FillFired(now, &outgoing);
  const nic::TxPayload copied = {kept->data, length};
  const bool timestamps = connection->uses_timestamps();
  if constexpr (kDue == Due::kMore) {
    if (!PostWithDue(queue, headers.data(), outgoing, copied)) {
      packet::BufferPool::ReleaseByOwner(kept);
      return false;
    }
    core.attention &= ~kDoorbellOwed;  // One doorbell rang for all that was posted before.
  } else if constexpr (kDue == Due::kPostAndKeep) {
    PostAlone(front, headers.data(), outgoing, copied, timestamps, KeepSent(queue));
  } else {
    PostAlone(front, headers.data(), outgoing, copied, timestamps, nic::Unseen());
  }
  stack_->Fired(*connection, outgoing, {.bytes = kept->data, .length = length, .buffer = kept},
                send, /*posts_reference=*/false, now);
  core.attention |= kTimersArmed;
  ++socket.counters.sends;
  socket.counters.sent_bytes += length;
  return true;
}

// Most others: a segment that may leave now, of which nothing is told but that it is done. False:
// it is not one, and nothing has changed.
[[gnu::always_inline]] inline bool Tcp::SendAtOnce(TcpSocket& socket, const Payload& payload,
                                                   const SendOptions& options) {
  constexpr uint32_t kSeldom = kSendWantWire | kWarm | kMore;
  RingCore& core = *core_;
  tcp::Connection* const connection = socket.connection;
  const bool usual = connection != nullptr && payload.buffer == nullptr &&
                     socket.pace == nullptr &&
                     (options.flags & kSeldom) == 0 && core.device.started &&
                     !core.device.broken && core.device.transmit_checksum &&
                     epoch_ == core.host.routes_version;  // Else the path may be another by now.
  if (!usual) [[unlikely]] return false;
  // Nor empty.
  const uint32_t most = std::min<uint32_t>(connection->smss(), core.device.pool->payload_bytes());
  if (payload.length - 1 >= most) return false;
  const auto length = static_cast<uint32_t>(payload.length);
  const tcp::Stack::Send send = StackSend(options);
  const base::Nanoseconds now = core.clock.Now();
  tcp::Outgoing outgoing;
  if (!stack_->MayFire(*connection, length, send, now, &outgoing)) return false;
  packet::Buffer* const kept =
      core.device.pool->AcquireAbove(core.device.short_copies_leave);
  if (kept == nullptr) [[unlikely]] return false;
  const uint32_t more = (options.flags & kNoDoorbell) != 0 ? nic::kTxMore : 0;
  bool gathered = false;
  if (!PostSegment(*connection, outgoing, payload, kept, more, &gathered)) [[unlikely]] {
    packet::BufferPool::ReleaseByOwner(kept);
    return false;
  }
  tcp::Segment& segment = stack_->Fired(
      *connection, outgoing, {.bytes = kept->data, .length = length, .buffer = kept}, send,
      gathered, now);
  if (gathered) core.sends.newest().segment = &segment;
  // One doorbell rings for all that was posted before.
  core.attention &= ~kDoorbellOwed;
  core.attention |= kTimersArmed | (more != 0 ? uint32_t{kDoorbellOwed} : 0);
  ++socket.counters.sends;
  socket.counters.sent_bytes += length;
  return true;
}

template <Tcp::Due kDue>
SendResult Tcp::SendBy(Tcp& tcp, TcpSocket* socket, const Payload& payload,
                       const SendOptions& options) {
  tcp.core_->CheckOwner();
  if (payload.length - 1 >= nic::StreamSegment::kMostPayloadBytes) [[unlikely]] {
    const bool copied = payload.buffer == nullptr;
    return copied ? tcp.SendLong(socket, payload, options)
                  : tcp.SendOtherwise(socket, payload, options);
  }
  if (!tcp.SendDirect<kDue>(*socket, payload, options)) [[unlikely]] {
    return tcp.SendOtherwise(socket, payload, options);
  }
  return SendResult::kSent;
}

// Each is right of the other's queue too, whose front of the kind is never ready.
void Tcp::ChooseSend() {
  const bool keeps = core_->device.queue->sent_tap().frames != nullptr;
  send_ = keeps ? &SendBy<Due::kPostAndKeep> : &SendBy<Due::kPost>;
}

[[gnu::noinline]] SendResult Tcp::SendOtherwise(TcpSocket* socket, const Payload& payload,
                                                const SendOptions& options) {
  const nic::QueuePair& queue = *core_->device.queue;
  const bool more_due = queue.TakesStreams() && !queue.StreamFront()->Ready();
  if (more_due && SendDirect<Due::kMore>(*socket, payload, options)) return SendResult::kSent;
  if (SendAtOnce(*socket, payload, options)) [[likely]] return SendResult::kSent;
  if (socket->state == TcpSocket::State::kOpening) return SendEarly(*socket, payload, options);
  if (!CanSend(*socket)) return Refuse(*socket, SendResult::kRefusedState);
  if ((options.flags & kWarm) != 0) return SendWarm(*socket, payload, options);
  FollowPaths(*socket);
  tcp::Connection& connection = *socket->connection;
  const bool ring = (options.flags & kNoDoorbell) == 0;
  const base::Nanoseconds now = core_->clock.Now();
  // A single frame rings for itself, by BlueFlame if it may; several by one doorbell.
  device_->defer = !ring || payload.length > connection.smss();
  const tcp::SendResult result = Hand(connection, payload, options, now);
  device_->defer = true;
  EndCall(ring);
  if (tcp::IsRefused(result)) return Refuse(*socket, ResultOf(result));
  ++socket->counters.sends;
  socket->counters.sent_bytes += payload.length;
  socket->counters.queued += result == tcp::SendResult::kQueued;
  return ResultOf(result);
}

tcp::SendResult Tcp::Hand(tcp::Connection& connection, const Payload& payload,
                          const SendOptions& options, base::Nanoseconds now, bool promised) {
  tcp::Stack::Send send = StackSend(options);
  send.promised = promised;
  if (payload.buffer == nullptr) {
    return stack_->SendCopy(connection, {payload.data, payload.length}, send, now);
  }
  const uint32_t region = core_->registered->NumberOf(payload);
  if (region == 0 && payload.buffer->pool != core_->device.pool.get()) {
    return HandForeign(connection, payload, options, now, promised);
  }
  return stack_->SendInPlace(connection,
                             {.bytes = payload.data,
                              .length = tcp::AskedBytes(payload.length),
                              .buffer = payload.buffer,
                              .memory_key = region},
                             send, now);
}

// Of a buffer that the device cannot read: a copy is sent.
tcp::SendResult Tcp::HandForeign(tcp::Connection& connection, const Payload& payload,
                                 const SendOptions& options, base::Nanoseconds now,
                                 bool promised) {
  const Payload copied{.data = payload.data, .length = payload.length};
  const tcp::SendResult result = Hand(connection, copied, options, now, promised);
  if (!tcp::IsRefused(result)) packet::BufferPool::Release(payload.buffer);
  return result;
}

size_t Tcp::SendSome(TcpSocket* socket, std::span<const uint8_t> bytes, const SendOptions& options,
                     SendResult* result) {
  const bool early = socket->state == TcpSocket::State::kOpening;
  size_t room = early ? EarlyRoom(*socket) : 0;
  const bool now_or_fail = (options.flags & kNowOrFail) != 0;
  if (socket->connection != nullptr) {
    room = socket->connection->CopyRoom(now_or_fail, core_->clock.Now());
  }
  // Of what does not fit at all one byte is tried, so that the refusal has its reason and its
  // TX_SPACE.
  const size_t most = std::min<size_t>(bytes.size(), std::max<size_t>(room, 1));
  *result = Send(socket, {.data = bytes.data(), .length = most}, options);
  return static_cast<int>(*result) < 0 ? 0 : most;
}

bool Tcp::HasAmpleRoom(TcpSocket* socket) {
  tcp::Connection* const connection = socket->connection;
  if (connection == nullptr || connection->HasAmpleRoom()) return true;
  stack_->AwaitAmpleRoom(*connection);
  return false;
}

SendResult Tcp::WouldSend(const TcpSocket* socket, size_t length) const {
  core_->CheckOwner();
  if (!CanSend(*socket)) return SendResult::kRefusedState;
  if (length == 0) return ResultOf(socket->connection->SendNothing());
  const base::Nanoseconds now = core_->clock.Now();
  socket->connection->RestartIfSilent(now);
  const SendResult would = ResultOf(socket->connection->WouldSend(tcp::AskedBytes(length)));
  if (would != SendResult::kSent) return would;
  // The windows have room, and the queue; what is left to look at is memory for a copy.
  const bool fits = length <= socket->connection->CopyRoom(/*now_or_fail=*/true, now);
  return fits ? would : SendResult::kRefusedBuffers;
}

// What a send of one segment touches, up to a WQE that reaches no wire.
SendResult Tcp::SendWarm(TcpSocket& socket, const Payload& payload, const SendOptions& options) {
  const wire::TcpTemplate& pattern = socket.connection->headers();
  const auto length =
      static_cast<uint32_t>(std::min<size_t>(payload.length, socket.connection->smss()));
  const auto header_bytes = static_cast<uint32_t>(pattern.header_bytes());
  if (header_bytes + length > core_->device.max_inline_bytes) {
    return Refuse(socket, SendResult::kRefusedSize);
  }
  alignas(64) std::array<uint8_t, 128> headers;
  memcpy(headers.data(), pattern.data(), header_bytes);
  pattern.PatchLengths(headers.data(), length);
  nic::TxFrame frame{.header = headers.data(),
                     .payload = payload.data,
                     .header_length = header_bytes,
                     .payload_length = length,
                     .key = 0,
                     .flags = nic::kTxWarm};
  if ((options.flags & kNoDoorbell) != 0) frame.flags |= nic::kTxMore;
  if (core_->Post(frame, nullptr) != nic::TxStatus::kPosted) {
    return Refuse(socket, SendResult::kRefusedSqFull);
  }
  // The WQE has the bytes.
  if (payload.buffer != nullptr) packet::BufferPool::Release(payload.buffer);
  return SendResult::kSent;
}

}  // namespace xtreme::engine
