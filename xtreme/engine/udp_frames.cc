// SPDX-License-Identifier: Apache-2.0
//
// Datagrams that are longer than a frame, or that must wait: cut into frames that stand alone.
// RFC 791 section 3.2 (fragmentation).

#include <algorithm>
#include <cstring>

#include "stack/wire/frame_template.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {
namespace {

// IP payload bytes of a fragment that is not the last.
size_t FragmentBytes(const SendFlow& flow) {
  return (flow.mtu - wire::kIpv4MinHeaderBytes) & ~(wire::kIpv4FragmentUnitBytes - 1);
}

uint8_t WantsOf(const SendOptions& options) {
  return static_cast<uint8_t>(((options.flags & kSendWantDone) != 0 ? kWantDone : 0) |
                              ((options.flags & kSendWantWire) != 0 ? kWantWire : 0));
}

}  // namespace

uint32_t Udp::FramesOf(const SendFlow& flow, size_t length) const {
  if (length <= flow.max_payload) return 1;
  const size_t fragment = FragmentBytes(flow);
  return static_cast<uint32_t>((length + wire::kUdpHeaderBytes + fragment - 1) / fragment);
}

bool Udp::BuildFrames(const UdpSocket& socket, const SendFlow& flow, const Payload& payload,
                      const SendOptions& options) {
  frames_.clear();
  const uint32_t count = FramesOf(flow, payload.length);
  std::array<uint8_t, wire::FrameTemplate::kStorageBytes> headers;
  memcpy(headers.data(), flow.pattern.data(), headers.size());
  flow.pattern.PatchLengths(headers.data(), payload.length);
  // A NIC sums one frame at a time: of a datagram in several, software computes the checksum.
  const bool software = count > 1 || !core_->device.transmit_checksum;
  if (software) flow.pattern.FillChecksums(headers.data(), {payload.data, payload.length});
  const uint16_t id = count > 1 ? ++next_id_ : 0;
  const size_t most = count > 1 ? FragmentBytes(flow) : payload.length + wire::kUdpHeaderBytes;
  size_t sent = 0;  // Of the payload.
  for (uint32_t i = 0; i < count; ++i) {
    // The UDP header stands in the first frame only.
    const size_t head = i == 0 ? wire::kUdpHeaderBytes : 0;
    const size_t length = std::min(most - head, payload.length - sent);
    WaitingFrame frame{.headers = headers, .peer = flow.peer};
    frame.header_bytes = flow.header_bytes - (i == 0 ? 0 : wire::kUdpHeaderBytes);
    frame.length = static_cast<uint32_t>(length);
    frame.tx_flags = software ? 0 : flow.tx_flags;
    if ((options.flags & kWarm) != 0) frame.tx_flags |= nic::kTxWarm;
    if (count > 1) {
      const size_t offset = i == 0 ? 0 : sent + wire::kUdpHeaderBytes;
      flow.pattern.PatchFragment(frame.headers.data(), id, offset, length + head, i + 1 < count);
    }
    if (payload.buffer != nullptr) {
      frame.buffer = payload.buffer;
      frame.data = payload.data + sent;
      if (i > 0) packet::BufferPool::AddReference(payload.buffer);
    } else if (length > 0) {
      frame.buffer = core_->device.pool->Acquire();
      if (frame.buffer == nullptr) return false;
      memcpy(frame.buffer->data, payload.data + sent, length);
      frame.data = frame.buffer->data;
    }
    sent += length;
    frame.last = i + 1 == count;
    frames_.push_back(frame);
  }
  frames_.back().record = {
      .wants = WantsOf(options), .socket = socket.handle, .cookie = options.cookie};
  for (WaitingFrame& frame : frames_) frame.record.socket = socket.handle;
  return true;
}

void Udp::ReleaseFrames() {
  for (const WaitingFrame& frame : frames_) {
    if (frame.buffer != nullptr) packet::BufferPool::Release(frame.buffer);
  }
  frames_.clear();
}

SendResult Udp::PostFragments(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                              const SendOptions& options) {
  if (payload.length > wire::kUdpMaxPayloadBytes) {
    return Refuse(socket, SendResult::kRefusedSize);
  }
  const uint32_t count = FramesOf(flow, payload.length);
  // All or nothing: once the first is posted the others must fit.
  if (core_->SendRoom() < count || core_->sends.room() < count) core_->Reap();
  if (core_->SendRoom() < count || core_->sends.room() < count) {
    return Refuse(socket, SendResult::kRefusedSqFull);
  }
  if (payload.buffer == nullptr && core_->device.pool->free_count() < count) {
    return Refuse(socket, SendResult::kRefusedBuffers);
  }
  BuildFrames(socket, flow, payload, options);
  for (WaitingFrame& waiting : frames_) {
    const bool last = &waiting == &frames_.back();
    nic::TxFrame frame{.header = waiting.headers.data(),
                       .payload = waiting.data,
                       .header_length = waiting.header_bytes,
                       .payload_length = waiting.length,
                       .key = core_->device.pool_key,
                       .flags = waiting.tx_flags};
    if (!last || (options.flags & kNoDoorbell) != 0) frame.flags |= nic::kTxMore;
    waiting.record.buffer = waiting.buffer;
    const nic::TxStatus status = core_->Post(frame, &waiting.record);
    if (status != nic::TxStatus::kPosted) {
      // The queue broke under us: what was posted is lost with it.
      if (waiting.buffer != nullptr) packet::BufferPool::Release(waiting.buffer);
      return ResultOf(socket, status);
    }
  }
  core_->tally.counters.fragments_sent += count;
  if (frames_.back().record.wants != kWantNothing) ++socket.sends_wanted;
  ++socket.sends.sent;
  socket.sends.sent_bytes += payload.length;
  if (flow.loopback && (options.flags & kWarm) == 0) LoopBack(flow, payload);
  return SendResult::kSent;
}

SendResult Udp::QueueDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                              const SendOptions& options) {
  if (!core_->device.started || core_->device.broken) {
    return Refuse(socket, SendResult::kRefusedState);
  }
  if (payload.length > wire::kUdpMaxPayloadBytes) {
    return Refuse(socket, SendResult::kRefusedSize);
  }
  const uint32_t count = FramesOf(flow, payload.length);
  if ((options.flags & (kNowOrFail | kWarm)) != 0 ||
      !neighbours_->HasRoom(flow.next_hop, count)) {
    return Refuse(socket, SendResult::kRefusedNeighbour);
  }
  if (!BuildFrames(socket, flow, payload, options)) {
    ReleaseFrames();
    return Refuse(socket, SendResult::kRefusedBuffers);
  }
  for (const WaitingFrame& frame : frames_) neighbours_->Wait(flow.next_hop, frame);
  if (frames_.back().record.wants != kWantNothing) ++socket.sends_wanted;
  ++socket.sends.queued;
  ++core_->tally.counters.sends_queued;
  return SendResult::kQueued;
}

}  // namespace xtreme::engine
