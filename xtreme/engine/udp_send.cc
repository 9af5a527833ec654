// SPDX-License-Identifier: Apache-2.0
//
// From a send to posted frames. All or nothing: what is refused left no trace but a counter.

#include <cstring>

#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/send_wants.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"

namespace xtreme::engine {
namespace {

// Whether a datagram is plain but too long for a WQE, and the device can keep it: then, as on the
// short way, nothing more is looked at.
bool IsStored(const RingCore& core, const SendFlow& flow, const Payload& payload, uint32_t flags) {
  constexpr uint32_t kPlainFlags = kNoDoorbell | kNowOrFail;
  return flow.epoch == core.host.routes_version &&
         payload.length - flow.short_below < flow.stored_lengths && payload.buffer == nullptr &&
         (flags & ~kPlainFlags) == 0;
}

// Posts a frame whose payload is copied on the way, into its WQE or to on-device memory. kTooLong:
// neither has room for it.
nic::TxStatus PostCopy(RingCore& core, nic::TxFrame frame, SendRecord* record, PacedQueue* by) {
  frame.key = 0;
  const nic::TxStatus status = core.Post(frame, record, by);
  if (status != nic::TxStatus::kTooLong || by != nullptr) return status;
  core.Reap(1);  // Gives room on the device back.
  return core.Post(frame, record);
}

// Whether PostCopy() by the ring's own queue would find room on the device for so long a payload.
bool HasRoomToStore(RingCore& core, size_t length) {
  const nic::QueuePair& queue = *core.device.queue;
  const auto bytes = static_cast<uint32_t>(length);
  if (queue.HasRoomToStore(bytes)) return true;
  core.Reap();
  return queue.HasRoomToStore(bytes);
}

}  // namespace

SendResult Udp::Refuse(UdpSocket& socket, SendResult reason) {
  ++socket.sends.refused;
  core_->tally.refusals.Count(RefusalOf(reason));
  return reason;
}

void Udp::Uncount(UdpSocket& socket, SendResult reason) {
  --socket.sends.refused;
  core_->tally.refusals.Uncount(RefusalOf(reason));
}

SendResult Udp::RefuseStale() {
  core_->tally.refusals.Count(Refusal::kState);
  return SendResult::kRefusedState;
}

SendResult Udp::ResultOf(UdpSocket& socket, nic::TxStatus status) {
  switch (status) {
    case nic::TxStatus::kPosted: return SendResult::kSent;
    case nic::TxStatus::kFull: return Refuse(socket, SendResult::kRefusedSqFull);
    case nic::TxStatus::kTooLong: return Refuse(socket, SendResult::kRefusedSize);
    case nic::TxStatus::kBroken: core_->LookForErrors();
  }
  return Refuse(socket, SendResult::kRefusedState);
}

SendResult Udp::Send(UdpSocket* socket, const Payload& payload, const SendOptions& options) {
  return engine::Send(*core_, *this, *socket, payload, options);
}

SendResult Udp::SendOtherwise(UdpSocket& socket, const Payload& payload,
                              const SendOptions& options) {
  if (!socket.connected()) return Refuse(socket, SendResult::kRefusedState);
  SendFlow& flow = socket.flows->connected;
  if (IsStored(*core_, flow, payload, options.flags)) {
    const uint32_t no_doorbell = options.flags & kNoDoorbell;
    const nic::TxStatus status = core_->device.queue->PostStored(
        flow.prepared, payload.data, static_cast<uint32_t>(payload.length), no_doorbell << 2);
    if (status == nic::TxStatus::kPosted) [[likely]] {
      core_->OweDoorbell(no_doorbell != 0);
      CountSent(*socket.flows, payload.length);
      return SendResult::kSent;
    }
  }
  return SendOn(socket, flow, payload, options);
}

// Once more if the queue was only full.
SendResult Udp::SendAgain(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                          uint32_t flags, nic::TxStatus status) {
  if (status == nic::TxStatus::kFull) {
    core_->Reap(1);
    status = PostShort(*core_, flow, payload, flags);
  }
  if (status != nic::TxStatus::kPosted) return ResultOf(socket, status);
  CountSent(*socket.flows, payload.length);
  return SendResult::kSent;
}

SendResult Udp::SendTo(UdpSocket* socket, const wire::Endpoint& peer, const Payload& payload,
                       const SendOptions& options) {
  core_->CheckOwner();
  SendFlow& flow = FlowTo(*socket, peer);
  if (!IsShort(*core_, flow, payload, options.flags)) {
    return SendOn(*socket, flow, payload, options);
  }
  return SendShort(*core_, *this, *socket, *socket->flows, flow, payload, options.flags);
}

// As many as take the short way, from the first on. Rings for none of them.
uint32_t Udp::PostShorts(UdpSocket& socket, std::span<const nic::TxPayload> payloads,
                         uint32_t flags) {
  if (socket.flows == nullptr || !IsShort(*core_, socket.flows->connected, {}, flags)) return 0;
  const nic::TxBurst posted =
      core_->device.queue->PostBurst(socket.flows->connected.prepared, payloads);
  socket.flows->counters.sent += posted.frames;
  socket.flows->counters.sent_bytes += posted.payload_bytes;
  return posted.frames;
}

uint32_t Udp::SendBurst(UdpSocket* socket, std::span<const nic::TxPayload> payloads,
                        uint32_t flags, SendResult* last) {
  core_->CheckOwner();
  uint32_t sent = PostShorts(*socket, payloads, flags);
  *last = SendResult::kSent;
  // Between bursts one that is too long for a WQE, finds no room, or needs more.
  while (sent != payloads.size()) {
    const Payload payload{.data = payloads[sent].data, .length = payloads[sent].length};
    *last = Send(socket, payload, {.flags = flags | kNoDoorbell});
    if (static_cast<int>(*last) < 0) break;
    ++sent;
    sent += PostShorts(*socket, payloads.subspan(sent), flags);
  }
  core_->attention |= kDoorbellOwed;
  if ((flags & kNoDoorbell) != 0) return sent;
  core_->Flush();
  return sent;
}

SendResult Udp::SendOn(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                       const SendOptions& options) {
  if (payload.buffer != nullptr && !core_->IsOwn(payload)) [[unlikely]] {
    return SendForeign(socket, flow, payload, options);
  }
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

// Of a buffer that the device cannot read: a copy is sent.
SendResult Udp::SendForeign(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                            const SendOptions& options) {
  const SendResult result =
      SendOn(socket, flow, {.data = payload.data, .length = payload.length}, options);
  if (static_cast<int>(result) >= 0) packet::BufferPool::Release(payload.buffer);
  return result;
}

SendResult Udp::PostDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                             const SendOptions& options) {
  alignas(64) std::array<uint8_t, wire::FrameTemplate::kStorageBytes> headers;
  memcpy(headers.data(), flow.pattern.data(), headers.size());
  flow.pattern.PatchLengths(headers.data(), payload.length);
  if (!socket.settings.dont_fragment) flow.pattern.PatchId(headers.data(), ++next_id_);
  nic::TxFrame frame{.header = headers.data(),
                     .payload = payload.data,
                     .header_length = flow.header_bytes,
                     .payload_length = static_cast<uint32_t>(payload.length),
                     .key = core_->KeyOf(payload.buffer),
                     .flags = static_cast<uint16_t>(flow.tx_flags | TxFlagsOf(options))};
  if (!core_->device.transmit_checksum) [[unlikely]] {
    flow.pattern.FillChecksums(headers.data(), {payload.data, payload.length});
  }
  const auto wants = static_cast<uint8_t>(WantsOf(options) | core_->WantsOf(payload.buffer));
  SendRecord record{.wants = wants,
                    .socket = socket.handle,
                    .cookie = options.cookie,
                    .buffer = payload.buffer};
  const bool in_wqe = flow.header_bytes + payload.length <= core_->device.max_inline_bytes;
  nic::TxStatus status = nic::TxStatus::kTooLong;
  if (payload.buffer == nullptr && (in_wqe || core_->device.device_memory)) {
    status = PostCopy(*core_, frame, record.wants != kWantNothing ? &record : nullptr,
                      socket.pace());
  }
  if (status == nic::TxStatus::kTooLong) {
    if (payload.buffer == nullptr) {
      record.buffer = core_->device.pool->Acquire();
      if (record.buffer == nullptr) return Refuse(socket, SendResult::kRefusedBuffers);
      memcpy(record.buffer->data, payload.data, payload.length);
      frame.payload = record.buffer->data;
    }
    status = core_->Post(frame, &record, socket.pace());
  }
  if (status != nic::TxStatus::kPosted) [[unlikely]] {
    if (record.buffer != payload.buffer) packet::BufferPool::ReleaseByOwner(record.buffer);
    return ResultOf(socket, status);
  }
  if (record.wants != kWantNothing) ++socket.sends_wanted;
  if ((options.flags & kWarm) != 0) return SendResult::kSent;
  CountSent(*socket.flows, payload.length);
  if (flow.loopback) [[unlikely]] LoopBack(flow, payload);
  return SendResult::kSent;
}

SendResult Udp::WouldSend(UdpSocket* socket, size_t length) {
  core_->CheckOwner();
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
  if (!HasRoom(*socket, frames)) return SendResult::kRefusedSqFull;
  const bool in_wqe = flow.header_bytes + length <= core_->device.max_inline_bytes;
  if (in_wqe || core_->device.pool->free_count() >= frames) return SendResult::kSent;
  const bool may_store = core_->device.device_memory && frames == 1 && socket->pace() == nullptr;
  return may_store && HasRoomToStore(*core_, length) ? SendResult::kSent
                                                     : SendResult::kRefusedBuffers;
}

void Udp::Warm() {
  static constexpr uint8_t kNothing[64] = {};
  sockets_->ForEach([this](UdpSocket& socket) {
    const bool sends = socket.state == UdpSocket::State::kOpen && socket.connected();
    if (!sends || socket.pace() != nullptr) return;
    SendFlow& flow = socket.flows->connected;
    Resolve(socket, flow);
    if (flow.state != SendFlow::State::kReady) return;
    const SendResult warmed =
        PostDatagram(socket, flow, {.data = kNothing, .length = sizeof(kNothing)},
                     {.flags = kWarm | kNoDoorbell});
    // More sockets than the queue is long: it is warm.
    if (warmed != SendResult::kSent) Uncount(socket, warmed);
  });
}

}  // namespace xtreme::engine
