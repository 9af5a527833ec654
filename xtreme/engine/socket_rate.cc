// SPDX-License-Identifier: Apache-2.0
//
// Sockets with a rate: UDP's and TCP's, from the call to the OP_DONE after which their sends go by
// a queue that the device paces.
//
// What was posted to the queue before may leave after what is posted to the next. A paced socket's
// sends take the long way: it is the device that makes them wait.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

Outcome Udp::SetRate(Handle handle, const nic::RateLimit& rate, uint64_t cookie) {
  core_->CheckOwner();
  if (Find(handle) == nullptr) return {EBADF, "set rate: no such socket"};
  return core_->paced->Ask(
      rate, [this, handle, cookie](PacedUse use, const Outcome& outcome) {
        UdpSocket* const socket = Find(handle);
        if (socket == nullptr) return;
        if (outcome.ok()) {
          socket->Seldom().pace = std::move(use);
          core_->ChangeWorld();  // Flows and prepared sends are for a queue.
        }
        OpDone(handle, cookie, outcome, /*fallback=*/false);
      });
}

PacedQueue* Udp::PaceOf(const WaitingFrame& frame) const {
  const UdpSocket* const socket = sockets_->Find(frame.record.socket);
  return socket == nullptr ? nullptr : socket->pace();
}

bool Udp::HasRoom(const UdpSocket& socket, uint32_t frames) {
  if (PacedQueue* const paced = socket.pace()) {
    if (paced->Room() < frames) core_->paced->Reap();
    return paced->Room() >= frames;
  }
  const auto room = [this] { return std::min(core_->SendRoom(), core_->sends.room()); };
  if (room() < frames) core_->Reap();
  return room() >= frames;
}

Outcome Tcp::SetRate(Handle handle, const nic::RateLimit& rate, uint64_t cookie) {
  core_->CheckOwner();
  TcpSocket* const asking = Find(handle);
  if (asking == nullptr) return {EBADF, "set rate: no such socket"};
  if (asking->state == TcpSocket::State::kListening) {
    return {ENOTCONN, "set rate: a listener sends nothing"};
  }
  if (asking->rates_asked == UINT8_MAX) return {EAGAIN, "set rate: too many are not done yet"};
  Outcome asked = core_->paced->Ask(
      rate, [this, handle, cookie](PacedUse use, const Outcome& outcome) {
        TcpSocket* const socket = Find(handle);
        if (socket == nullptr) return;
        --socket->rates_asked;
        if (outcome.ok()) {
          socket->pace = std::move(use);
          socket->paced = socket->pace != nullptr;
          core_->ChangeWorld();  // Prepared sends are for a queue.
        }
        Completion* const completion = TellKind(*socket, Kind::kOpDone, outcome.error, cookie);
        // The notice that brought it lives until it was handed out.
        completion->text = outcome.ok() ? nullptr : outcome.text.c_str();
      });
  if (asked.ok()) ++asking->rates_asked;
  return asked;
}

}  // namespace xtreme::engine
