// SPDX-License-Identifier: Apache-2.0
//
// Flow steering as a ConnectX and its kernel driver do it: rules with an equal match are one entry
// with one tag and a list of holders; entries of equal priority and mask are one group, a hash
// table. Of two groups of one priority the one that took its place first goes first, however little
// it matches.
//
// Invariant: a frame goes once to every holder of the first entry that matches, and on to later
// groups only from entries that do not trap. An entry's tag is the one it was made with.
// Units: none; FlowKey words are packed by this file alone. Thread: the device's lock.
// Spec: ibv_create_flow(3); Linux drivers/infiniband/hw/mlx5/fs.c for what becomes of priorities,
// multicast rules, defaults and equal matches; fs_core.c, alloc_auto_flow_group, for places.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_STEERING_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_STEERING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/receive_target.h"
#include "tools/connectx/device/requests.h"
#include "tools/connectx/device/slot_table.h"

namespace xtreme::connectx {

// What rules can match of a frame, as words to mask and compare.
struct FlowKey {
  std::array<uint64_t, 8> words{};

  FlowKey operator&(const FlowKey& other) const {
    FlowKey both;
    for (size_t i = 0; i < words.size(); ++i) both.words[i] = words[i] & other.words[i];
    return both;
  }
  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};

// Ports are part of the key only where the frame has them: never in a fragment.
FlowKey KeyOf(const Frame& frame);

struct FlowCounter {
  FlowCount count;
  uint32_t rules = 0;  // That count by it.
};

class Steering {
 public:
  struct Holder {
    ReceiveTarget* target;  // Null: of rules that drop.
    uint32_t rules;         // That this holder has in the entry.
  };
  struct Entry {
    FlowKey value;
    uint32_t tag = 0;  // 0 also when no rule asked for one.
    bool drops = false;
    std::vector<Holder> holders;
    std::vector<FlowCounter*> counters;  // One a rule that has one.

    // A frame that the entry takes.
    void Count(size_t bytes) const {
      for (FlowCounter* counter : counters) {
        ++counter->count.packets;
        counter->count.bytes += bytes;
      }
    }
  };

  explicit Steering(uint32_t limit) : rules_(kFirstRule, limit) {}

  // `target` is not null, though where the rule drops it gets nothing. `counter` outlives the rule.
  // EEXIST: an equal match has another tag, or drops where this does not, or the other way round.
  // EINVAL, ENOSPC as Device::CreateFlow.
  int Add(const FlowRequest& request, ReceiveTarget* target, uint32_t* rule,
          FlowCounter* counter = nullptr);
  // The tag that an equal match has and `request` does not; empty: Add will not find one.
  std::optional<uint32_t> ConflictingTag(const FlowRequest& request) const;
  // EINVAL: no such rule.
  int Remove(uint32_t rule);
  // Nullptr when there is no such rule.
  const FlowRequest* Request(uint32_t rule) const;

  // Calls visit(entry) for each entry that takes the frame; at least one of them trapped it if
  // true.
  template <typename Visit>
  bool Walk(const FlowKey& key, Visit&& visit) const {
    for (const auto& group : groups_) {
      const Entry* entry = group->Find(key & group->mask);
      if (entry == nullptr) continue;
      visit(*entry);
      if (group->traps) return true;
    }
    return false;
  }

  // Holders that get a copy of everything, both ways, and trap nothing.
  const Entry& sniffers() const { return sniffers_; }
  bool empty() const { return groups_.empty() && sniffers_.holders.empty(); }

 private:
  static constexpr uint32_t kFirstRule = 1;

  // Entries with one mask at one place in the order, in an open-addressed table.
  struct Group {
    uint32_t order;      // Of the flow tables; lower goes first.
    uint32_t place = 0;  // In its table, the first that was free; lower goes first.
    FlowKey mask;
    bool traps = true;
    size_t size = 0;
    std::vector<std::unique_ptr<Entry>> table;  // A power of two, at most half full.

    Entry* Find(const FlowKey& value) const;
    Entry* Insert(const FlowKey& value, uint32_t tag);
    void Erase(Entry* entry);
    size_t Slot(const FlowKey& value) const;
    void Rehash(size_t slots);
  };

  struct Match {
    uint32_t order;
    bool traps;
    FlowKey value;
    FlowKey mask;
  };
  // An ALL_DEFAULT rule is two entries: unicast and multicast.
  struct Rule {
    FlowRequest request;
    ReceiveTarget* target;
    FlowCounter* counter;
    std::vector<Match> matches;

    ReceiveTarget* holder() const { return request.drop ? nullptr : target; }
  };

  static int Compile(const FlowRequest& request, std::vector<Match>* matches);
  Group* FindGroup(const Match& match) const;
  Group* GetGroup(const Match& match);
  bool ConflictsInAction(const FlowRequest& request, const std::vector<Match>& matches) const;
  static void Hold(Entry* entry, ReceiveTarget* target);
  static void Release(Entry* entry, ReceiveTarget* target);

  std::vector<std::unique_ptr<Group>> groups_;  // In the order they are tried.
  Entry sniffers_;
  SlotTable<Rule> rules_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_STEERING_H_
