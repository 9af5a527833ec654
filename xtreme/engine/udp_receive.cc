// SPDX-License-Identifier: Apache-2.0
//
// From a received frame to PACKET completions.

#include <algorithm>
#include <utility>

#include "stack/base/byte_order.h"
#include "stack/udp/demux.h"
#include "stack/wire/frame.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/completion/known_flows_write.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

// The NIC's verdicts are handed to the parser as they are.
static_assert(int{nic::kRxIpChecksumOk} == int{wire::kIpChecksumVerified});
static_assert(int{nic::kRxL4ChecksumOk} == int{wire::kUdpChecksumVerified});

uint16_t Udp::CastOf(wire::Ipv4Address destination) const {
  if (destination.IsMulticast()) return kMulticast;
  return demux_->IsBroadcast(destination) ? kBroadcast : 0;
}

// Whether a socket that may have a limit may have one more; if not, the buffer is released.
bool Udp::AdmitHeld(UdpSocket& socket, packet::Buffer* buffer) {
  HeldBuffers* const held = socket.held();
  if (held == nullptr || held->Add(buffer, core_->poll_ticks())) return true;
  ++held->counters.held_limit;
  core_->CountLoss(Drop::kHeldLimit);
  packet::BufferPool::ReleaseByOwner(buffer);
  return false;
}

// Inlined into its callers: the fields of the frame are still in registers there. Null: the buffer
// was released.
[[gnu::always_inline]] inline const Completion* Udp::EmitPacket(UdpSocket& socket,
                                                                const nic::RxFrame& rx,
                                                                const wire::UdpFrame& frame,
                                                                uint16_t flags) {
  if (socket.seldom != nullptr && !AdmitHeld(socket, rx.buffer)) [[unlikely]] return nullptr;
  socket.CountReceived(frame.payload_bytes);
  RingCore& core = *core_;
  ++core.tally.counters.packets;

  int64_t hw_time_ns = 0;
  uint64_t hw_clock = 0;
  if ((rx.flags & nic::kRxTimestamp) != 0) {
    hw_clock = rx.hw_clock;
    hw_time_ns = core.clock.DeviceTime(hw_clock);
    flags |= core.clock.flags();
  }
  flags |= CastOf(frame.flow.destination);
  Completion* completion = core.fifo.Emit();
  completion->kind = Kind::kPacket;
  completion->event = RingEvent::kNone;
  completion->flags = flags | core.after_drop;
  completion->status = 0;
  completion->socket = socket.handle;
  completion->user_data = socket.user_data;
  completion->buffer = rx.buffer;
  completion->data = rx.buffer->data;
  completion->length = frame.payload_bytes;
  completion->count = 1;
  completion->hw_time_ns = hw_time_ns;
  completion->poll_tsc = core.poll_ticks();
  StoreIp(frame.flow.source, &completion->source_ip);
  StoreIp(frame.flow.destination, &completion->destination_ip);
  completion->source_port = frame.flow.source_port;
  completion->destination_port = frame.flow.destination_port;
  completion->interface_index = core.device.ifindex;
  completion->hw_clock = hw_clock;
  completion->cookie = 0;
  completion->vlan = frame.tagged() ? frame.vlan_tci : 0;
  core.after_drop = 0;
  return completion;
}

[[gnu::noinline]] void Udp::ReceiveFrame(const nic::RxFrame& rx) {
  packet::Buffer* buffer = rx.buffer;
  const uint8_t* const bytes = buffer->data;
  wire::UdpFrame frame;
  const wire::FrameVerdict verdict = wire::ParseUdpFrame(
      bytes, buffer->length, rx.flags & wire::kAllChecksumsVerified, &frame);
  if ((rx.flags & nic::kRxVlanStripped) != 0) [[unlikely]] frame.SetTag(rx.vlan);
  if (verdict != wire::FrameVerdict::kUdp) [[unlikely]] {
    return ReceiveOther(rx, frame, verdict);
  }

  // A tag may be another process's: the socket in that place is only looked at first.
  const UdpSocket* hinted = rx.tag == 0 ? nullptr : sockets_->At(rx.tag - 1);
  const udp::Binding* binding =
      demux_->First(frame.flow, hinted == nullptr ? nullptr : &hinted->binding());
  if (binding == nullptr) [[unlikely]] {
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  buffer->data += frame.payload_offset;
  buffer->length = frame.payload_bytes;
  if (sockets_->serials != nullptr) [[unlikely]] sockets_->serials->Received(buffer);
  if (const udp::Binding* next = demux_->Next(binding, frame.flow)) [[unlikely]] {
    return ReceiveShared(rx, frame, binding, next);
  }
  const Completion* completion =
      EmitPacket(*static_cast<UdpSocket*>(binding->endpoint), rx, frame, 0);
  if (completion != nullptr) Learn(bytes, frame, binding, *completion);
}

// What all datagrams of a flow have in common, from one that was demultiplexed. Where buffers are
// numbered, each needs more.
void Udp::Learn(const uint8_t* bytes, const wire::UdpFrame& frame, const udp::Binding* binding,
                const Completion& completion) {
  if (frame.payload_offset != wire::kPlainPayloadOffset || frame.tagged()) return;
  if (!demux_->IsLasting(binding) || sockets_->serials != nullptr) return;
  Completion form = completion;
  form.flags &= ~kAfterDrop;
  core_->known.Learn(bytes, form, binding->endpoint);
  if (core_->links != nullptr) core_->links->Learn(bytes, form, binding->endpoint);
}

// The short way: a plain frame of a known flow, written where the application reads it. False: what
// the frame needs is done by ReceiveFrame, with the same result.
bool Udp::ReceiveKnown(const nic::RxFrame& rx) {
  constexpr uint16_t kPlainFlags =
      nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk | nic::kRxTimestamp;
  RingCore& core = *core_;
  const std::span<Completion> out = core.fifo.Direct();
  if (rx.flags != kPlainFlags || out.empty() || core.after_drop != 0) return false;
  packet::Buffer* const buffer = rx.buffer;
  if (buffer->length < completion::KnownFlows::kLeastFrameBytes ||
      !core.known.Write(buffer, buffer->data, buffer->length, rx.hw_clock, out.data())) {
    return false;
  }
  core.fifo.EmittedDirect(1);
  ++core.tally.counters.packets;
  return true;
}

uint32_t Udp::Receive(std::span<const nic::RxFrame> frames) {
  const size_t all = frames.size();
  while (!frames.empty()) {
    const nic::RxFrame& rx = frames.front();
    // What came last comes again: after TCP the short way of datagrams is not tried first.
    if (!tcp_came_ && ReceiveKnown(rx)) {
      frames = frames.subspan(1);
      continue;
    }
    const bool is_tcp =
        core_->tcp != nullptr && wire::LooksLikeTcp(rx.buffer->data, rx.buffer->length);
    if (std::exchange(tcp_came_, is_tcp) && !is_tcp) continue;
    frames = frames.subspan(1);
    is_tcp ? core_->tcp->Receive(rx) : ReceiveFrame(rx);
    // One segment can make deliverable what many others brought.
    if (core_->fifo.Room() < frames.size() * core_->fanout) [[unlikely]] break;
  }
  return static_cast<uint32_t>(all - frames.size());
}

// The same buffer for each of several sockets, a reference each. Next() counts: it is asked once.
void Udp::ReceiveShared(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                        const udp::Binding* binding, const udp::Binding* next) {
  ++core_->tally.counters.shared;
  while (binding != nullptr) {
    if (next != nullptr) packet::BufferPool::AddReferenceByOwner(rx.buffer);
    EmitPacket(*static_cast<UdpSocket*>(binding->endpoint), rx, frame, kShared);
    binding = next;
    if (next != nullptr) next = demux_->Next(next, frame.flow);
  }
}

void Udp::ReceiveOther(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                       wire::FrameVerdict verdict) {
  if (verdict == wire::FrameVerdict::kFragment && reassembly_ != nullptr) {
    return ReceiveFragment(rx, frame);
  }
  // One with a VLAN tag; whatever else it is, that decides and counts too.
  if (verdict == wire::FrameVerdict::kNotUdp && core_->tcp != nullptr) {
    return core_->tcp->Receive(rx);
  }
  ledger_->verdicts.Count(verdict);
  packet::BufferPool::ReleaseByOwner(rx.buffer);
}

}  // namespace xtreme::engine
