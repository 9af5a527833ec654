// SPDX-License-Identifier: Apache-2.0
//
// Datagrams in several buffers: those that the kernel reassembled, and those that the ring did.

#include <optional>

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
namespace {

// Why a datagram from the kernel is not for `socket`, if so: the kernel's socket is connected
// nowhere, and is handed what anybody on the host joined, on any interface. `own`: the ring's.
std::optional<Drop> RefusedBy(const UdpSocket* socket, uint32_t own, uint32_t ifindex,
                              const wire::UdpFlow& flow) {
  if (socket == nullptr) return Drop::kClosed;
  if (flow.destination.IsMulticast()) {
    const udp::Membership* joined = socket->FindMembership(flow.destination, flow.vlan_id);
    const bool here = ifindex == 0 || ifindex == own;
    const bool wanted = here && joined != nullptr && joined->filter.Admits(flow.source);
    if (!wanted) return Drop::kSlowPathGroup;
  }
  if (!socket->connected()) return std::nullopt;
  const wire::Ipv4Address local = socket->local().address;
  const bool ours = local.IsAny() || local == flow.destination;
  if (!ours || !socket->IsPeer(flow)) return Drop::kSlowPathPeer;
  return std::nullopt;
}

}  // namespace

// New bytes are in these buffers: who held them before, by max_held, does no more.
void Udp::NumberChain(packet::Buffer* head) {
  if (sockets_->serials == nullptr) return;
  for (packet::Buffer* link = head; link != nullptr; link = link->next) {
    sockets_->serials->Received(link);
  }
}

// One reference more of each link.
void Udp::AddReferences(packet::Buffer* head) {
  for (packet::Buffer* link = head; link != nullptr; link = link->next) {
    packet::BufferPool::AddReferenceByOwner(link);
  }
}

// To each of the sockets that the flow goes to, the first of which `binding` is: how many.
uint32_t Udp::DeliverChain(packet::Buffer* head, const wire::UdpFlow& flow,
                           const udp::Binding* binding, uint16_t flags) {
  NumberChain(head);
  const udp::Binding* next = demux_->Next(binding, flow);
  if (next != nullptr) flags |= kShared;
  core_->tally.counters.shared += next != nullptr;
  uint32_t sockets = 0;
  for (; binding != nullptr; ++sockets) {
    if (next != nullptr) AddReferences(head);
    EmitChain(*static_cast<UdpSocket*>(binding->endpoint), head, flow, flags);
    binding = next;
    if (next != nullptr) next = demux_->Next(next, flow);
  }
  return sockets;
}

// Whether a socket may have all of a chain, if it has a limit; if not, it is released.
bool Udp::AdmitChain(UdpSocket& socket, packet::Buffer* head, uint32_t links) {
  HeldBuffers* const held = socket.held();
  if (held == nullptr) return true;
  if (!held->HasRoom(links, core_->poll_ticks())) {
    ++held->counters.held_limit;
    core_->CountLoss(Drop::kHeldLimit);
    packet::BufferPool::ReleaseChain(head);
    return false;
  }
  for (packet::Buffer* link = head; link != nullptr; link = link->next) {
    held->Add(link, core_->poll_ticks());
  }
  return true;
}

void Udp::EmitChain(UdpSocket& socket, packet::Buffer* buffer, const wire::UdpFlow& flow,
                    uint16_t flags) {
  uint32_t links = 0;
  for (const packet::Buffer* link = buffer; link != nullptr; link = link->next) ++links;
  if (!AdmitChain(socket, buffer, links)) return;
  if (links > 1) flags |= kChained;
  flags |= CastOf(flow.destination);
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
  core_->tally.counters.packets += (flags & (kSlowPath | kLoopback)) == 0;
}

void Udp::SlowPath(Handle handle, packet::Buffer* buffer, uint32_t ifindex,
                   const wire::UdpFlow& flow) {
  UdpSocket* socket = Find(handle);
  const uint32_t own = core_->device.ifindex;
  if (const std::optional<Drop> unwanted = RefusedBy(socket, own, ifindex, flow)) {
    packet::BufferPool::ReleaseChain(buffer);
    core_->tally.drops.Count(*unwanted);
    return;
  }
  ++core_->tally.counters.slow_path;
  NumberChain(buffer);
  EmitChain(*socket, buffer, flow, kSlowPath);
}

void Udp::ReceiveFragment(const nic::RxFrame& rx, const wire::UdpFrame& frame) {
  const std::span<const uint8_t> packet(rx.buffer->data + frame.ip_offset,
                                        rx.buffer->length - frame.ip_offset);
  // The parser has looked at it already.
  const auto ip = wire::Ipv4View::Parse(packet, wire::ChecksumCheck::kTrusted);
  const base::Nanoseconds now = core_->clock.ToTime(core_->poll_ticks());
  ip::ReassembledDatagram whole;
  const uint16_t vlan_id = frame.tagged() ? frame.vlan().id : 0;
  const auto result = reassembly_->reassembler.Add(rx.buffer, *ip, vlan_id, now, &whole);
  if (result == ip::Reassembler::Result::kWhole) return DeliverWhole(whole);
  // Nothing may be held: a timer armed for never would count as armed ever after.
  const base::Nanoseconds deadline = reassembly_->reassembler.NextDeadline();
  if (deadline != base::kNever && !reassembly_->timer.armed()) {
    core_->ArmTimer(&reassembly_->timer, deadline);
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
  DeliverChain(whole.head, flow, binding, 0);
}

void Udp::Expire(RingTimer* timer) {
  if (timer->use != RingTimer::Use::kReassembly) return neighbours_->Expire();
  ip::Reassembler& reassembler = reassembly_->reassembler;
  reassembler.Expire(core_->clock.Now());
  const base::Nanoseconds next = reassembler.NextDeadline();
  if (next != base::kNever) core_->ArmTimer(&reassembly_->timer, next);
}

const ip::Reassembler* Udp::reassembler() const {
  return reassembly_ == nullptr ? nullptr : &reassembly_->reassembler;
}

}  // namespace xtreme::engine
