// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/neighbours.h"

#include <cerrno>
#include <utility>

#include "stack/wire/ethernet.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

Neighbours::Neighbours(RingCore* core, NeighbourWaiters* waiters)
    : core_(core),
      waiters_(waiters),
      cache_({.mac = core->device.nic->mac(), .queue_packets = core->options.neighbour_queue}),
      places_(kFullQueues * core->options.neighbour_queue),
      waiting_(std::make_unique<Waiting[]>(places_)) {
  free_.reserve(places_);
  for (uint32_t i = places_; i > 0; --i) free_.push_back(&waiting_[i - 1]);
  connecting_.reserve(kConnects);
}

Neighbours::~Neighbours() {
  core_->wheel.Cancel(&timer_);
  for (uint32_t i = 0; i < places_; ++i) {
    packet::Buffer* buffer = waiting_[i].frame.buffer;
    if (waiting_[i].used && buffer != nullptr) packet::BufferPool::Release(buffer);
  }
}

std::optional<wire::MacAddress> Neighbours::MacOf(wire::Ipv4Address next_hop) {
  return MacBy(core_->host.routes->FindNeighbour(core_->device.ifindex, next_hop), next_hop);
}

// `kernels`: what the kernel says of it; null: nothing.
inline std::optional<wire::MacAddress> Neighbours::MacBy(const host::Neighbour* kernels,
                                                         wire::Ipv4Address next_hop) {
  if (kernels == nullptr || !kernels->usable()) return Find(next_hop);
  if (kernels->settled()) return kernels->mac;
  const auto known = cache_.ResolveFrom(next_hop, kernels->mac, core_->clock.Now());
  Act();
  // One that does not answer is sent to as long as the kernel would.
  return known.value_or(kernels->mac);
}

std::optional<wire::MacAddress> Neighbours::KnownMacOf(wire::Ipv4Address next_hop) {
  const host::Neighbour* const kernels =
      core_->host.routes->FindNeighbour(core_->device.ifindex, next_hop);
  const bool known = (kernels != nullptr && kernels->usable()) || cache_.Knows(next_hop);
  return known ? MacBy(kernels, next_hop) : std::nullopt;
}

std::optional<wire::MacAddress> Neighbours::Find(wire::Ipv4Address next_hop) {
  const auto resolution = cache_.Resolve(next_hop, core_->clock.Now());
  Act();
  if (resolution.status != ip::NeighbourCache::Status::kReachable) return std::nullopt;
  return resolution.mac;
}

// One that failed, anew.
void Neighbours::Ask(wire::Ipv4Address next_hop) {
  cache_.ResolveToSend(next_hop, core_->clock.Now());
  Act();
}

bool Neighbours::HasRoom(wire::Ipv4Address next_hop, uint32_t count) {
  Ask(next_hop);
  return free_.size() >= count && cache_.QueueRoom(next_hop) >= count;
}

void Neighbours::Wait(wire::Ipv4Address next_hop, const WaitingFrame& frame) {
  Waiting& waiting = *free_.back();
  free_.pop_back();
  waiting.frame = frame;
  waiting.used = true;
  const auto resolution = cache_.Enqueue(next_hop, &waiting, core_->clock.Now());
  if (resolution.status == ip::NeighbourCache::Status::kReachable) Post(waiting, resolution.mac);
}

int Neighbours::Wait(wire::Ipv4Address next_hop, const WaitingConnect& connect) {
  using Status = ip::NeighbourCache::Status;
  Ask(next_hop);
  // Of one that is not being asked for nothing would ever be heard.
  const Status status = cache_.Resolve(next_hop, core_->clock.Now()).status;
  if (status == Status::kUnreachable) return EHOSTUNREACH;
  if (status == Status::kTableFull) return ENOBUFS;
  connecting_.push_back({next_hop, connect});
  return 0;
}

void Neighbours::Seen(wire::Ipv4Address address, wire::MacAddress mac) {
  // Of others anybody on the link may say what it likes: no flow is resolved anew for it.
  if (!cache_.Confirm(address, mac, core_->clock.Now())) return;
  // Flows look again, to say that they still use it: what nobody uses is not asked for again.
  core_->ChangeWorld();
  Act();
}

void Neighbours::AdoptRoutes() {
  for (const host::Neighbour& neighbour : core_->host.routes->neighbours()) {
    const bool ours = neighbour.ifindex == core_->device.ifindex && neighbour.usable();
    if (!ours) continue;
    // The kernel's word is news once: it says the same of one that is long gone.
    if (cache_.Adopt(neighbour.address, neighbour.mac, core_->clock.Now())) {
      core_->ChangeWorld();
    }
  }
  Act();
}

// One that made room for another, or one that nobody used: who goes on sending is to say so.
void Neighbours::ConsiderForgotten() {
  const uint64_t forgotten = counters().evicted + counters().unused;
  if (std::exchange(forgotten_, forgotten) != forgotten) core_->ChangeWorld();
}

void Neighbours::Act() {
  // Who is told of a next hop asks for it again: what that causes is done here when he has heard.
  if (std::exchange(acting_, true)) return;
  const base::Nanoseconds now = core_->clock.Now();
  for (;;) {
    const Action action = cache_.Next(now);
    if (action.kind == Action::Kind::kNone) break;
    Perform(action);
  }
  acting_ = false;
  ConsiderForgotten();
  const base::Nanoseconds deadline = cache_.NextDeadline();
  if (deadline != base::kNever) core_->ArmTimer(&timer_, deadline);
}

void Neighbours::Perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kNone:
      return;
    case Action::Kind::kSendArp:
      return SendArp(action);
    case Action::Kind::kTransmit:
      return Post(*static_cast<Waiting*>(action.packet), action.mac);
    case Action::Kind::kUnreachable:
      return Fail(*static_cast<Waiting*>(action.packet), Drop::kNeighbour, EHOSTUNREACH);
    case Action::Kind::kResolved:
      core_->ChangeWorld();
      return Settle(action.address, 0);
    case Action::Kind::kLost:
      core_->ChangeWorld();
      Settle(action.address, EHOSTUNREACH);
      if (!action.mac.IsZero()) waiters_->OnLost(action.address);
      return;
  }
}

void Neighbours::SendArp(const Action& action) {
  wire::ArpRepr request = action.arp;
  // The address that we would send from: an interface may have several.
  request.sender =
      core_->host.routes->RouteTo(action.address, std::nullopt, core_->device.ifindex).source;
  // A full queue loses the request like a wire does: the timer asks again.
  if (PostArp(request, action.mac)) ++core_->tally.counters.arp_requests;
}

void Neighbours::Announce() {
  for (const host::InterfaceAddress& address : core_->host.routes->addresses()) {
    if (address.ifindex != core_->device.home_ifindex) continue;
    PostArp({.sender = address.local, .target = address.local}, wire::MacAddress::Broadcast());
  }
}

bool Neighbours::PostArp(const wire::ArpRepr& arp, wire::MacAddress to) {
  std::array<uint8_t, 64> frame{};
  wire::EthernetRepr ethernet{.destination = to,
                              .source = core_->device.nic->mac(),
                              .ether_type = wire::kEtherTypeArp};
  if (core_->device.vlan_id != 0) ethernet.vlan = wire::VlanTag{.id = core_->device.vlan_id};
  const size_t header = ethernet.Emit(frame);
  // Of the port that the ring is on now.
  wire::ArpRepr emitted = arp;
  emitted.sender_mac = ethernet.source;
  const size_t length = header + emitted.Emit(std::span(frame).subspan(header));
  nic::TxFrame tx{.header = frame.data(),
                  .payload = nullptr,
                  .header_length = static_cast<uint32_t>(length),
                  .payload_length = 0,
                  .key = core_->device.pool_key,
                  .flags = 0};
  return core_->Post(tx, nullptr) == nic::TxStatus::kPosted;
}

void Neighbours::Post(Waiting& waiting, wire::MacAddress mac) {
  WaitingFrame& frame = waiting.frame;
  mac.Store(frame.headers.data());
  // The ring may have moved meanwhile: switches learn where an address is from what is sent there.
  core_->device.nic->mac().Store(frame.headers.data() + wire::MacAddress::kBytes);
  nic::TxFrame tx{.header = frame.headers.data(),
                  .payload = frame.data,
                  .header_length = frame.header_bytes,
                  .payload_length = frame.length,
                  .key = core_->KeyOf(frame.buffer),
                  .flags = frame.tx_flags};
  frame.record.buffer = frame.buffer;
  // What nobody could put together again is not sent.
  if (failing_ ||
      core_->Post(tx, &frame.record, waiters_->PaceOf(frame)) != nic::TxStatus::kPosted) {
    return Fail(waiting, Drop::kSendFailed, ENOBUFS);
  }
  waiters_->OnPosted(frame);
  Free(waiting);
}

// Of a datagram in several frames the last tells it: those behind one that failed fail, too.
void Neighbours::Fail(Waiting& waiting, Drop reason, int error) {
  failing_ = !waiting.frame.last;
  if (!failing_) core_->CountLoss(reason);
  waiters_->OnFailed(waiting.frame, error);
  Free(waiting);
}

void Neighbours::Settle(wire::Ipv4Address next_hop, int error) {
  // Off the list before it is told: that may add to it.
  for (size_t i = 0; i < connecting_.size();) {
    const Connecting waiting = connecting_[i];
    if (waiting.next_hop != next_hop) {
      ++i;
      continue;
    }
    connecting_[i] = connecting_.back();
    connecting_.pop_back();
    waiters_->OnConnected(waiting.connect, error);
  }
}

void Neighbours::Free(Waiting& waiting) {
  waiting.used = false;
  free_.push_back(&waiting);
}

}  // namespace xtreme::engine
