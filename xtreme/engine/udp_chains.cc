// SPDX-License-Identifier: Apache-2.0
//
// Datagrams in several buffers: those that the kernel reassembled, and those that the ring did.

#include "stack/ip/reassembly.h"
#include "stack/udp/demux.h"
#include "stack/wire/frame.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/reassembly.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

void Udp::EmitChain(UdpSocket& socket, packet::Buffer* buffer, const wire::UdpFlow& flow,
                    uint16_t flags) {
  uint32_t links = 0;
  for (const packet::Buffer* link = buffer; link != nullptr; link = link->next) ++links;
  if (links > 1) flags |= kChained;
  if (flow.destination.IsMulticast()) flags |= kMulticast;
  Completion* completion = core_->Emit(Kind::kPacket);
  completion->flags = flags | core_->after_drop;
  completion->socket = socket.handle;
  completion->user_data = socket.user_data;
  completion->buffer = buffer;
  completion->data = buffer->data;
  completion->length = static_cast<uint32_t>(packet::ChainLength(buffer));
  completion->count = links;
  StoreIp(flow.source, &completion->source_ip);
  StoreIp(flow.destination, &completion->destination_ip);
  completion->source_port = flow.source_port;
  completion->destination_port = flow.destination_port;
  completion->vlan = flow.vlan_id;
  core_->after_drop = 0;
  socket.CountReceived(completion->length);
}

void Udp::SlowPath(Handle handle, packet::Buffer* buffer, const wire::Endpoint& source,
                   const wire::Endpoint& destination) {
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) {
    packet::BufferPool::ReleaseChain(buffer);
    core_->tally.drops.Count(Drop::kClosed);
    return;
  }
  ++core_->tally.counters.slow_path;
  EmitChain(*socket, buffer,
            {.destination = destination.address,
             .source = source.address,
             .destination_port = destination.port,
             .source_port = source.port,
             .vlan_id = core_->device.vlan_id},
            kSlowPath);
}

void Udp::ReceiveFragment(const nic::RxFrame& rx, const wire::UdpFrame& frame) {
  const std::span<const uint8_t> packet(rx.buffer->data + frame.ip_offset,
                                        rx.buffer->length - frame.ip_offset);
  // The parser has looked at it already.
  const auto ip = wire::Ipv4View::Parse(packet, wire::ChecksumCheck::kTrusted);
  const base::Nanoseconds now = core_->clock.ToTime(core_->poll_ticks);
  ip::ReassembledDatagram whole;
  const uint16_t vlan_id = frame.tagged() ? frame.vlan().id : 0;
  const auto result = reassembly_->reassembler.Add(rx.buffer, *ip, vlan_id, now, &whole);
  if (result == ip::Reassembler::Result::kWhole) return DeliverWhole(whole);
  if (!reassembly_->timer.armed()) {
    core_->ArmTimer(&reassembly_->timer, reassembly_->reassembler.NextDeadline());
  }
}

void Udp::DeliverWhole(ip::ReassembledDatagram& whole) {
  wire::UdpFlow flow;
  const wire::FrameVerdict verdict = ip::OpenReassembledUdp(whole, &flow);
  const udp::Binding* binding = nullptr;
  if (verdict == wire::FrameVerdict::kUdp) {
    binding = demux_->First(flow, nullptr);
  } else {
    ledger_->verdicts.Count(verdict);
  }
  if (binding == nullptr) return packet::BufferPool::ReleaseChain(whole.head);
  const uint16_t flags = demux_->Next(binding, flow) == nullptr ? 0 : kShared;
  while (binding != nullptr) {
    const udp::Binding* next = demux_->Next(binding, flow);
    for (packet::Buffer* link = whole.head; next != nullptr && link != nullptr; link = link->next) {
      packet::BufferPool::AddReferenceByOwner(link);
    }
    EmitChain(*static_cast<UdpSocket*>(binding->endpoint), whole.head, flow, flags);
    binding = next;
  }
}

void Udp::Expire(RingTimer* timer) {
  if (timer->use != RingTimer::Use::kReassembly) return neighbours_->Expire(timer);
  ip::Reassembler& reassembler = reassembly_->reassembler;
  reassembler.Expire(core_->clock.Now());
  const base::Nanoseconds next = reassembler.NextDeadline();
  if (next != base::kNever) core_->ArmTimer(&reassembly_->timer, next);
}

const ip::Reassembler* Udp::reassembler() const {
  return reassembly_ == nullptr ? nullptr : &reassembly_->reassembler;
}

}  // namespace xtreme::engine
