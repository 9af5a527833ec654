// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/tcp_device.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "stack/tcp/connection.h"
#include "stack/wire/tcp_template.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp_half.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine {
namespace {

constexpr size_t kHeaderRoom = 128;  // What nic::TxFrame has readable.
static_assert(kHeaderRoom >= tcp::OutgoingFrame::kMaxHeadersBytes);
static_assert(tcp::Sink::kMaxRun <= nic::kMaxTxGathers);

// Resets of what is no connection have none.
PacedQueue* PaceOf(const tcp::Connection* connection) {
  if (connection == nullptr || connection->user == 0) return nullptr;
  return reinterpret_cast<TcpSocket*>(static_cast<uintptr_t>(connection->user))->pace.get();
}

uint32_t KeyOf(const RingCore& core, const tcp::Segment& segment) {
  const bool pooled = segment.memory_key == 0;
  return pooled ? core.device.pool_key : core.registered->Key(segment.memory_key);
}

// Whether the segment has no payload, and nobody asks when it left: then nothing of it is kept.
[[gnu::always_inline]] inline bool IsBare(const tcp::Segment* carries) {
  return carries == nullptr || (carries->length == 0 && !carries->Has(tcp::Segment::kWantWire));
}

}  // namespace

// Most of what has no payload: on headers without a tag, by a queue that takes it from registers,
// to be rung for with others. False: it is not such, and nothing has changed.
[[gnu::always_inline]] inline bool TcpDevice::Place(const wire::TcpTemplate& headers,
                                                    const tcp::Outgoing& says) {
  RingCore& core = *core_;
  if (!IsBare(says.segment) || !defer) return false;
  if (headers.tcp_offset() != nic::StreamSegment::kTcpAt) [[unlikely]] return false;
  if (!core.device.transmit_checksum) [[unlikely]] return false;
  if (core.paced->any()) [[unlikely]] return false;
  if (says.options != nullptr) return PlaceWithOptions(headers.data(), says);
#if XTREME_DEBUG
  assert(says.has_timestamps == headers.timestamps() && "headers are of the other kind");
#endif
  static constexpr uint8_t kNone[nic::StreamSegment::kLongestHeader] = {};
  const bool placed = core.device.queue->PlaceStream(
      {.headers = headers.data(),
       .header_bytes = static_cast<uint32_t>(headers.header_bytes()),
       .tcp = TcpHalf(headers.data(), says, kNone),
       .payload = kNone,
       .payload_length = 0});
  core.OweDoorbell(placed);
  return placed;
}

// Of a SYN, or of what is selected: they stand behind the shorter header as a payload would.
[[gnu::noinline]] bool TcpDevice::PlaceWithOptions(const uint8_t* headers,
                                                  const tcp::Outgoing& says) {
  std::array<uint8_t, nic::StreamSegment::kPayloadPlaced> options;
  static_assert(sizeof(options) >= wire::kTcpMaxOptionsBytes);
  const auto bytes = static_cast<uint32_t>(says.options->Emit(options));
  const bool placed = core_->device.queue->PlaceStream(
      {.headers = headers,
       .header_bytes = nic::StreamSegment::kShortestHeader,
       .tcp = TcpHalfBefore(headers, says, options.data(), bytes),
       .payload = options.data(),
       .payload_length = bytes});
  core_->OweDoorbell(placed);
  return placed;
}

bool TcpDevice::PlaceAck(const tcp::Connection& connection, const tcp::Outgoing& says) {
  return Place(connection.headers(), says);
}

[[gnu::noinline]] tcp::Sink::Taken TcpDevice::TransmitBare(const tcp::OutgoingFrame& outgoing) {
  RingCore& core = *core_;
  alignas(64) std::array<uint8_t, kHeaderRoom> headers;
  nic::TxFrame frame;  // Not cleared first.
  frame.header = headers.data();
  frame.header_length = static_cast<uint32_t>(outgoing.WriteHeaders(headers.data()));
  frame.payload = nullptr;
  frame.payload_length = 0;
  frame.key = 0;
  frame.flags = nic::kTxIpChecksum | nic::kTxL4Checksum;
  const nic::TxStatus status = defer ? core.PostQuietly(frame) : core.Post(frame, nullptr);
  if (status == nic::TxStatus::kPosted) [[likely]] return tcp::Sink::Taken::kCopied;
  core.attention |= kRoomWanted;
  return tcp::Sink::Taken::kRefused;
}

tcp::Sink::Taken TcpDevice::Transmit(const tcp::OutgoingFrame& outgoing) {
  const bool placed = Place(*outgoing.headers, *outgoing.outgoing);
  return placed ? tcp::Sink::Taken::kCopied : TransmitOtherwise(outgoing);
}

[[gnu::noinline]] tcp::Sink::Taken TcpDevice::TransmitOtherwise(
    const tcp::OutgoingFrame& outgoing) {
  RingCore& core = *core_;
  const bool bare = IsBare(outgoing.segment());
  if (bare && core.device.transmit_checksum && !core.paced->any()) {
    return TransmitBare(outgoing);
  }
  alignas(64) std::array<uint8_t, kHeaderRoom> headers;
  const auto header_bytes = static_cast<uint32_t>(outgoing.WriteHeaders(headers.data()));
  tcp::Segment* const segment = outgoing.segment();
  nic::TxFrame frame{.header = headers.data(),
                     .payload = nullptr,
                     .header_length = header_bytes,
                     .payload_length = 0,
                     .key = 0,
                     .flags = static_cast<uint16_t>(defer ? nic::kTxMore : 0)};
  if (segment != nullptr && segment->length > 0) {
    frame.payload = segment->bytes;
    frame.payload_length = segment->length;
    frame.key = KeyOf(core, *segment);
  }
  if (core.device.transmit_checksum) [[likely]] {
    frame.flags |= nic::kTxIpChecksum | nic::kTxL4Checksum;
  } else {
    outgoing.headers->FillChecksums(headers.data(), {frame.payload, frame.payload_length});
  }
  const bool gathered = header_bytes + frame.payload_length > core.device.max_inline_bytes;
  const bool timed = segment != nullptr && segment->Has(tcp::Segment::kWantWire);
  const bool referred = segment != nullptr && (gathered || timed);
  SendRecord record{.wants = static_cast<uint8_t>(kWantSegment | (timed ? kWantWire : 0)),
                    .connection = outgoing.connection,
                    .segment = segment};
  PacedQueue* const by = core.paced->any() ? PaceOf(outgoing.connection) : nullptr;
  const nic::TxStatus status = core.Post(frame, referred ? &record : nullptr, by);
  if (status != nic::TxStatus::kPosted) [[unlikely]] {
    core.attention |= kRoomWanted;
    return tcp::Sink::Taken::kRefused;
  }
  return referred ? tcp::Sink::Taken::kReferenced : tcp::Sink::Taken::kCopied;
}

uint32_t TcpDevice::RunBytes(const tcp::Connection& connection) const {
  const RingCore& core = *core_;
  const bool can = core.device.transmit_checksum &&
                   (!core.paced->any() || PaceOf(&connection) == nullptr);
  return can ? core.device.max_segmented_bytes : 0;
}

tcp::Sink::Taken TcpDevice::TransmitRun(const tcp::OutgoingFrame& first,
                                        std::span<tcp::Segment* const> run,
                                        uint32_t segment_bytes) {
  RingCore& core = *core_;
  if (core.sends.room() < run.size()) core.Reap();
  if (core.sends.room() < run.size()) return tcp::Sink::Taken::kRefused;
  alignas(64) std::array<uint8_t, kHeaderRoom> headers;
  std::array<nic::TxGather, tcp::Sink::kMaxRun> pieces;
  for (size_t i = 0; i < run.size(); ++i) {
    const tcp::Segment& segment = *run[i];
    pieces[i] = {segment.bytes, segment.length, KeyOf(core, segment)};
  }
  nic::TxSegments segments{
      .header = headers.data(),
      .header_length = static_cast<uint32_t>(first.WriteHeaders(headers.data())),
      .segment_bytes = segment_bytes,
      .payload = std::span(pieces).first(run.size()),
      .flags = static_cast<uint16_t>(defer ? nic::kTxMore : 0)};
  SendRecord record{.wants = kWantSegment, .connection = first.connection, .segment = run[0]};
  if (core.PostSegments(segments, &record) != nic::TxStatus::kPosted) {
    return tcp::Sink::Taken::kRefused;
  }
  for (tcp::Segment* const segment : run.subspan(1)) {
    record.segment = segment;
    core.sends.Add(record);
  }
  return tcp::Sink::Taken::kReferenced;
}

uint32_t TcpDevice::Room(const tcp::Connection* connection) const {
  if (core_->paced->any()) [[unlikely]] {
    if (const PacedQueue* const of = PaceOf(connection)) {
      if (of->Room() == 0) core_->paced->Reap();
      return of->Room();
    }
  }
  if (core_->SendRoom() == 0 || core_->sends.full()) core_->Reap();
  return std::min(core_->SendRoom(), core_->sends.room());
}

void TcpDevice::OnShortOfRoom() { core_->attention |= kRoomWanted; }

uint32_t TcpDevice::PostedBuffers() const { return core_->device.queue->posted(); }

}  // namespace xtreme::engine
