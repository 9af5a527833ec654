// SPDX-License-Identifier: Apache-2.0
//
// Named counters: a plain struct of uint64_t for those who count, a table of names for those who
// read.
//
//   struct QueueCounters {
//     uint64_t packets = 0;
//     static constexpr auto Table() {
//       return std::to_array<CounterDescriptor<QueueCounters>>(
//           {{"packets", "packets taken from the queue", &QueueCounters::packets}});
//     }
//   };
//   static_assert(DescribesEveryCounter<QueueCounters>());
//
// Where the counted thing is a reason, an enum, `ReasonCounters` holds one counter a value. Both
// are published by `VisitCounters`. Counters only grow; one thread writes.
#ifndef XTREME_STACK_BASE_COUNTERS_H_
#define XTREME_STACK_BASE_COUNTERS_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xtreme::base {

// What a counter is called (lower_snake_case) and what one more of it means. Static strings.
struct CounterName {
  std::string_view name;
  std::string_view meaning;
};

template <typename Counters>
struct CounterDescriptor {
  std::string_view name;
  std::string_view meaning;
  uint64_t Counters::*member;
};

template <typename Counters>
concept CounterStruct = requires {
  { Counters::Table()[0].member } -> std::convertible_to<uint64_t Counters::*>;
};

// Whether the table names every member of the struct exactly once and by different names: for a
// static_assert beside the struct, so that a counter without a name does not compile.
template <CounterStruct Counters>
consteval bool DescribesEveryCounter() {
  constexpr auto kTable = Counters::Table();
  if (kTable.size() * sizeof(uint64_t) != sizeof(Counters)) return false;
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name.empty() || kTable[i].meaning.empty()) return false;
    for (size_t j = 0; j < i; ++j) {
      if (kTable[i].member == kTable[j].member || kTable[i].name == kTable[j].name) return false;
    }
  }
  return true;
}

// An enum of reasons: contiguous from 0 and closed by `kCount`, and a function found beside it that
// names each.
template <typename Reason>
concept NamedReason = requires(Reason reason) {
  Reason::kCount;
  { DescribeReason(reason) } -> std::same_as<CounterName>;
};

// One counter for each value of an enum of reasons.
template <NamedReason Reason>
class ReasonCounters {
 public:
  static constexpr size_t kSize = static_cast<size_t>(Reason::kCount);

  void Count(Reason reason, uint64_t times = 1) { counts_[static_cast<size_t>(reason)] += times; }
  void Uncount(Reason reason) { --counts_[static_cast<size_t>(reason)]; }
  uint64_t operator[](Reason reason) const { return counts_[static_cast<size_t>(reason)]; }

  uint64_t Total() const {
    uint64_t total = 0;
    for (uint64_t count : counts_) total += count;
    return total;
  }

 private:
  std::array<uint64_t, kSize> counts_{};
};

// Calls `visit(name, meaning, const uint64_t& counter)` for each counter, in the table's order. The
// references live as long as `counters`.
template <CounterStruct Counters, typename Visitor>
void VisitCounters(const Counters& counters, Visitor&& visit) {
  for (const auto& descriptor : Counters::Table()) {
    visit(descriptor.name, descriptor.meaning, counters.*descriptor.member);
  }
}

template <NamedReason Reason, typename Visitor>
void VisitCounters(const ReasonCounters<Reason>& counters, Visitor&& visit) {
  for (size_t i = 0; i < ReasonCounters<Reason>::kSize; ++i) {
    const auto reason = static_cast<Reason>(i);
    const CounterName described = DescribeReason(reason);
    visit(described.name, described.meaning, counters[reason]);
  }
}

// Adds every counter of `from` to the same of `into`.
template <CounterStruct Counters>
void AddCounters(const Counters& from, Counters& into) {
  for (const auto& descriptor : Counters::Table()) {
    into.*descriptor.member += from.*descriptor.member;
  }
}

// Takes them off: of what was counted since, `from` being what stood then.
template <CounterStruct Counters>
void SubtractCounters(const Counters& from, Counters& into) {
  for (const auto& descriptor : Counters::Table()) {
    into.*descriptor.member -= from.*descriptor.member;
  }
}

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_COUNTERS_H_
