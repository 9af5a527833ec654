// SPDX-License-Identifier: Apache-2.0
//
// From a send to posted frames. All or nothing: what is refused left no trace but a counter.

#include <cstring>

#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

uint8_t WantsOf(const SendOptions& options) {
  return static_cast<uint8_t>(((options.flags & kSendWantDone) != 0 ? kWantDone : 0) |
                              ((options.flags & kSendWantWire) != 0 ? kWantWire : 0));
}

uint16_t FlagsOf(const SendOptions& options) {
  return static_cast<uint16_t>(((options.flags & kNoDoorbell) != 0 ? nic::kTxMore : 0) |
                               ((options.flags & kWarm) != 0 ? nic::kTxWarm : 0));
}

}  // namespace

SendResult Udp::Refuse(UdpSocket& socket, SendResult reason) {
  ++socket.sends.refused;
  core_->tally.refusals.Count(static_cast<Refusal>(-static_cast<int>(reason) - 1));
  return reason;
}

SendResult Udp::ResultOf(UdpSocket& socket, nic::TxStatus status) {
  switch (status) {
    case nic::TxStatus::kPosted: return SendResult::kSent;
    case nic::TxStatus::kFull: return Refuse(socket, SendResult::kRefusedSqFull);
    case nic::TxStatus::kTooLong: return Refuse(socket, SendResult::kRefusedSize);
    case nic::TxStatus::kBroken: break;
  }
  return Refuse(socket, SendResult::kRefusedState);
}

// Whether nothing about this send needs more than PostShort does.
inline bool Udp::IsShort(const SendFlow& flow, const Payload& payload,
                         const SendOptions& options) const {
  constexpr uint32_t kPlainFlags = kNoDoorbell | kNowOrFail;
  return flow.epoch == core_->host.routes_version && payload.length < flow.short_below &&
         payload.buffer == nullptr && (options.flags & ~kPlainFlags) == 0 &&
         core_->device.started && !core_->device.broken;
}

// What most sends are, with nothing on the way that others need. Counted before it is posted, so
// that nothing is left to do behind Post() when it succeeds.
inline SendResult Udp::PostShort(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                                 uint32_t flags) {
  static_assert(kDoorbellOwed == kNoDoorbell << 1 && int{nic::kTxMore} == kNoDoorbell << 2);
  const uint32_t no_doorbell = flags & kNoDoorbell;
  flow.pattern.PatchLengths(flow.headers.data(), payload.length);
  const nic::TxFrame frame{.header = flow.headers.data(),
                           .payload = payload.data,
                           .header_length = flow.header_bytes,
                           .payload_length = static_cast<uint32_t>(payload.length),
                           .key = 0,
                           .flags = static_cast<uint16_t>(flow.tx_flags | no_doorbell << 2)};
  core_->attention |= no_doorbell << 1;
  ++socket.sends.sent;
  socket.sends.sent_bytes += payload.length;
  const nic::TxStatus status = core_->device.queue->Post(frame);
  if (status == nic::TxStatus::kPosted) [[likely]] return SendResult::kSent;
  return PostShortAgain(socket, frame, status);
}

// After Post() refused: once more if the queue was only full.
SendResult Udp::PostShortAgain(UdpSocket& socket, const nic::TxFrame& frame,
                               nic::TxStatus status) {
  if (status == nic::TxStatus::kFull) {
    core_->Reap(1);
    status = core_->device.queue->Post(frame);
    if (status == nic::TxStatus::kPosted) return SendResult::kSent;
  }
  --socket.sends.sent;
  socket.sends.sent_bytes -= frame.payload_length;
  return ResultOf(socket, status);
}

SendResult Udp::Send(UdpSocket* socket, const Payload& payload, const SendOptions& options) {
  if (!socket->connected()) [[unlikely]] return Refuse(*socket, SendResult::kRefusedState);
  SendFlow& flow = socket->flows->connected;
  if (!IsShort(flow, payload, options)) return SendOn(*socket, flow, payload, options);
  return PostShort(*socket, flow, payload, options.flags);
}

SendResult Udp::SendTo(UdpSocket* socket, const wire::Endpoint& peer, const Payload& payload,
                       const SendOptions& options) {
  SendFlow& flow = FlowTo(*socket, peer);
  if (!IsShort(flow, payload, options)) return SendOn(*socket, flow, payload, options);
  return PostShort(*socket, flow, payload, options.flags);
}

SendResult Udp::SendOn(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                       const SendOptions& options) {
  if (flow.epoch != core_->host.routes_version) [[unlikely]] Resolve(socket, flow);
  if (flow.state == SendFlow::State::kReady) [[likely]] {
    if (!core_->device.started || core_->device.broken) [[unlikely]] {
      return Refuse(socket, SendResult::kRefusedState);
    }
    return payload.length <= flow.max_payload ? PostDatagram(socket, flow, payload, options)
                                              : PostFragments(socket, flow, payload, options);
  }
  if (flow.state == SendFlow::State::kNoRoute) return Refuse(socket, SendResult::kRefusedRoute);
  return QueueDatagram(socket, flow, payload, options);
}

SendResult Udp::PostDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                             const SendOptions& options) {
  flow.pattern.PatchLengths(flow.headers.data(), payload.length);
  nic::TxFrame frame{.header = flow.headers.data(),
                     .payload = payload.data,
                     .header_length = flow.header_bytes,
                     .payload_length = static_cast<uint32_t>(payload.length),
                     .key = core_->device.pool_key,
                     .flags = static_cast<uint16_t>(flow.tx_flags | FlagsOf(options))};
  if (!core_->device.transmit_checksum) [[unlikely]] {
    flow.pattern.FillChecksums(flow.headers.data(), {payload.data, payload.length});
  }
  SendRecord record{.wants = WantsOf(options),
                    .socket = socket.handle,
                    .cookie = options.cookie,
                    .buffer = payload.buffer};
  if (payload.buffer == nullptr &&
      flow.header_bytes + payload.length > core_->device.max_inline_bytes) {
    record.buffer = core_->device.pool->Acquire();
    if (record.buffer == nullptr) return Refuse(socket, SendResult::kRefusedBuffers);
    memcpy(record.buffer->data, payload.data, payload.length);
    frame.payload = record.buffer->data;
  }
  const bool noted = record.buffer != nullptr || record.wants != kWantNothing;
  const nic::TxStatus status = core_->Post(frame, noted ? &record : nullptr);
  if (status != nic::TxStatus::kPosted) [[unlikely]] {
    if (record.buffer != payload.buffer) packet::BufferPool::ReleaseByOwner(record.buffer);
    return ResultOf(socket, status);
  }
  if (record.wants != kWantNothing) ++socket.sends_wanted;
  ++socket.sends.sent;
  socket.sends.sent_bytes += payload.length;
  if (flow.loopback && (options.flags & kWarm) == 0) [[unlikely]] LoopBack(flow, payload);
  return SendResult::kSent;
}

SendResult Udp::WouldSend(UdpSocket* socket, size_t length) {
  if (!socket->connected() || !core_->device.started || core_->device.broken) {
    return SendResult::kRefusedState;
  }
  if (length > wire::kUdpMaxPayloadBytes) return SendResult::kRefusedSize;
  SendFlow& flow = socket->flows->connected;
  if (flow.epoch != core_->host.routes_version) Resolve(*socket, flow);
  if (flow.state == SendFlow::State::kNoRoute) return SendResult::kRefusedRoute;
  const uint32_t frames = FramesOf(flow, length);
  if (flow.state == SendFlow::State::kNeighbour) {
    return neighbours_->HasRoom(flow.next_hop, frames) ? SendResult::kQueued
                                                       : SendResult::kRefusedNeighbour;
  }
  if (core_->SendRoom() < frames || core_->sends.full()) core_->Reap();
  if (core_->SendRoom() < frames || core_->sends.full()) return SendResult::kRefusedSqFull;
  const bool gathered = flow.header_bytes + length > core_->device.max_inline_bytes;
  if (gathered && core_->device.pool->free_count() < frames) return SendResult::kRefusedBuffers;
  return SendResult::kSent;
}

void Udp::Warm() {
  static constexpr uint8_t kNothing[64] = {};
  sockets_->ForEach([this](UdpSocket& socket) {
    if (socket.state != UdpSocket::State::kOpen || !socket.connected()) return;
    SendFlow& flow = socket.flows->connected;
    Resolve(socket, flow);
    if (flow.state != SendFlow::State::kReady) return;
    PostDatagram(socket, flow, {.data = kNothing, .length = sizeof(kNothing)},
                 {.flags = kWarm | kNoDoorbell});
    --socket.sends.sent;
    socket.sends.sent_bytes -= sizeof(kNothing);
  });
}

}  // namespace xtreme::engine
