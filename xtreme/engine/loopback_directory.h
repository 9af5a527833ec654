// SPDX-License-Identifier: Apache-2.0
//
// LoopbackDirectory: which rings of the process joined which group, told to all the others.
//
// A ring keeps what it is told (LoopbackPeers) and looks there when it resolves a flow, so that no
// send asks anybody. Invariant: a ring is told of a peer once, however many of the peer's sockets
// joined, and that it left once the last has.
// Keys are udp::BindingKey: group, VLAN and port. Threads: the control thread.

#ifndef XTREME_XTREME_ENGINE_LOOPBACK_DIRECTORY_H_
#define XTREME_XTREME_ENGINE_LOOPBACK_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace xtreme::engine {

class LoopbackQueue;
class Mailbox;

// By key, the rings that have listeners. A notice brings the node: the owner allocates none.
using LoopbackPeers = std::multimap<uint64_t, std::shared_ptr<LoopbackQueue>>;

class LoopbackDirectory {
 public:
  // A ring on `ifindex`, told of what the others joined and join. `queue` leads to it.
  void Enter(uint32_t ifindex, const std::shared_ptr<Mailbox>& mailbox,
             const std::shared_ptr<LoopbackQueue>& queue);
  // The ring is on `ifindex` from here on, with its groups.
  void Move(const LoopbackQueue* queue, uint32_t ifindex);
  // It left all its groups before.
  void Leave(const LoopbackQueue* queue);

  // One of its sockets joined, or left.
  void Join(const LoopbackQueue* queue, uint64_t key);
  void Part(const LoopbackQueue* queue, uint64_t key);

 private:
  struct Member {
    uint32_t ifindex = 0;
    std::shared_ptr<Mailbox> mailbox;
    std::shared_ptr<LoopbackQueue> queue;
    std::map<uint64_t, uint32_t> joined;  // Sockets by key.
  };

  Member* Find(const LoopbackQueue* queue);
  static void TellJoined(const Member& member, uint64_t key, const Member& peer);
  static void TellParted(const Member& member, uint64_t key, const Member& peer);

  std::vector<Member> members_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_LOOPBACK_DIRECTORY_H_
