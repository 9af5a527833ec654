// SPDX-License-Identifier: Apache-2.0
//
// Prepared datagrams: what UDP builds ahead, and how it posts one when there is more to look at
// than whether it is armed.

#include <array>
#include <cstddef>
#include <cstring>

#include "stack/wire/udp.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/send_wants.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {

Outcome Udp::PrepareSend(Handle handle, std::span<const uint8_t> payload, Handle* prepared) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "prepare: no such socket"};
  if (!socket->connected()) return {ENOTCONN, "prepare: the socket is not connected"};
  if (payload.size() > wire::kUdpMaxPayloadBytes) {
    return {EMSGSIZE, "prepare: longer than a datagram can be"};
  }
  return core_->prepared->Prepare(prepared_.get(), handle, payload, prepared);
}

// Only what takes the short way of a send is built: alone in its WQE, with checksums by the NIC.
void Udp::BuildPrepared(PreparedSend& prepared) {
  UdpSocket& socket = *Find(prepared.socket);  // Closing it discards them.
  prepared.constant = true;
  static_assert(offsetof(SendCounters, sent_bytes) == offsetof(SendCounters, sent) + 8);
  prepared.counts = reinterpret_cast<CountPair*>(&socket.flows->counters.sent);
  SendFlow& flow = socket.flows->connected;
  if (flow.epoch != core_->host.routes_version) Resolve(socket, flow);
  if (prepared.payload.size() >= flow.short_below) return;
  alignas(64) std::array<uint8_t, wire::FrameTemplate::kStorageBytes> headers;
  memcpy(headers.data(), flow.pattern.data(), headers.size());
  flow.pattern.PatchLengths(headers.data(), prepared.payload.size());
  const bool built = core_->device.queue->PrepareFrame(
      {.header = headers.data(),
       .payload = prepared.payload.data(),
       .header_length = flow.header_bytes,
       .payload_length = static_cast<uint32_t>(prepared.payload.size()),
       .key = 0,
       .flags = flow.tx_flags},
      &prepared.frame);
  if (built) prepared.built_for = flow.epoch;
}

SendResult Udp::PostPrepared(PreparedSend& prepared, const SendOptions& options) {
  UdpSocket& socket = *Find(prepared.socket);
  if (prepared.built_for != core_->host.routes_version) {
    return SendOn(socket, socket.flows->connected, prepared.whole(),
                  {.flags = options.flags | kNowOrFail, .cookie = options.cookie});
  }
  SendRecord record{
      .wants = WantsOf(options), .socket = socket.handle, .cookie = options.cookie};
  const bool noted = record.wants != kWantNothing;
  const nic::TxStatus status =
      core_->PostPrepared(prepared.frame, TxFlagsOf(options), noted ? &record : nullptr);
  if (status != nic::TxStatus::kPosted) return ResultOf(socket, status);
  if (noted) ++socket.sends_wanted;
  if ((options.flags & kWarm) == 0) CountSent(*socket.flows, prepared.payload.size());
  return SendResult::kSent;
}

}  // namespace xtreme::engine
