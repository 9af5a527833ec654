// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: what UDP sockets alone can do.

#include <optional>

#include "api/native/address.h"
#include "api/native/calls.h"
#include "api/native/sized.h"
#include "fmt/format.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_options.h"

using xtreme::api::Fail;
using xtreme::api::ToEndpoint;

int xtreme_udp_open(xtreme_ring ring, const xtreme_udp_options* options, xtreme_socket* socket) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme_udp_options wanted;
  const int taken =
      xtreme::api::TakeSized("open socket", options, xtreme::api::kFirstUdpOptions, &wanted);
  if (taken != 0) return taken;
  const int unknown = xtreme::api::CheckReserved("open socket", wanted.reserved);
  if (unknown != 0) return unknown;
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
  asked.flow_tag = wanted.flow_tag;
  return xtreme::api::ToResult(found->udp().Open(asked, &socket->value));
}

int xtreme_udp_connect(xtreme_socket socket, const xtreme_address* peer, uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  if (peer == nullptr) return Fail(EINVAL, "connect: no address");
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
  if ((flags & XTREME_EXCLUDE_SOURCE) != 0 && source == nullptr) {
    return Fail(EINVAL, "join: which source is not wanted?");
  }
  if (group == nullptr) return Fail(EINVAL, "join: no group");
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
  if (group == nullptr) return Fail(EADDRNOTAVAIL, "leave: no group");
  const auto to = ToEndpoint(*group);
  const auto from = source == nullptr ? std::nullopt : ToEndpoint(*source);
  if (!to || (source != nullptr && !from)) return xtreme::api::NotIpv4("leave");
  const auto wanted = from ? std::optional(from->address) : std::nullopt;
  return xtreme::api::ToResult(ring->udp().Leave(socket.value, *to, wanted, cookie));
}
