// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: what sockets of both kinds do: send, close, and say where they are. A call looks for a
// UDP socket first, so that a datagram costs no test for TCP.

#include <cstddef>
#include <optional>

#include "api/native/address.h"
#include "api/native/calls.h"
#include "api/native/send_options.h"
#include "fmt/format.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"
#include "xtreme/nic/nic.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::api {
namespace {

// The ring of a handle; null also where it is not this thread's to touch.
engine::Ring* RingOf(xtreme_socket socket) {
  engine::Ring* ring = Process::The().FindRing(socket.value);
  if (ring == nullptr) [[unlikely]] return nullptr;
  return MayTouch(*ring) ? ring : nullptr;
}

// The UDP socket of a handle; null for a stale one and for a stream.
engine::UdpSocket* FindSocket(xtreme_socket socket, engine::Ring** ring) {
  *ring = RingOf(socket);
  return *ring == nullptr ? nullptr : (*ring)->udp().Find(socket.value);
}

// The same for a stream, of a ring that may be null.
engine::TcpSocket* FindStream(xtreme_socket socket, engine::Ring* ring) {
  return ring == nullptr ? nullptr : ring->tcp().Find(socket.value);
}

// A send that no socket is there for, counted where its ring is.
int Refuse(engine::Ring* ring) {
  if (ring != nullptr) ring->udp().RefuseStale();
  return XTREME_REFUSED_STATE;
}

int SendStream(engine::Ring* ring, xtreme_socket socket, const engine::Payload& payload,
               const engine::SendOptions& options) {
  engine::TcpSocket* found = FindStream(socket, ring);
  if (found == nullptr) return Refuse(ring);
  return static_cast<int>(ring->tcp().Send(found, payload, options));
}

engine::Payload ToPayload(const void* data, size_t length, xtreme_buffer* buffer) {
  return {static_cast<const uint8_t*>(data), length, reinterpret_cast<packet::Buffer*>(buffer)};
}

static_assert(static_cast<int>(engine::kNowOrFail) == XTREME_NOW_OR_FAIL);
static_assert(static_cast<int>(engine::kNoDoorbell) == XTREME_NO_DOORBELL);
static_assert(static_cast<int>(engine::kSendWantDone) == XTREME_WANT_DONE);
static_assert(static_cast<int>(engine::kSendWantWire) == XTREME_WANT_WIRE);
static_assert(static_cast<int>(engine::kWarm) == XTREME_WARM);
static_assert(sizeof(xtreme_bytes) == sizeof(nic::TxPayload));
static_assert(offsetof(xtreme_bytes, data) == offsetof(nic::TxPayload, data));
static_assert(offsetof(xtreme_bytes, length) == offsetof(nic::TxPayload, length));

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Fail;
using xtreme::api::FindSocket;
using xtreme::api::FindStream;
using xtreme::api::ToEngine;
using xtreme::api::ToPayload;
using xtreme::api::ToResult;

int xtreme_send(xtreme_socket socket, const void* data, size_t length,
                const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  const xtreme::engine::Payload payload = ToPayload(data, length, nullptr);
  if (found == nullptr) return xtreme::api::SendStream(ring, socket, payload, ToEngine(options));
  return static_cast<int>(ring->udp().Send(found, payload, ToEngine(options)));
}

int xtreme_send_to(xtreme_socket socket, const xtreme_address* peer, const void* data,
                   size_t length, const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found == nullptr) return xtreme::api::Refuse(ring);
  const auto endpoint = xtreme::api::ToEndpoint(*peer);
  if (!endpoint) return static_cast<int>(ring->udp().RefuseFamily(*found));
  const xtreme::engine::Payload payload = ToPayload(data, length, nullptr);
  return static_cast<int>(ring->udp().SendTo(found, *endpoint, payload, ToEngine(options)));
}

int xtreme_send_buffer(xtreme_socket socket, const xtreme_address* peer, xtreme_buffer* buffer,
                       const void* data, size_t length, const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  const xtreme::engine::Payload payload = ToPayload(data, length, buffer);
  const auto asked = ToEngine(options);
  if (found == nullptr) {
    if (peer != nullptr) return xtreme::api::Refuse(ring);
    return xtreme::api::SendStream(ring, socket, payload, asked);
  }
  if (peer == nullptr) return static_cast<int>(ring->udp().Send(found, payload, asked));
  const auto endpoint = xtreme::api::ToEndpoint(*peer);
  if (!endpoint) return static_cast<int>(ring->udp().RefuseFamily(*found));
  return static_cast<int>(ring->udp().SendTo(found, *endpoint, payload, asked));
}

int xtreme_would_send(xtreme_socket socket, size_t length) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found != nullptr) return static_cast<int>(ring->udp().WouldSend(found, length));
  const xtreme::engine::TcpSocket* stream = FindStream(socket, ring);
  if (stream == nullptr) return XTREME_REFUSED_STATE;  // Nothing was to be sent: not counted.
  return static_cast<int>(ring->tcp().WouldSend(stream, length));
}

int xtreme_send_some(xtreme_socket socket, const void* data, size_t length,
                     const xtreme_send_options* options, size_t* taken) {
  *taken = 0;
  xtreme::engine::Ring* ring = xtreme::api::RingOf(socket);
  xtreme::engine::TcpSocket* stream = FindStream(socket, ring);
  if (stream == nullptr) return xtreme::api::Refuse(ring);
  const auto asked = ToEngine(options);
  auto result = xtreme::engine::SendResult::kSent;
  const size_t some = ring->tcp().SendSome(stream, {static_cast<const uint8_t*>(data), length},
                                           asked, &result);
  if ((asked.flags & xtreme::engine::kWarm) == 0) *taken = some;
  return static_cast<int>(result);
}

int xtreme_send_many(xtreme_socket socket, const xtreme_bytes* datagrams, int count,
                     uint32_t flags, int* last) {
  if ((flags & ~uint32_t{XTREME_NOW_OR_FAIL | XTREME_NO_DOORBELL}) != 0) {
    return Fail(EINVAL, fmt::format("send many: flags {:#x}", flags));
  }
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  *last = found == nullptr ? xtreme::api::Refuse(ring) : XTREME_SENT;
  if (found == nullptr || count <= 0) return 0;
  auto result = xtreme::engine::SendResult::kSent;
  const auto* payloads = reinterpret_cast<const xtreme::nic::TxPayload*>(datagrams);
  const uint32_t sent = ring->udp().SendBurst(
      found, {payloads, static_cast<size_t>(count)}, flags, &result);
  *last = static_cast<int>(result);
  return static_cast<int>(sent);
}

int xtreme_socket_close(xtreme_socket socket, uint32_t flags) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  if ((flags & ~uint32_t{XTREME_DETACH}) != 0) {
    return Fail(EINVAL, fmt::format("close: flags {:#x}", flags));
  }
  const bool detach = (flags & XTREME_DETACH) != 0;
  if (!xtreme::engine::IsTcp(socket.value)) {
    return ToResult(ring->udp().Close(socket.value, detach));
  }
  return ToResult(detach ? ring->tcp().Detach(socket.value) : ring->tcp().Close(socket.value));
}

int xtreme_socket_set_user_data(xtreme_socket socket, uint64_t user_data) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  return ToResult(xtreme::engine::IsTcp(socket.value)
                      ? ring->tcp().SetUserData(socket.value, user_data)
                      : ring->udp().SetUserData(socket.value, user_data));
}

int xtreme_socket_set_rate(xtreme_socket socket, uint64_t bytes_per_second, uint32_t burst_bytes,
                           uint32_t packet_bytes, uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  const xtreme::nic::RateLimit rate{.bytes_per_second = bytes_per_second,
                                    .burst_bytes = burst_bytes,
                                    .typical_packet_bytes = packet_bytes};
  return ToResult(xtreme::engine::IsTcp(socket.value)
                      ? ring->tcp().SetRate(socket.value, rate, cookie)
                      : ring->udp().SetRate(socket.value, rate, cookie));
}

int xtreme_socket_local(xtreme_socket socket, xtreme_address* local) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  const xtreme::engine::UdpSocket* found = ring->udp().Find(socket.value);
  xtreme::engine::TcpReport report;
  if (found != nullptr) {
    report.local = found->local();
  } else if (!ring->tcp().Report(socket.value, &report)) {
    return xtreme::api::NoSuch("socket");
  }
  *local = xtreme::api::FromEndpoint(report.local);
  return 0;
}
