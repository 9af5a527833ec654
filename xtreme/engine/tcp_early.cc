// SPDX-License-Identifier: Apache-2.0
//
// Sends before the SYN: they wait here, then in the stack.

#include <cerrno>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/stack.h"
#include "xtreme/engine/early_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_device.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

size_t Tcp::EarlyRoom(const TcpSocket& socket) {
  const size_t waiting = socket.early == nullptr ? 0 : socket.early->bytes;
  // It may have been made smaller since.
  const size_t most = socket.profile->settings.send_queue_bytes;
  return most > waiting ? most - waiting : 0;
}

SendResult Tcp::SendEarly(TcpSocket& socket, const Payload& payload, const SendOptions& options) {
  const bool cannot_wait = (options.flags & (kNowOrFail | kWarm)) != 0;
  if (cannot_wait || payload.length > EarlyRoom(socket)) {
    return Refuse(socket, SendResult::kRefusedState);
  }
  if (payload.length == 0) {
    if (payload.buffer != nullptr) packet::BufferPool::Release(payload.buffer);
    return SendResult::kSent;
  }
  if (socket.early == nullptr) socket.early = std::make_shared<EarlySends>();
  socket.early->Add(payload, options);
  ++socket.counters.sends;
  socket.counters.sent_bytes += payload.length;
  ++socket.counters.queued;
  return SendResult::kQueued;
}

// The SYN has left. What the stack has no memory for was promised: the connection ends.
void Tcp::HandOverEarly(TcpSocket& socket) {
  if (socket.early == nullptr) return;
  std::deque<EarlySend>& sends = socket.early->sends;
  const base::Nanoseconds now = core_->clock.Now();
  while (!sends.empty()) {
    const EarlySend& send = sends.front();
    // Promised: the SYN takes a place in the queue, and limits may be lower by now.
    const tcp::SendResult result =
        Hand(*socket.connection, send.payload(), send.options, now, /*promised=*/true);
    if (tcp::IsRefused(result)) break;
    sends.pop_front();
  }
  if (!sends.empty()) stack_->Fail(*socket.connection, ENOBUFS);
  CancelEarly(socket);
}

// Nothing of them was sent.
void Tcp::CancelEarly(TcpSocket& socket) {
  const std::shared_ptr<EarlySends> early = std::move(socket.early);
  if (early == nullptr) return;
  for (const EarlySend& send : early->sends) {
    if (send.in_place.buffer != nullptr) packet::BufferPool::Release(send.in_place.buffer);
    if ((send.options.flags & kSendWantDone) == 0 || socket.detached) continue;
    Completion completion;
    Clear(&completion, Kind::kTxDone);
    completion.status = ECANCELED;
    completion.socket = socket.handle;
    completion.user_data = socket.user_data;
    completion.interface_index = core_->device.ifindex;
    completion.source_ip = socket.peer_ip;
    completion.destination_ip = socket.local_ip;
    completion.source_port = socket.peer.port;
    completion.destination_port = socket.local.port;
    completion.cookie = send.options.cookie;
    core_->Tell(completion);
  }
}

}  // namespace xtreme::engine
