// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: prepared sends.

#include <cerrno>
#include <span>

#include "api/native/calls.h"
#include "api/native/send_options.h"
#include "fmt/format.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"

namespace xtreme::api {
namespace {

int ToResult(const engine::Outcome& outcome) {
  return outcome.ok() ? 0 : Fail(outcome.error, outcome.text);
}

std::span<const uint8_t> Bytes(const void* data, size_t length) {
  return {static_cast<const uint8_t*>(data), length};
}

// What `act` makes of the prepared sends of a handle's ring; -EBADF, -EBUSY: as Reach().
template <typename Act>
int OnPrepared(xtreme_prepared prepared, Act act) {
  engine::Ring* ring;
  if (const int failed = Reach(prepared.value, &ring)) return failed;
  return ToResult(act(ring->prepared()));
}

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Bytes;
using xtreme::api::OnPrepared;
using xtreme::api::Process;
using xtreme::api::ToResult;
using xtreme::engine::PreparedSends;

int xtreme_prepare(xtreme_socket socket, const void* data, size_t length,
                   xtreme_prepared* prepared) {
  xtreme::engine::Ring* ring;
  if (const int failed = xtreme::api::Reach(socket.value, &ring)) return failed;
  const bool stream = xtreme::engine::IsTcp(socket.value);
  return ToResult(
      stream ? ring->tcp().PrepareSend(socket.value, Bytes(data, length), &prepared->value)
             : ring->udp().PrepareSend(socket.value, Bytes(data, length), &prepared->value));
}

int xtreme_patch(xtreme_prepared prepared, size_t offset, const void* data, size_t length) {
  return OnPrepared(prepared, [&](PreparedSends& sends) {
    return sends.Patch(prepared.value, offset, Bytes(data, length));
  });
}

int xtreme_fire(xtreme_prepared prepared, const xtreme_send_options* options) {
  xtreme::engine::Ring* ring = Process::The().FindRing(prepared.value);
  if (ring == nullptr || !xtreme::api::MayTouch(*ring)) [[unlikely]] return XTREME_REFUSED_STATE;
  xtreme::engine::PreparedSend* found = ring->prepared().Find(prepared.value);
  if (found == nullptr) [[unlikely]] return static_cast<int>(ring->udp().RefuseStale());
  return static_cast<int>(xtreme::engine::Fire(*found, xtreme::api::ToEngine(options)));
}

int xtreme_cancel(xtreme_prepared prepared) {
  return OnPrepared(prepared, [&](PreparedSends& sends) { return sends.Cancel(prepared.value); });
}

int xtreme_rearm(xtreme_prepared prepared) {
  return OnPrepared(prepared, [&](PreparedSends& sends) { return sends.Rearm(prepared.value); });
}

int xtreme_discard(xtreme_prepared prepared) {
  return OnPrepared(prepared, [&](PreparedSends& sends) { return sends.Discard(prepared.value); });
}

int xtreme_lane_fire(xtreme_lane lane, xtreme_prepared prepared,
                     const xtreme_send_options* options) {
  xtreme::engine::RingLane* found = Process::The().FindLane(lane.value);
  if (found == nullptr) return xtreme::api::NoSuch("lane");
  const xtreme::engine::SendOptions asked = xtreme::api::ToEngine(options);
  const int error = found->Fire(prepared.value, asked.cookie, asked.flags);
  switch (error) {
    case 0: return 0;
    case EBADF: return xtreme::api::Fail(error, "fire: the prepared send is not the lane's ring's");
    case EPIPE: return xtreme::api::Fail(error, "fire: the ring is closed");
    default: return xtreme::api::Fail(error, "fire: the lane is full");
  }
}
