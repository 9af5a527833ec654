// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/neighbours.h"

#include <utility>

#include "stack/wire/arp.h"
#include "stack/wire/ethernet.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

Neighbours::~Neighbours() {
  for (auto& [address, entry] : entries_) {
    core_->wheel.Cancel(entry.get());
    for (WaitingFrame& frame : entry->frames) {
      if (frame.buffer != nullptr) packet::BufferPool::Release(frame.buffer);
    }
  }
}

const wire::MacAddress* Neighbours::Find(wire::Ipv4Address next_hop, wire::Ipv4Address source) {
  std::unique_ptr<Entry>& entry = entries_[next_hop];
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    entry->address = next_hop;
    entry->source = source;
    Ask(*entry);
  }
  if (entry->state != State::kKnown) return nullptr;
  entry->used = true;
  return &entry->mac;
}

bool Neighbours::HasRoom(wire::Ipv4Address next_hop, uint32_t count) const {
  const auto it = entries_.find(next_hop);
  const size_t waiting = it == entries_.end() ? 0 : it->second->frames.size();
  return waiting + count <= core_->options.neighbour_queue;
}

void Neighbours::Wait(wire::Ipv4Address next_hop, const WaitingFrame& frame) {
  entries_.at(next_hop)->frames.push_back(frame);
}

void Neighbours::Wait(wire::Ipv4Address next_hop, const WaitingConnect& connect) {
  entries_.at(next_hop)->connects.push_back(connect);
}

void Neighbours::Ask(Entry& entry) {
  entry.tries = 0;
  SendRequest(entry);
}

void Neighbours::SendRequest(Entry& entry) {
  const int64_t interval = kFirstInterval.count() << entry.tries++;
  core_->ArmTimer(&entry, core_->clock.Now() + base::Nanoseconds(interval));

  std::array<uint8_t, 64> frame{};
  const bool probe = entry.state == State::kKnown;
  wire::EthernetRepr ethernet{
      .destination = probe ? entry.mac : wire::MacAddress::Broadcast(),
      .source = core_->device.nic->mac(),
      .ether_type = wire::kEtherTypeArp};
  if (core_->device.vlan_id != 0) ethernet.vlan = wire::VlanTag{.id = core_->device.vlan_id};
  const size_t header = ethernet.Emit(frame);
  const wire::ArpRepr request{.operation = wire::ArpOperation::kRequest,
                              .sender_mac = core_->device.nic->mac(),
                              .sender = entry.source,
                              .target = entry.address};
  const size_t length = header + request.Emit(std::span(frame).subspan(header));
  nic::TxFrame tx{.header = frame.data(),
                  .payload = nullptr,
                  .header_length = static_cast<uint32_t>(length),
                  .payload_length = 0,
                  .key = core_->device.pool_key,
                  .flags = 0};
  // A full queue loses the request like a wire does: the timer asks again.
  if (core_->Post(tx, nullptr) == nic::TxStatus::kPosted) ++core_->tally.counters.arp_requests;
}

void Neighbours::Seen(wire::Ipv4Address address, wire::MacAddress mac) {
  const auto it = entries_.find(address);
  if (it == entries_.end() || mac.IsGroup() || mac.IsZero()) return;
  Entry& entry = *it->second;
  const base::Nanoseconds now = core_->clock.Now();
  entry.mac = mac;
  entry.state = State::kKnown;
  entry.tries = 0;
  entry.used = false;
  entry.valid_until = now + kValid;
  core_->ArmTimer(&entry, entry.valid_until - kProbeBefore);
  // Flows look again: those resolved without it or with another, and the others to say that they
  // still use it.
  ++core_->host.routes_version;
  Flush(entry);
}

void Neighbours::Flush(Entry& entry) {
  while (!entry.frames.empty()) {
    WaitingFrame frame = std::move(entry.frames.front());
    entry.frames.pop_front();
    PostWaiting(entry, frame);
  }
  std::vector<WaitingConnect> connects = std::move(entry.connects);
  entry.connects.clear();
  for (const WaitingConnect& connect : connects) waiters_->OnConnected(connect, 0);
}

void Neighbours::PostWaiting(Entry& entry, WaitingFrame& frame) {
  entry.mac.Store(frame.headers.data());
  nic::TxFrame tx{.header = frame.headers.data(),
                  .payload = frame.data,
                  .header_length = frame.header_bytes,
                  .payload_length = frame.length,
                  .key = core_->device.pool_key,
                  .flags = frame.tx_flags};
  frame.record.buffer = frame.buffer;
  if (core_->Post(tx, &frame.record) == nic::TxStatus::kPosted) {
    waiters_->OnPosted(frame);
  } else {
    core_->CountLoss(Drop::kSendFailed);
    waiters_->OnFailed(frame, ENOBUFS);
  }
}

void Neighbours::Fail(Entry& entry) {
  std::deque<WaitingFrame> frames = std::move(entry.frames);
  std::vector<WaitingConnect> connects = std::move(entry.connects);
  const bool lost = entry.state == State::kKnown;
  const wire::Ipv4Address address = entry.address;
  entries_.erase(address);
  ++core_->host.routes_version;
  for (const WaitingFrame& frame : frames) {
    core_->CountLoss(Drop::kNeighbour);
    waiters_->OnFailed(frame, EHOSTUNREACH);
  }
  for (const WaitingConnect& connect : connects) waiters_->OnConnected(connect, EHOSTUNREACH);
  if (lost) waiters_->OnLost(address);
}

void Neighbours::Expire(RingTimer* timer) {
  Entry& entry = *static_cast<Entry*>(timer);
  if (entry.tries >= kTries) return Fail(entry);
  if (entry.state == State::kKnown && !entry.used && entry.tries == 0) {
    // Nobody sends there any more: it is forgotten, and asked for again when somebody does.
    ++core_->host.routes_version;
    entries_.erase(entry.address);
    return;
  }
  SendRequest(entry);
}

void Neighbours::AdoptRoutes() {
  std::vector<std::pair<wire::Ipv4Address, wire::MacAddress>> known;
  for (const auto& [address, entry] : entries_) {
    const host::Neighbour* neighbour =
        core_->host.routes->FindNeighbour(core_->device.ifindex, address);
    if (neighbour != nullptr && neighbour->usable()) known.emplace_back(address, neighbour->mac);
  }
  for (const auto& [address, mac] : known) Seen(address, mac);
}

}  // namespace xtreme::engine
