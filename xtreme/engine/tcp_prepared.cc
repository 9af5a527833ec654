// SPDX-License-Identifier: Apache-2.0
//
// Prepared sends over TCP. What is the same each time stands in the frame; sequence number,
// acknowledgement, window and timestamps are of the moment it is fired.
//
// Armed, one holds a buffer of the pool with its payload: firing hands that to the stack, which
// sends from it again until it is acknowledged.

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/fire.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/keep_sent.h"
#include "xtreme/engine/prepared_of.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_wants.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::engine {
namespace {

[[gnu::always_inline]] inline void PatchHeader(const tcp::Connection& connection,
                                               const tcp::Outgoing& outgoing,
                                               nic::TxPrepared& frame) {
  const wire::TcpTemplate& pattern = connection.headers();
  uint8_t* const headers = frame.image.data() + frame.frame_at;
  pattern.PatchSegment(headers, {.sequence = outgoing.sequence.value(),
                                 .acknowledgement = outgoing.acknowledgement.value(),
                                 .window = outgoing.window,
                                 .flags = outgoing.flags});
  if (outgoing.has_timestamps) pattern.PatchTimestamps(headers, outgoing.timestamps);
}

// Where the TCP header of a frame without a VLAN tag stands in what the queue is given, and only
// it: what changes from fire to fire is changed there.
constexpr uint32_t kHalfOfTcp = 2, kHalfBytes = sizeof(nic::HalfLine);

// The same, of the header as it lies: ports and sequence number; acknowledgement, offset, flags and
// window; checksum, pointer and the options' kind; timestamps, or payload.
[[gnu::always_inline]] inline void PatchHeader(const tcp::Outgoing& outgoing,
                                               const tcp::WindowAhead& ahead,
                                               nic::HalfLine& header) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kPorts = 0xffff'ffff;
  header[0] = (header[0] & kPorts) | base::HostToBigEndian(uint64_t{outgoing.sequence.value()});
  header[1] = base::HostToBigEndian(ahead.words);
  if (!outgoing.has_timestamps) return;
  header[3] = base::HostToBigEndian(uint64_t{outgoing.timestamps.value} << 32 |
                                    outgoing.timestamps.echo);
}

}  // namespace

Outcome Tcp::PrepareSend(Handle handle, std::span<const uint8_t> payload, Handle* prepared) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "prepare: no such socket"};
  if (socket->state == TcpSocket::State::kListening) return {ENOTCONN, "prepare: a listener"};
  if (payload.empty()) return {EINVAL, "prepare: no bytes"};
  if (payload.size() > socket->profile->settings.send_queue_bytes) {
    return {EMSGSIZE, "prepare: longer than the send queue"};
  }
  socket->prepares = true;
  return core_->prepared->Prepare(prepared_.get(), handle, payload, prepared);
}

// Only what takes the short way is built: one segment, alone in its WQE, with checksums by the NIC.
void Tcp::BuildPrepared(PreparedSend& prepared) {
  TcpSocket& socket = *Find(prepared.socket);  // Closing it discards them.
  static_assert(offsetof(TcpCounters, sent_bytes) == offsetof(TcpCounters, sends) + 8);
  prepared.counts = reinterpret_cast<CountPair*>(&socket.counters.sends);
  const RingDevice& device = core_->device;
  if (!CanSend(socket) || !device.transmit_checksum || socket.pace != nullptr) return;
  FollowPaths(socket);
  const tcp::Connection& connection = *socket.connection;
  const auto bytes = static_cast<uint32_t>(prepared.payload.size());
  const bool fits = connection.state() == tcp::State::kEstablished && bytes <= connection.smss();
  if (!fits) return;
  const wire::TcpTemplate& pattern = connection.headers();
  // A header of the other kind is made anew with the next segment.
  if (pattern.timestamps() != connection.uses_timestamps()) return;
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
  if (prepared.kept == nullptr) {
    prepared.kept = device.pool->AcquireAbove(device.short_copies_leave);
  }
  if (prepared.kept == nullptr) return;
  memcpy(prepared.kept->data, prepared.payload.data(), bytes);
  prepared.kept->length = bytes;
  prepared.connection = socket.connection;
  socket.ahead = connection.LookAhead();
  prepared.ahead = &socket.ahead;
  ChooseFire(prepared, prepared.frame.frame_at + pattern.tcp_offset());
  prepared.built_for = core_->host.routes_version;
}

// `tcp_at`: where TCP's header stands in what the queue is given.
void Tcp::ChooseFire(PreparedSend& prepared, size_t tcp_at) {
  nic::QueuePair& queue = *core_->device.queue;
  const nic::TxPrepared& frame = prepared.frame;
  const bool looks = tcp_at == kHalfOfTcp * kHalfBytes;
  prepared.front = frame.direct_blocks == 3 ? queue.FrontFor<3>(frame) : queue.FrontFor<2>(frame);
  prepared.fire = looks ? &PreparedOf<Tcp>::Fire : &PreparedSends::FirePlain;
  if (!looks || !queue.MayKeep(frame)) return;
  prepared.front = queue.sent_tap().front;
  prepared.fire = &PreparedOf<Tcp>::FireKept;
}

// It left, and its buffer is the stack's: armed again, it needs another.
[[gnu::always_inline]] inline void Tcp::Spend(PreparedSend& prepared) {
  prepared.kept = nullptr;
  prepared.built_for = PreparedSend::kNotBuilt;
  core_->attention |= kTimersArmed;
  *prepared.counts += prepared.more;
}

// What the order waits for comes first: may it leave, its header, the doorbell. What is kept of it
// is written behind that.
template <typename See>
[[gnu::always_inline]] inline SendResult Tcp::FireAhead(PreparedSend& prepared, const See& see) {
  RingCore& core = *core_;
  const bool built = prepared.armed() && prepared.built_for == core.host.routes_version;
  if (!built || !prepared.front->Ready()) [[unlikely]] {
    return core.prepared->FireOtherwise(prepared, {});
  }
  tcp::Connection& connection = *prepared.connection;
  const uint32_t bytes = prepared.frame.frame_bytes() - prepared.frame.header_bytes;
  const tcp::Stack::Send send{.now_or_fail = true};
  const base::Nanoseconds now = core.clock.Now();
  tcp::Outgoing outgoing;
  tcp::WindowAhead& ahead = *prepared.ahead;
  if (!connection.MayFireAhead(bytes, now, &ahead, &outgoing)) [[unlikely]] {
    return core.prepared->FireOtherwise(prepared, {});
  }
  const auto patch = [&](auto& halves) { PatchHeader(outgoing, ahead, halves[kHalfOfTcp]); };
  if (prepared.frame.direct_blocks == 3) [[likely]] {
    nic::PostReady<3>(*prepared.front, prepared.frame, patch, see);
  } else {
    nic::PostReady<2>(*prepared.front, prepared.frame, patch, see);
  }
  packet::Buffer* const kept = prepared.kept;
  stack_->Fired(connection, outgoing, {.bytes = kept->data, .length = bytes, .buffer = kept}, send,
                /*posts_reference=*/false, now);
  prepared.armed_for = PreparedSend::kNotArmed;
  Spend(prepared);
  return SendResult::kSent;
}

SendResult Tcp::FirePrepared(PreparedSend& prepared) {
  return FireAhead(prepared, nic::Unseen());
}

SendResult Tcp::FireKept(PreparedSend& prepared) {
  return FireAhead(prepared, KeepSent(*core_->device.queue));
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
  PatchHeader(connection, outgoing, prepared.frame);
  SendRecord record{.wants = kWantSegment, .connection = &connection};
  const nic::TxStatus status = core.PostPrepared(prepared.frame, TxFlagsOf(options),
                                                 send.want_wire ? &record : nullptr);
  if (status != nic::TxStatus::kPosted) [[unlikely]] return PostOtherwise(prepared, options);
  packet::Buffer* const kept = prepared.kept;
  tcp::Segment& segment = stack_->Fired(
      connection, outgoing, {.bytes = kept->data, .length = bytes, .buffer = kept}, send,
      send.want_wire, now);
  if (send.want_wire) core.sends.newest().segment = &segment;
  Spend(prepared);
  return SendResult::kSent;
}

// As a send that may not queue: where something is in its way, and where nothing could be built.
SendResult Tcp::PostOtherwise(PreparedSend& prepared, const SendOptions& options) {
  return Send(Find(prepared.socket), prepared.whole(),
              {.flags = options.flags | kNowOrFail, .cookie = options.cookie});
}

}  // namespace xtreme::engine
