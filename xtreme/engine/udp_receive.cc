// SPDX-License-Identifier: Apache-2.0
//
// From a received frame to PACKET completions.

#include "stack/udp/demux.h"
#include "stack/wire/frame.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

// The NIC's verdicts are handed to the parser as they are.
static_assert(int{nic::kRxIpChecksumOk} == int{wire::kIpChecksumVerified});
static_assert(int{nic::kRxL4ChecksumOk} == int{wire::kUdpChecksumVerified});

// Whether a socket with a limit may have one more; if not, the buffer is released.
bool Udp::AdmitHeld(UdpSocket& socket, packet::Buffer* buffer) {
  if (socket.held->Add(buffer, core_->poll_ticks)) return true;
  ++socket.sends.held_limit;
  core_->CountLoss(Drop::kHeldLimit);
  packet::BufferPool::ReleaseByOwner(buffer);
  return false;
}

// Inlined into its callers: the fields of the frame are still in registers there.
[[gnu::always_inline]] inline void Udp::EmitPacket(UdpSocket& socket, const nic::RxFrame& rx,
                                                   const wire::UdpFrame& frame, uint16_t flags) {
  if (socket.held != nullptr && !AdmitHeld(socket, rx.buffer)) [[unlikely]] return;
  socket.CountReceived(frame.payload_bytes);
  RingCore& core = *core_;
  ++core.tally.counters.packets;

  int64_t hw_time_ns = 0;
  uint64_t hw_clock = 0;
  if ((rx.flags & nic::kRxTimestamp) != 0) {
    hw_clock = rx.hw_clock;
    hw_time_ns = core.clock.DeviceTime(hw_clock);
    if (core.clock.device().in_sync) flags |= kClockSynced;
  }
  if (frame.flow.destination.IsMulticast()) flags |= kMulticast;
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
  completion->poll_tsc = core.poll_ticks;
  StoreIp(frame.flow.source, &completion->source_ip);
  StoreIp(frame.flow.destination, &completion->destination_ip);
  completion->source_port = frame.flow.source_port;
  completion->destination_port = frame.flow.destination_port;
  completion->interface_index = core.device.ifindex;
  completion->hw_clock = hw_clock;
  completion->cookie = 0;
  completion->vlan = frame.tagged() ? frame.vlan_tci : 0;
  core.after_drop = 0;
}

[[gnu::always_inline]] inline void Udp::ReceiveFrame(const nic::RxFrame& rx) {
  packet::Buffer* buffer = rx.buffer;
  wire::UdpFrame frame;
  const wire::FrameVerdict verdict = wire::ParseUdpFrame(
      buffer->data, buffer->length, rx.flags & wire::kAllChecksumsVerified, &frame);
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
  if (demux_->Next(binding, frame.flow) != nullptr) [[unlikely]] {
    return ReceiveShared(rx, frame, binding);
  }
  EmitPacket(*static_cast<UdpSocket*>(binding->endpoint), rx, frame, 0);
}

void Udp::Receive(std::span<const nic::RxFrame> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i + 1 < frames.size()) __builtin_prefetch(frames[i + 1].buffer->data);
    ReceiveFrame(frames[i]);
  }
}

// The same buffer for each of several sockets, a reference each.
void Udp::ReceiveShared(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                        const udp::Binding* binding) {
  ++core_->tally.counters.shared;
  while (binding != nullptr) {
    const udp::Binding* next = demux_->Next(binding, frame.flow);
    if (next != nullptr) packet::BufferPool::AddReferenceByOwner(rx.buffer);
    EmitPacket(*static_cast<UdpSocket*>(binding->endpoint), rx, frame, kShared);
    binding = next;
  }
}

void Udp::ReceiveOther(const nic::RxFrame& rx, const wire::UdpFrame& frame,
                       wire::FrameVerdict verdict) {
  if (verdict == wire::FrameVerdict::kFragment && reassembly_ != nullptr) {
    return ReceiveFragment(rx, frame);
  }
  ledger_->verdicts.Count(verdict);
  packet::BufferPool::ReleaseByOwner(rx.buffer);
}

}  // namespace xtreme::engine
