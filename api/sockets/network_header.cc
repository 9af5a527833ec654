// SPDX-License-Identifier: Apache-2.0
//
// The headers that a connected socket sends with, for who writes frames of a flow itself.

#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "stack/tcp/connection.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::sockets {
namespace {

using Bytes = std::span<const uint8_t>;

Bytes HeadersOf(const engine::TcpSocket* socket) {
  if (socket == nullptr || socket->connection == nullptr) return {};
  const wire::TcpTemplate& headers = socket->connection->headers();
  return {headers.data(), headers.header_bytes()};
}

// Waits until the neighbour has answered; empty: it did not.
Bytes HeadersOf(RingDoor* door, engine::Handle handle) {
  constexpr int kTries = 1'000;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  engine::Udp& udp = door->ring().udp();
  for (int tries = 0; tries < kTries; ++tries) {
    engine::UdpSocket* const socket = udp.Find(handle);
    if (socket == nullptr || socket->flows == nullptr) return {};
    // Asks for the neighbour, once.
    udp.WouldSend(socket, 0);
    const engine::SendFlow& flow = socket->flows->connected;
    if (flow.state == engine::SendFlow::State::kNoRoute) return {};
    if (flow.state == engine::SendFlow::State::kReady) {
      return {flow.pattern.data(), flow.header_bytes};
    }
    nanosleep(&kPause, nullptr);
    door->Progress();
  }
  return {};
}

}  // namespace

int Socket::NetworkHeader(void* to, uint16_t* length) {
  RingDoor* const ring = door();
  if (ring == nullptr) return -EINVAL;
  if (peer_.port == 0) return -ENOTCONN;
  const RingDoor::Entry entry(ring);
  const Bytes headers = stream_ != nullptr ? HeadersOf(ring->ring().tcp().Find(handle_))
                                           : HeadersOf(ring, handle_);
  if (headers.empty()) return stream_ != nullptr ? -ENOTCONN : -EHOSTUNREACH;
  const uint16_t room = std::exchange(*length, static_cast<uint16_t>(headers.size()));
  if (to == nullptr) return 0;
  if (room < headers.size()) return -ENOBUFS;
  memcpy(to, headers.data(), headers.size());
  return 0;
}

}  // namespace xtreme::sockets
