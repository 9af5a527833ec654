// SPDX-License-Identifier: Apache-2.0
//
// RuleTable: the rules of one ring, each match once however many sockets need it.
//
// Canonical shapes, the same in every process, so that equal matches join on the card: a group and
// a shared port are matched without a tag; a port that is ours alone carries its socket's place as
// a hint. A tag of the program's own stands in any of them, unless an equal match has another.
// Whole addresses come behind the ports of any ring, but whole groups, which have no priorities. If
// the device's table is full, one rule without ports for the whole address stands in for those of
// UDP (the kernel gets a copy), and software sorts it out; those of TCP are refused. Those of TCP
// also stay for a while at a port that the ring left, and what they take there is dropped.
// Invariant: a rule stands as long as one of its holders does.
// Threads: the control thread.

#ifndef XTREME_XTREME_ENGINE_RULE_TABLE_H_
#define XTREME_XTREME_ENGINE_RULE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

class RuleTable {
 public:
  // Both outlive the table.
  RuleTable(nic::Nic* nic, nic::QueuePair* queue_pair) : nic_(nic), queue_pair_(queue_pair) {}

  struct Entry {
    nic::FlowRule rule;
    std::unique_ptr<nic::Rule> installed;
    uint32_t holders = 0;
    bool fallback = false;
    bool asked_to_share = false;  // By the first holder: what the device made of it is in `rule`.
    Entry* stand_in = nullptr;    // Given up for this shared rule, of which it is a holder.
  };

  struct Held {
    Entry* entry = nullptr;
    bool fallback = false;        // The table was full: a shared rule stands in.
    bool kernel_excluded = false; // share_with_kernel was asked and the device refuses it.
  };

  // Holds a rule that takes what `rule` says. A rule of an equal match that stands already, with
  // or without a tag, is shared. AlreadyExists: it stands with another share_with_kernel, which is
  // one for all holders of a match. ResourceExhausted: not even the shared rule found room, or it
  // is one of TCP. Else the error of Nic::AddRule. The same work however many rules there are.
  absl::StatusOr<Held> Hold(const nic::FlowRule& rule);
  // Holds a rule that stands before every other that takes the same frames, of whatever ring: so a
  // connection moves from ring to ring. Nothing stands in for it: ResourceExhausted.
  absl::StatusOr<Held> HoldBefore(const nic::FlowRule& rule);
  void Drop(Entry* entry);

  // Puts every rule on `queue_pair`, one after the other. TCP's stand on both queues for a moment:
  // a segment that comes twice does no harm, one that becomes the kernel's resets its connection.
  // Others stand on neither for a moment, and a datagram that comes then comes by the slow path: it
  // is not to come twice. The first error, and then without that rule.
  absl::Status Redirect(nic::QueuePair* queue_pair);
  // Takes every rule off its queue pair, to be put on another one. Those of TCP stay on `keeper`,
  // which has no receive buffers: what comes for them meanwhile is lost on the way, and not the
  // kernel's, which would reset the connection. Each until its last holder drops it, or until it is
  // put on a queue of that port again. How many of them did not stay: the device had no room, or
  // there is no `keeper` (null).
  size_t Suspend(std::unique_ptr<nic::QueuePair> keeper);
  // The same before MoveTo(): they stay at the port that is left, also those that had no queue
  // there, until EndLeft() at the latest.
  size_t SuspendAndLeave(std::unique_ptr<nic::QueuePair> keeper);
  // Ends what stayed at the port that was left last, and its keeper. What has no queue at the port
  // of now goes on staying there.
  void EndLeft() { left_.End(); }
  // Takes every rule off for good, wherever it stands. Those that are held stand on nothing.
  void End();
  bool HasLeft() const { return !left_.rules.empty() || !before_.rules.empty(); }
  // Whether rules of TCP stand.
  bool HasTcp() const;
  // Suspended: makes them rules of `nic`, which outlives the table, and of its address.
  void MoveTo(nic::Nic* nic);
  // Puts them on `queue_pair`; the first error, and then without that rule.
  absl::Status Resume(nic::QueuePair* queue_pair);

  size_t size() const { return entries_.size(); }
  // Matches compared so far: a measure of the table's own work.
  uint64_t comparisons() const { return comparisons_; }

 private:
  struct HashMatch {
    size_t operator()(const nic::FlowMatch& match) const;
  };
  struct SameMatch {
    bool operator()(const nic::FlowMatch& a, const nic::FlowMatch& b) const {
      ++*comparisons;
      return a == b;
    }
    uint64_t* comparisons;
  };
  static constexpr size_t kFirstBuckets = 64;

  // Of one port, on the keeper.
  struct Left {
    void End() {
      rules.clear();
      queue.reset();
    }
    std::unique_ptr<nic::QueuePair> queue;
    std::unordered_map<const Entry*, std::unique_ptr<nic::Rule>> rules;
  };

  Entry* Find(const nic::FlowMatch& match);
  absl::StatusOr<Held> Install(const nic::FlowRule& rule, uint16_t priority);
  // Adds it, without its tag where an equal match stands with another, as `rule` then says.
  absl::StatusOr<std::unique_ptr<nic::Rule>> Add(nic::FlowRule* rule);
  // Puts it on the queue pair, and takes it off the one that it is on afterwards.
  absl::Status Reinstall(Entry* entry);
  // The same where the rule may have been left: it goes once it is not needed, or for room.
  absl::Status PutOn(Entry* entry);
  // Suspend(), TCP's staying on the keeper of `stay`, which becomes `keeper` if it has none.
  size_t TakeOff(std::unique_ptr<nic::QueuePair> keeper, Left& stay);
  // Has it stay there. False: there is no keeper, or no room for it.
  bool Leave(Entry& entry, Left& stay);
  absl::StatusOr<Held> FallBack(const nic::FlowRule& rule, const absl::Status& full);
  // Takes up to `most` exact rules that `shared` covers off the device.
  std::vector<Entry*> GiveUp(const nic::FlowMatch& shared, size_t most);
  Entry* Keep(const nic::FlowRule& rule, std::unique_ptr<nic::Rule> installed, bool fallback);

  nic::Nic* nic_;
  nic::QueuePair* queue_pair_;
  uint64_t comparisons_ = 0;
  std::unordered_map<nic::FlowMatch, std::unique_ptr<Entry>, HashMatch, SameMatch> entries_{
      kFirstBuckets, HashMatch(), SameMatch{&comparisons_}};
  Left left_;    // At the port that was left last.
  Left before_;  // At the one of the next queue pair: it was left before, or has none meanwhile.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RULE_TABLE_H_
