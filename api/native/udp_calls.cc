// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: UDP sockets and sending.

#include <optional>

#include "api/native/address.h"
#include "api/native/calls.h"
#include "api/native/sized.h"
#include "fmt/format.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_options.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::api {
namespace {

int ToResult(const engine::Outcome& outcome) {
  return outcome.ok() ? 0 : Fail(outcome.error, outcome.text);
}

int NotIpv4(const char* what) { return Fail(EAFNOSUPPORT, fmt::format("{}: IPv4 only", what)); }

// The socket of a handle; null for a stale one, which is counted where its ring is still there.
engine::UdpSocket* FindSocket(xtreme_socket socket, engine::Ring** ring) {
  *ring = Process::The().FindRing(socket.value);
  if (*ring == nullptr) [[unlikely]] return nullptr;
  if (!MayTouch(**ring)) return nullptr;
  engine::UdpSocket* found = (*ring)->udp().Find(socket.value);
  if (found == nullptr) [[unlikely]] (*ring)->udp().RefuseStale();
  return found;
}

int Refused() { return XTREME_REFUSED_STATE; }

engine::SendOptions ToEngine(const xtreme_send_options* options) {
  if (options == nullptr) return {};
  return {.flags = options->flags, .cookie = options->cookie};
}

static_assert(static_cast<int>(engine::kNowOrFail) == XTREME_NOW_OR_FAIL);
static_assert(static_cast<int>(engine::kNoDoorbell) == XTREME_NO_DOORBELL);
static_assert(static_cast<int>(engine::kSendWantDone) == XTREME_WANT_DONE);
static_assert(static_cast<int>(engine::kSendWantWire) == XTREME_WANT_WIRE);
static_assert(static_cast<int>(engine::kWarm) == XTREME_WARM);

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Fail;
using xtreme::api::FindSocket;
using xtreme::api::Process;
using xtreme::api::ToEndpoint;

int xtreme_udp_open(xtreme_ring ring, const xtreme_udp_options* options, xtreme_socket* socket) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme_udp_options wanted;
  const int taken =
      xtreme::api::TakeSized("open socket", options, xtreme::api::kFirstUdpOptions, &wanted);
  if (taken != 0) return taken;
  const auto local = ToEndpoint(wanted.local);
  if (!local) return xtreme::api::NotIpv4("open socket");
  xtreme::engine::UdpOptions asked;
  asked.local = *local;
  asked.user_data = wanted.user_data;
  asked.reuse = wanted.reuse != 0;
  asked.multicast_loop = wanted.multicast_loop != 0;
  asked.broadcast = wanted.broadcast != 0;
  asked.multicast_ttl = wanted.multicast_ttl;
  asked.ttl = wanted.ttl;
  asked.tos = wanted.tos;
  asked.max_held = wanted.max_held;
  return xtreme::api::ToResult(found->udp().Open(asked, &socket->value));
}

int xtreme_udp_connect(xtreme_socket socket, const xtreme_address* peer, uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  const auto endpoint = ToEndpoint(*peer);
  if (!endpoint) return xtreme::api::NotIpv4("connect");
  return xtreme::api::ToResult(ring->udp().Connect(socket.value, *endpoint, cookie));
}

int xtreme_join(xtreme_socket socket, const xtreme_address* group, const xtreme_address* source,
                uint32_t flags, uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  constexpr uint32_t kKnown = XTREME_SHARE_WITH_KERNEL | XTREME_EXCLUDE_SOURCE;
  if ((flags & ~kKnown) != 0) return Fail(EINVAL, fmt::format("join: flags {:#x}", flags));
  const auto to = ToEndpoint(*group);
  const auto from = source == nullptr ? std::nullopt : ToEndpoint(*source);
  if (!to || (source != nullptr && !from)) return xtreme::api::NotIpv4("join");
  const auto wanted = from ? std::optional(from->address) : std::nullopt;
  return xtreme::api::ToResult(ring->udp().Join(socket.value, *to, wanted, flags, cookie));
}

int xtreme_leave(xtreme_socket socket, const xtreme_address* group, const xtreme_address* source,
                 uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  const auto to = ToEndpoint(*group);
  const auto from = source == nullptr ? std::nullopt : ToEndpoint(*source);
  if (!to || (source != nullptr && !from)) return xtreme::api::NotIpv4("leave");
  const auto wanted = from ? std::optional(from->address) : std::nullopt;
  return xtreme::api::ToResult(ring->udp().Leave(socket.value, *to, wanted, cookie));
}

int xtreme_send(xtreme_socket socket, const void* data, size_t length,
                const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found == nullptr) [[unlikely]] return xtreme::api::Refused();
  const xtreme::engine::Payload payload = {static_cast<const uint8_t*>(data), length, nullptr};
  return static_cast<int>(ring->udp().Send(found, payload, xtreme::api::ToEngine(options)));
}

int xtreme_send_to(xtreme_socket socket, const xtreme_address* peer, const void* data,
                   size_t length, const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found == nullptr) return xtreme::api::Refused();
  const auto endpoint = ToEndpoint(*peer);
  if (!endpoint) return static_cast<int>(ring->udp().RefuseFamily(*found));
  const xtreme::engine::Payload payload = {static_cast<const uint8_t*>(data), length, nullptr};
  const auto asked = xtreme::api::ToEngine(options);
  return static_cast<int>(ring->udp().SendTo(found, *endpoint, payload, asked));
}

int xtreme_send_buffer(xtreme_socket socket, const xtreme_address* peer, xtreme_buffer* buffer,
                       const void* data, size_t length, const xtreme_send_options* options) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found == nullptr) return xtreme::api::Refused();
  const xtreme::engine::Payload payload = {static_cast<const uint8_t*>(data), length,
                                           reinterpret_cast<xtreme::packet::Buffer*>(buffer)};
  const auto asked = xtreme::api::ToEngine(options);
  if (peer == nullptr) return static_cast<int>(ring->udp().Send(found, payload, asked));
  const auto endpoint = ToEndpoint(*peer);
  if (!endpoint) return static_cast<int>(ring->udp().RefuseFamily(*found));
  return static_cast<int>(ring->udp().SendTo(found, *endpoint, payload, asked));
}

int xtreme_would_send(xtreme_socket socket, size_t length) {
  xtreme::engine::Ring* ring;
  xtreme::engine::UdpSocket* found = FindSocket(socket, &ring);
  if (found == nullptr) return xtreme::api::Refused();
  return static_cast<int>(ring->udp().WouldSend(found, length));
}

int xtreme_socket_close(xtreme_socket socket, uint32_t flags) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  if ((flags & ~uint32_t{XTREME_DETACH}) != 0) {
    return Fail(EINVAL, fmt::format("close: flags {:#x}", flags));
  }
  return xtreme::api::ToResult(ring->udp().Close(socket.value, (flags & XTREME_DETACH) != 0));
}

int xtreme_socket_set_user_data(xtreme_socket socket, uint64_t user_data) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  xtreme::engine::UdpSocket* found = ring->udp().Find(socket.value);
  if (found == nullptr) return xtreme::api::NoSuch("socket");
  found->user_data = user_data;
  return 0;
}

int xtreme_socket_local(xtreme_socket socket, xtreme_address* local) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  xtreme::engine::UdpSocket* found = ring->udp().Find(socket.value);
  if (found == nullptr) return xtreme::api::NoSuch("socket");
  *local = xtreme::api::FromEndpoint(found->local());
  return 0;
}
