// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/loopback_directory.h"

#include <algorithm>

#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {

LoopbackDirectory::Member* LoopbackDirectory::Find(const LoopbackQueue* queue) {
  const auto found = std::find_if(members_.begin(), members_.end(), [queue](const Member& member) {
    return member.queue.get() == queue;
  });
  return found == members_.end() ? nullptr : &*found;
}

void LoopbackDirectory::TellJoined(const Member& member, uint64_t key, const Member& peer) {
  LoopbackPeers one;
  one.emplace(key, peer.queue);
  member.mailbox->Push(MakeNotice([node = one.extract(one.begin())](Ring& ring) mutable {
    ring.udp().AddPeer(std::move(node));
  }));
}

// Only compared: the one it names lives as long as the ring has it as a peer.
void LoopbackDirectory::TellParted(const Member& member, uint64_t key, const Member& peer) {
  member.mailbox->Push(MakeNotice([key, left = peer.queue.get()](Ring& ring) {
    ring.udp().RemovePeer(key, left);
  }));
}

void LoopbackDirectory::Enter(uint32_t ifindex, const std::shared_ptr<Mailbox>& mailbox,
                              const std::shared_ptr<LoopbackQueue>& queue) {
  const Member entered{.ifindex = ifindex, .mailbox = mailbox, .queue = queue, .joined = {}};
  for (const Member& peer : members_) {
    if (peer.ifindex != ifindex) continue;
    for (const auto& [key, sockets] : peer.joined) TellJoined(entered, key, peer);
  }
  members_.push_back(entered);
}

void LoopbackDirectory::Move(const LoopbackQueue* queue, uint32_t ifindex) {
  Member* moving = Find(queue);
  if (moving == nullptr || moving->ifindex == ifindex) return;
  const auto meet = [this, moving](auto act) {
    for (Member& other : members_) {
      if (&other == moving || other.ifindex != moving->ifindex) continue;
      for (const auto& [key, sockets] : moving->joined) act(other, key, *moving);
      for (const auto& [key, sockets] : other.joined) act(*moving, key, other);
    }
  };
  meet(TellParted);
  moving->ifindex = ifindex;
  meet(TellJoined);
}

void LoopbackDirectory::Leave(const LoopbackQueue* queue) {
  std::erase_if(members_, [queue](const Member& member) { return member.queue.get() == queue; });
}

void LoopbackDirectory::Join(const LoopbackQueue* queue, uint64_t key) {
  Member* joining = Find(queue);
  if (joining == nullptr || ++joining->joined[key] > 1) return;
  for (const Member& member : members_) {
    if (&member == joining || member.ifindex != joining->ifindex) continue;
    TellJoined(member, key, *joining);
  }
}

void LoopbackDirectory::Part(const LoopbackQueue* queue, uint64_t key) {
  Member* parting = Find(queue);
  if (parting == nullptr || --parting->joined[key] > 0) return;
  parting->joined.erase(key);
  for (const Member& member : members_) {
    if (&member == parting || member.ifindex != parting->ifindex) continue;
    TellParted(member, key, *parting);
  }
}

}  // namespace xtreme::engine
