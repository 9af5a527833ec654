// SPDX-License-Identifier: Apache-2.0
//
// Own multicast, which the card never returns, to the listeners of this process where
// IP_MULTICAST_LOOP asks for it: those of this ring at once, those of others through their queues.
//
// The payload is copied once into buffers of this ring; a peer copies it into its own when it
// polls, so that what an application holds is always of its own ring's pool.

#include <utility>

#include "stack/udp/demux.h"
#include "xtreme/engine/copy_in.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

// A chain of another ring in buffers of `pool`; null when there are too few.
packet::Buffer* CopyChain(packet::BufferPool* pool, const packet::Buffer* from) {
  packet::Buffer* head = nullptr;
  packet::Buffer** link = &head;
  for (; from != nullptr; from = from->next) {
    *link = CopyIn(pool, from->bytes());
    if (*link == nullptr) {
      packet::BufferPool::ReleaseChain(head);
      return nullptr;
    }
    while (*link != nullptr) link = &(*link)->next;
  }
  return head;
}

}  // namespace

bool Udp::IsHeardHere(wire::Ipv4Address group, uint16_t port) const {
  const uint64_t key = udp::BindingKey(group, core_->device.vlan_id, port);
  return sockets_->Listeners(key) > 0 || peers_.count(key) > 0;
}

void Udp::LoopBack(const SendFlow& flow, const Payload& payload) {
  const wire::UdpFlow looped{.destination = flow.peer.address,
                             .source = flow.source.address,
                             .destination_port = flow.peer.port,
                             .source_port = flow.source.port,
                             .vlan_id = core_->device.vlan_id};
  // What other rings gave back, which an idle poll does not look for.
  packet::BufferPool& pool = *core_->device.pool;
  if (pool.HasReturns()) pool.DrainReturns();
  packet::Buffer* head = CopyIn(&pool, {payload.data, payload.length});
  if (head == nullptr) return core_->CountLoss(Drop::kLoopbackBuffers);
  const uint64_t key =
      udp::BindingKey(looped.destination, looped.vlan_id, looped.destination_port);
  const auto [first, end] = peers_.equal_range(key);
  for (auto peer = first; peer != end; ++peer) {
    AddReferences(head);
    if (peer->second->Push({.head = head, .flow = looped})) continue;
    core_->CountLoss(Drop::kLoopbackFull);
    packet::BufferPool::ReleaseChain(head);
  }
  if (sockets_->Listeners(key) == 0) return packet::BufferPool::ReleaseChain(head);
  DeliverLooped(head, looped, first == end ? 0 : kShared);
}

void Udp::DeliverLooped(packet::Buffer* head, const wire::UdpFlow& flow, uint16_t flags) {
  const udp::Binding* binding = demux_->First(flow, nullptr);
  if (binding == nullptr) return packet::BufferPool::ReleaseChain(head);
  // One slot is left for what must be told whatever happens.
  if (core_->fifo.Room() < core_->fanout + 1) {
    core_->CountLoss(Drop::kLoopbackRoom);
    return packet::BufferPool::ReleaseChain(head);
  }
  core_->tally.counters.loopback += DeliverChain(head, flow, binding, flags | kLoopback);
}

bool Udp::TakeLooped() {
  LoopbackQueue& queue = *core_->host.loopback;
  while (!queue.empty() && core_->fifo.Room() > core_->fanout) {
    queue.Drain(1, [this](const LoopedDatagram& datagram) {
      packet::Buffer* head = CopyChain(core_->device.pool.get(), datagram.head);
      packet::BufferPool::ReleaseChain(datagram.head);
      if (head == nullptr) return core_->CountLoss(Drop::kLoopbackBuffers);
      DeliverLooped(head, datagram.flow, 0);
    });
  }
  return queue.empty();
}

void Udp::AddPeer(LoopbackPeers::node_type peer) {
  peers_.insert(std::move(peer));
  core_->ChangeWorld();  // Own sends to the group have a listener more.
}

void Udp::RemovePeer(uint64_t key, const LoopbackQueue* queue) {
  const auto [first, end] = peers_.equal_range(key);
  for (auto peer = first; peer != end; ++peer) {
    if (peer->second.get() != queue) continue;
    peers_.erase(peer);
    break;
  }
  core_->ChangeWorld();
}

}  // namespace xtreme::engine
