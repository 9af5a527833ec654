// SPDX-License-Identifier: Apache-2.0
//
// Prepared sends over TCP. What is the same each time stands in the frame; sequence number,
// acknowledgement, window and timestamps are of the moment it is fired.
//
// Armed, one holds a buffer of the pool with its payload: firing hands that to the stack, which
// sends from it again until it is acknowledged.

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/fire.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_wants.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

Outcome Tcp::PrepareSend(Handle handle, std::span<const uint8_t> payload, Handle* prepared) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "prepare: no such socket"};
  if (socket->state == TcpSocket::State::kListening) return {ENOTCONN, "prepare: a listener"};
  if (payload.empty()) return {EINVAL, "prepare: no bytes"};
  if (payload.size() > socket->settings.send_queue_bytes) {
    return {EMSGSIZE, "prepare: longer than the send queue"};
  }
  socket->prepares = true;
  return core_->prepared->Prepare(prepared_.get(), handle, payload, prepared);
}

// Only what takes the short way is built: one segment, alone in its WQE, with checksums by the NIC.
void Tcp::BuildPrepared(PreparedSend& prepared) {
  TcpSocket& socket = *Find(prepared.socket);  // Closing it discards them.
  prepared.sent = &socket.counters.sends;
  prepared.sent_bytes = &socket.counters.sent_bytes;
  const RingDevice& device = core_->device;
  if (!CanSend(socket) || !device.transmit_checksum || socket.pace != nullptr) return;
  if (epoch_ != core_->host.routes_version) RefreshPaths();
  const tcp::Connection& connection = *socket.connection;
  const auto bytes = static_cast<uint32_t>(prepared.payload.size());
  const bool fits = connection.state() == tcp::State::kEstablished && bytes <= connection.smss();
  if (!fits) return;
  const wire::TcpTemplate& pattern = connection.headers();
  const auto header_bytes = static_cast<uint32_t>(pattern.header_bytes());
  alignas(64) std::array<uint8_t, 128> headers;
  memcpy(headers.data(), pattern.data(), header_bytes);
  pattern.PatchLengths(headers.data(), bytes);
  const bool built = device.queue->PrepareFrame(
      {.header = headers.data(),
       .payload = prepared.payload.data(),
       .header_length = header_bytes,
       .payload_length = bytes,
       .key = 0,
       .flags = nic::kTxIpChecksum | nic::kTxL4Checksum},
      &prepared.frame);
  if (!built) return;
  if (prepared.kept == nullptr) prepared.kept = device.pool->Acquire();
  if (prepared.kept == nullptr) return;
  memcpy(prepared.kept->data, prepared.payload.data(), bytes);
  prepared.kept->length = bytes;
  prepared.connection = socket.connection;
  prepared.built_for = core_->host.routes_version;
}

SendResult Tcp::PostPrepared(PreparedSend& prepared, const SendOptions& options) {
  RingCore& core = *core_;
  const base::Nanoseconds now = core.clock.Now();
  const tcp::Stack::Send send{.now_or_fail = true,
                              .want_wire = (options.flags & kSendWantWire) != 0,
                              .want_done = (options.flags & kSendWantDone) != 0,
                              .cookie = options.cookie};
  const auto bytes = static_cast<uint32_t>(prepared.payload.size());
  const bool plain = (options.flags & (kWarm | kMore)) == 0;
  tcp::Outgoing outgoing;
  if (prepared.built_for != core.host.routes_version || !plain ||
      !stack_->MayFire(*prepared.connection, bytes, send, now, &outgoing)) [[unlikely]] {
    return PostOtherwise(prepared, options);
  }
  tcp::Connection& connection = *prepared.connection;
  const wire::TcpTemplate& pattern = connection.headers();
  uint8_t* const headers = prepared.frame.image.data() + prepared.frame.frame_at;
  pattern.PatchSegment(headers, {.sequence = outgoing.sequence.value(),
                                 .acknowledgement = outgoing.acknowledgement.value(),
                                 .window = outgoing.window,
                                 .flags = outgoing.flags});
  if (outgoing.has_timestamps) pattern.PatchTimestamps(headers, outgoing.timestamps);
  const uint32_t flags = TxFlagsOf(options);
  SendRecord record{.wants = kWantSegment, .connection = &connection};
  const bool direct = flags == 0 && !send.want_wire;
  const nic::TxStatus status =
      direct ? core.device.queue->PostPrepared(prepared.frame, 0)
             : core.PostPrepared(prepared.frame, flags, send.want_wire ? &record : nullptr);
  if (status != nic::TxStatus::kPosted) [[unlikely]] return PostOtherwise(prepared, options);
  packet::Buffer* const kept = std::exchange(prepared.kept, nullptr);
  tcp::Segment& segment = stack_->Fired(
      connection, outgoing, {.bytes = kept->data, .length = bytes, .buffer = kept}, send,
                     send.want_wire, now);
  if (send.want_wire) core.sends.newest().segment = &segment;
  prepared.built_for = PreparedSend::kNever;  // Armed again, it needs another buffer.
  core.attention |= kTimersArmed;
  ++*prepared.sent;
  *prepared.sent_bytes += bytes;
  return SendResult::kSent;
}

// As a send that may not queue: where something is in its way, and where nothing could be built.
SendResult Tcp::PostOtherwise(PreparedSend& prepared, const SendOptions& options) {
  return Send(Find(prepared.socket), prepared.whole(),
              {.flags = options.flags | kNowOrFail, .cookie = options.cookie});
}

}  // namespace xtreme::engine
