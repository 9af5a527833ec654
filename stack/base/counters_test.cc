// SPDX-License-Identifier: Apache-2.0
#include "stack/base/counters.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace xtreme::base {
namespace {

struct QueueCounters {
  uint64_t packets = 0;
  uint64_t bytes = 0;

  static constexpr auto Table() {
    return std::to_array<CounterDescriptor<QueueCounters>>({
        {"packets", "packets taken", &QueueCounters::packets},
        {"bytes", "bytes taken", &QueueCounters::bytes},
    });
  }
};
static_assert(DescribesEveryCounter<QueueCounters>());

struct ForgotOne {
  uint64_t named = 0;
  uint64_t forgotten = 0;

  static constexpr auto Table() {
    return std::to_array<CounterDescriptor<ForgotOne>>({{"named", "is named", &ForgotOne::named}});
  }
};

struct NamedTwice {
  uint64_t named = 0;
  uint64_t forgotten = 0;

  static constexpr auto Table() {
    return std::to_array<CounterDescriptor<NamedTwice>>(
        {{"one", "is named", &NamedTwice::named}, {"two", "is named", &NamedTwice::named}});
  }
};

enum class Reason { kShort, kLong, kCount };

constexpr CounterName DescribeReason(Reason reason) {
  return reason == Reason::kShort ? CounterName{"short", "too short"}
                                  : CounterName{"long", "too long"};
}

template <typename Counters>
std::map<std::string, uint64_t> Published(const Counters& counters) {
  std::map<std::string, uint64_t> published;
  VisitCounters(counters,
                [&](std::string_view name, std::string_view meaning, const uint64_t& value) {
                  EXPECT_FALSE(meaning.empty());
                  published[std::string(name)] = value;
                });
  return published;
}

TEST(Counters, ACounterWithoutANameIsSeenAtCompileTime) {
  EXPECT_FALSE(DescribesEveryCounter<ForgotOne>());
  EXPECT_FALSE(DescribesEveryCounter<NamedTwice>());
}

TEST(Counters, AreVisitedByName) {
  const QueueCounters counters{.packets = 3, .bytes = 180};
  EXPECT_EQ(Published(counters), (std::map<std::string, uint64_t>{{"packets", 3}, {"bytes", 180}}));
}

TEST(Counters, AddUpMemberByMember) {
  QueueCounters total{.packets = 1, .bytes = 60};
  AddCounters(QueueCounters{.packets = 2, .bytes = 40}, total);
  EXPECT_EQ(total.packets, 3u);
  EXPECT_EQ(total.bytes, 100u);
}

TEST(ReasonCounters, EachReasonHasItsOwn) {
  ReasonCounters<Reason> drops;
  drops.Count(Reason::kLong);
  drops.Count(Reason::kLong);
  EXPECT_EQ(drops[Reason::kShort], 0u);
  EXPECT_EQ(drops[Reason::kLong], 2u);
  EXPECT_EQ(drops.Total(), 2u);
  EXPECT_EQ(Published(drops), (std::map<std::string, uint64_t>{{"short", 0}, {"long", 2}}));
}

}  // namespace
}  // namespace xtreme::base
