// SPDX-License-Identifier: Apache-2.0
//
// ControlSide: what of a ring lives on the control thread: its rules, and per socket the port and
// the memberships that the kernel keeps for it.
//
// Operations hold it by shared_ptr; it ends with the ring's burial, after every operation of the
// ring. Threads: the control thread only, but for what says otherwise.

#ifndef XTREME_XTREME_ENGINE_CONTROL_SIDE_H_
#define XTREME_XTREME_ENGINE_CONTROL_SIDE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "stack/udp/source_filter.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/rule_table.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

class FdWatches;
class LoopbackDirectory;
class LoopbackQueue;
class Mailbox;

struct ControlSide;

// Rules that are held: mostly one, which then needs no memory of its own.
class HeldRules {
 public:
  void Add(RuleTable::Entry* rule) {
    if (first_ == nullptr) {
      first_ = rule;
      return;
    }
    if (others_ == nullptr) others_ = std::make_unique<std::vector<RuleTable::Entry*>>();
    others_->push_back(rule);
  }
  // Gives all of them back to `table`.
  void DropAll(RuleTable& table) {
    table.Drop(std::exchange(first_, nullptr));
    if (others_ == nullptr) return;
    for (RuleTable::Entry* rule : *others_) table.Drop(rule);
    others_.reset();
  }

 private:
  RuleTable::Entry* first_ = nullptr;
  std::unique_ptr<std::vector<RuleTable::Entry*>> others_;
};

// What the control thread holds for one socket.
struct SocketHoldings {
  struct Group {
    RuleTable::Entry* rule = nullptr;
    Kernel::MembershipId membership = 0;
    uint32_t ifindex = 0;  // Of the membership.
    uint64_t key = 0;  // In the directory of loopback.
    udp::SourceFilter filter;
  };

  // Holds `wanted` instead of what is held; the first error, and then without that rule.
  absl::Status ReplaceRules(ControlSide& side, const std::vector<nic::FlowRule>& wanted);
  // Has the kernel join on `side`'s interface what is joined elsewhere; the first error, and
  // then that group stays where it was.
  absl::Status Rejoin(ControlSide& side);
  // Gives everything back. Once.
  void Release(ControlSide& side, ControlThread& control);

  // Null: not joined.
  Group* Find(wire::Ipv4Address group) {
    if (groups == nullptr) return nullptr;
    const auto found = groups->find(group);
    return found == groups->end() ? nullptr : &found->second;
  }

  using Groups = std::map<wire::Ipv4Address, Group>;

  std::unique_ptr<KernelPort> port;
  HeldRules rules;
  std::unique_ptr<Groups> groups;  // Null: none was ever joined, as by most of many sockets.
};

struct ControlSide {
  ControlSide(Kernel* kernel, nic::Nic* nic, nic::QueuePair* queue, uint32_t ifindex,
              Mailbox* mailbox)
      : kernel(kernel), mailbox(mailbox), nic(nic), ifindex(ifindex), rules(nic, queue) {}

  Kernel* const kernel;
  Mailbox* const mailbox;  // Of the ring; outlives what is held for its sockets.
  nic::Nic* nic;
  uint32_t ifindex;
  RuleTable rules;
  // Made by a reset; the ring's owner takes it when it is told, else it ends with the ring.
  std::unique_ptr<nic::QueuePair> fresh_queue;
  // What the queue before had received and nobody had taken, with its references; also the owner's.
  std::vector<nic::RxFrame> left_behind;
  nic::QueueCounters left_counters;  // What that queue counted as they were taken.
  // Of the last move, also the owner's: rules that stay at the port that was left, and how many of
  // TCP's could not.
  bool rules_left = false;
  size_t rules_not_left = 0;
  nic::Moderation moderation;  // Of interrupts: what new queues get.
  // Of the application's memory, by the serial of RegisteredMemory; one for each port.
  std::map<uint64_t, std::vector<std::unique_ptr<nic::Registration>>> registrations;
  FdWatches* watches = nullptr;           // The engine's, of fds of the application.
  LoopbackDirectory* directory = nullptr;   // The engine's.
  std::shared_ptr<LoopbackQueue> loopback;  // Of the ring.
  uint64_t fault_count = 0;                 // The periodic look at the owner's page faults.
  uint32_t port_watch = 0;                  // Of the fds behind UDP's ports; 0: none was yet.
  // What is held for UDP sockets, by their places. A place is another socket's only when the
  // control thread has given back what it held, and the ring was told.
  std::deque<SocketHoldings> of_udp;
  // Datagrams of the kernel's on their way to the ring, of the places of sockets that ever got any.
  std::map<uint32_t, std::atomic<uint32_t>> waiting;

  SocketHoldings& HoldingsOf(Handle udp_socket) {
    const uint32_t place = PlaceOf(udp_socket);
    while (of_udp.size() <= place) of_udp.emplace_back();
    return of_udp[place];
  }
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_CONTROL_SIDE_H_
