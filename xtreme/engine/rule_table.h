// SPDX-License-Identifier: Apache-2.0
//
// RuleTable: the rules of one ring, each match once however many sockets need it.
//
// Canonical shapes, the same in every process, so that equal matches join on the card: a group and
// a shared port are matched without a tag; a port that is ours alone carries its socket's place as
// a hint. When the device's table is full, one rule without ports for the whole address stands in
// for all of them (the kernel gets a copy), and software sorts it out.
// Invariant: a rule stands as long as one of its holders does.
// Threads: the control thread.

#ifndef XTREME_XTREME_ENGINE_RULE_TABLE_H_
#define XTREME_XTREME_ENGINE_RULE_TABLE_H_

#include <cstdint>
#include <list>
#include <memory>

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
    Entry* stand_in = nullptr;  // Given up for this shared rule, of which it is a holder.
  };

  struct Held {
    Entry* entry = nullptr;
    bool fallback = false;        // The table was full: a shared rule stands in.
    bool kernel_excluded = false; // share_with_kernel was asked and the device refuses it.
  };

  // Holds a rule that takes what `rule` says. A rule of an equal match that stands already, with
  // or without a tag, is shared. ResourceExhausted: not even the shared rule found room. Else the
  // error of Nic::AddRule.
  absl::StatusOr<Held> Hold(const nic::FlowRule& rule);
  void Drop(Entry* entry);

 private:
  Entry* Find(const nic::FlowMatch& match);
  absl::StatusOr<Held> Install(const nic::FlowRule& rule);
  absl::StatusOr<Held> FallBack(const nic::FlowRule& rule, const absl::Status& full);
  // Gives up one exact rule that `shared` covers; null when there is none.
  Entry* MakeRoomFor(const nic::FlowMatch& shared);
  Entry* Keep(const nic::FlowRule& rule, std::unique_ptr<nic::Rule> installed, bool fallback);

  nic::Nic* const nic_;
  nic::QueuePair* const queue_pair_;
  std::list<Entry> entries_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RULE_TABLE_H_
