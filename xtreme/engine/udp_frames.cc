// SPDX-License-Identifier: Apache-2.0
//
// Datagrams that are longer than a frame, or that must wait: cut into frames that stand alone.
// RFC 791 section 3.2 (fragmentation).

#include <cstring>

#include "stack/ip/fragmentation.h"
#include "stack/wire/frame_template.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/udp.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/send_wants.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {
namespace {

bool IsTooLong(const UdpSocket& socket, const SendFlow& flow, const Payload& payload) {
  return payload.length > wire::kUdpMaxPayloadBytes ||
         (socket.settings.whole && payload.length > flow.max_payload);
}

}  // namespace

uint32_t Udp::FramesOf(const SendFlow& flow, size_t length) const {
  const auto plan = ip::FragmentPlan::Create(length, flow.mtu);
  return plan ? static_cast<uint32_t>(plan->count()) : 1;
}

bool Udp::BuildFrames(const UdpSocket& socket, const SendFlow& flow, const Payload& payload,
                      const SendOptions& options) {
  frames_.clear();
  // The caller refused what is too long for a datagram.
  const auto plan = *ip::FragmentPlan::Create(payload.length, flow.mtu);
  const size_t count = plan.count();
  std::array<uint8_t, wire::FrameTemplate::kStorageBytes> headers;
  memcpy(headers.data(), flow.pattern.data(), headers.size());
  flow.pattern.PatchLengths(headers.data(), payload.length);
  const bool may_be_cut = count > 1 || !socket.settings.dont_fragment;
  const uint16_t id = may_be_cut ? ++next_id_ : 0;
  flow.pattern.PatchId(headers.data(), id);
  // A NIC sums one frame at a time: of a datagram in several, software computes the checksum.
  const bool software = count > 1 || !core_->device.transmit_checksum;
  if (software) flow.pattern.FillChecksums(headers.data(), {payload.data, payload.length});
  for (size_t i = 0; i < count; ++i) {
    const ip::Fragment cut = plan.At(i);
    WaitingFrame frame{.headers = headers, .peer = flow.peer};
    frame.header_bytes = flow.header_bytes - (cut.first ? 0 : wire::kUdpHeaderBytes);
    frame.length = static_cast<uint32_t>(cut.payload_bytes);
    frame.length_before = static_cast<uint32_t>(cut.payload_offset_bytes);
    frame.last = !cut.more;
    frame.tx_flags = software ? flow.tx_flags & nic::kTxWarm : flow.tx_flags;
    if ((options.flags & kWarm) != 0) frame.tx_flags |= nic::kTxWarm;
    if (count > 1) {
      flow.pattern.PatchFragment(frame.headers.data(), id, cut.ip_offset_bytes,
                                 cut.ip_payload_bytes, cut.more);
    }
    if (payload.buffer != nullptr) {
      frame.buffer = payload.buffer;
      frame.data = payload.data + cut.payload_offset_bytes;
      if (i > 0) packet::BufferPool::AddReference(payload.buffer);
    } else if (cut.payload_bytes > 0) {
      frame.buffer = core_->device.pool->Acquire();
      if (frame.buffer == nullptr) return false;
      memcpy(frame.buffer->data, payload.data + cut.payload_offset_bytes, cut.payload_bytes);
      frame.data = frame.buffer->data;
    }
    frames_.push_back(frame);
  }
  const auto wants = static_cast<uint8_t>(WantsOf(options) | core_->WantsOf(payload.buffer));
  frames_.back().record = {.wants = wants, .socket = socket.handle, .cookie = options.cookie};
  for (WaitingFrame& frame : frames_) frame.record.socket = socket.handle;
  return true;
}

void Udp::ReleaseFrames() {
  for (const WaitingFrame& frame : frames_) {
    if (frame.buffer != nullptr) packet::BufferPool::Release(frame.buffer);
  }
  frames_.clear();
}

void Udp::ReleaseUnposted(const WaitingFrame* first, const packet::Buffer* callers) {
  const WaitingFrame* const end = frames_.data() + frames_.size();
  const bool keeps = first != end && first->buffer != nullptr && first->buffer == callers;
  for (const WaitingFrame* frame = first + (keeps ? 1 : 0); frame != end; ++frame) {
    if (frame->buffer != nullptr) packet::BufferPool::Release(frame->buffer);
  }
}

SendResult Udp::PostFragments(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                              const SendOptions& options) {
  if (IsTooLong(socket, flow, payload)) return Refuse(socket, SendResult::kRefusedSize);
  const uint32_t count = FramesOf(flow, payload.length);
  // All or nothing: once the first is posted the others must fit.
  if (!HasRoom(socket, count)) {
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
                       .key = core_->KeyOf(waiting.buffer),
                       .flags = waiting.tx_flags};
    if (!last || (options.flags & kNoDoorbell) != 0) frame.flags |= nic::kTxMore;
    waiting.record.buffer = waiting.buffer;
    const nic::TxStatus status = core_->Post(frame, &waiting.record, socket.pace());
    if (status != nic::TxStatus::kPosted) {
      // The queue broke under us: what was posted is lost with it, and a refused caller keeps the
      // reference that it has.
      ReleaseUnposted(&waiting, payload.buffer);
      return ResultOf(socket, status);
    }
  }
  if (frames_.back().record.wants != kWantNothing) ++socket.sends_wanted;
  if ((options.flags & kWarm) != 0) return SendResult::kSent;
  core_->tally.counters.fragments_sent += count;
  CountSent(*socket.flows, payload.length);
  if (flow.loopback) LoopBack(flow, payload);
  return SendResult::kSent;
}

SendResult Udp::QueueDatagram(UdpSocket& socket, SendFlow& flow, const Payload& payload,
                              const SendOptions& options) {
  if (!core_->device.started || core_->device.broken) {
    return Refuse(socket, SendResult::kRefusedState);
  }
  if (IsTooLong(socket, flow, payload)) return Refuse(socket, SendResult::kRefusedSize);
  const uint32_t count = FramesOf(flow, payload.length);
  // Asked first, so that it is looked for also when nothing may wait.
  if (!neighbours_->HasRoom(flow.next_hop, count) ||
      (options.flags & (kNowOrFail | kWarm)) != 0) {
    return Refuse(socket, SendResult::kRefusedNeighbour);
  }
  if (!BuildFrames(socket, flow, payload, options)) {
    ReleaseFrames();
    return Refuse(socket, SendResult::kRefusedBuffers);
  }
  for (const WaitingFrame& frame : frames_) neighbours_->Wait(flow.next_hop, frame);
  if (frames_.back().record.wants != kWantNothing) ++socket.sends_wanted;
  ++socket.flows->counters.queued;
  ++socket.flows->waiting;
  socket.flows->waiting_bytes += payload.length;
  ++core_->tally.counters.sends_queued;
  return SendResult::kQueued;
}

}  // namespace xtreme::engine
