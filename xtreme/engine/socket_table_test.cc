// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/socket_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>

namespace xtreme::engine {
namespace {

struct Thing {
  Handle handle = 0;
};

// Whatever free places say of one another: each handle that there can be is tried after each step.
TEST(HandleTableTest, OnlyTheHandlesOfWhatIsTakenFindAnything) {
  constexpr uint32_t kFirst = 5;
  constexpr uint32_t kPlaces = 3;
  HandleTable<Thing, kFirst> table(/*ring=*/0, kPlaces);
  std::map<Handle, Thing*> taken;
  uint32_t seed = 1;
  for (int step = 0; step < 100; ++step) {
    seed = seed * 1664525 + 1013904223;
    if (taken.empty() || (seed >> 16 & 1) != 0) {
      Thing* const thing = table.Take();
      ASSERT_EQ(thing == nullptr, taken.size() == kPlaces);
      if (thing != nullptr) taken[thing->handle] = thing;
    } else {
      const auto one = std::next(taken.begin(), (seed >> 20) % taken.size());
      table.Free(one->first);
      taken.erase(one);
    }
    ASSERT_EQ(table.size(), taken.size());
    for (uint32_t place = kFirst - 1; place <= kFirst + kPlaces; ++place) {
      for (uint32_t generation = 0; generation < 100; ++generation) {
        const Handle handle = MakeHandle(/*ring=*/9, place, generation);
        const auto expected = taken.find(MakeHandle(0, place, generation));
        ASSERT_EQ(table.Find(handle), expected == taken.end() ? nullptr : expected->second);
      }
    }
  }
}

TEST(HandleTableTest, BehindTheLastGenerationComesTheFirst) {
  HandleTable<Thing> table(/*ring=*/1, 1);
  table.Take()->handle = MakeHandle(1, 0, kHandleFieldMask);
  table.Free(MakeHandle(1, 0, kHandleFieldMask));
  EXPECT_EQ(table.Take()->handle, MakeHandle(1, 0, 1));
}

TEST(SocketTableTest, AHandleFindsItsSocketUntilThatIsPutBack) {
  SocketTable table(/*ring=*/3, 2);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_EQ(table.Find(~Handle{0}), nullptr);
  UdpSocket* const first = table.Take({.local = {{10, 0, 0, 1}, 7}});
  ASSERT_NE(first, nullptr);
  const Handle handle = first->handle;
  EXPECT_EQ(first->local().port, 7);
  EXPECT_EQ(table.Find(handle), first);
  EXPECT_EQ(table.At(PlaceOf(handle)), first);
  EXPECT_EQ(table.At(2), nullptr);
  ASSERT_NE(table.Take({}), nullptr);
  EXPECT_EQ(table.Take({}), nullptr);
  first->SetFlowTag(5);
  table.Put(first);
  EXPECT_EQ(table.Find(handle), nullptr);
  EXPECT_EQ(table.size(), 1u);
  // The place is another one's, who has nothing of the one before.
  UdpSocket* const next = table.Take({});
  ASSERT_EQ(next, first);
  EXPECT_EQ(PlaceOf(next->handle), PlaceOf(handle));
  EXPECT_EQ(table.Find(handle), nullptr);
  EXPECT_EQ(table.Find(next->handle), next);
  EXPECT_EQ(next->local().port, 0);
  EXPECT_EQ(next->flow_tag(), 0u);
}

TEST(SocketTableTest, NewsAreTakenInTheOrderInWhichTheyWereAddedAndOnce) {
  SocketTable table(1, 3);
  UdpSocket* const a = table.Take({});
  UdpSocket* const b = table.Take({});
  UdpSocket* const c = table.Take({});
  EXPECT_FALSE(table.HasNews());
  for (UdpSocket* socket : {b, c, b, a, c}) table.AddNews(*socket);
  EXPECT_EQ(table.TakeNews(), b);
  EXPECT_EQ(table.TakeNews(), c);
  table.AddNews(*b);
  EXPECT_EQ(table.TakeNews(), a);
  EXPECT_EQ(table.TakeNews(), b);
  EXPECT_FALSE(table.HasNews());
  table.AddNews(*c);
  EXPECT_TRUE(table.HasNews());
  EXPECT_EQ(table.TakeNews(), c);
  EXPECT_FALSE(table.HasNews());
}

TEST(SocketTableTest, TheMostListenersOnOneKeyFollowBothWays) {
  SocketTable table(1, 8);
  EXPECT_EQ(table.CountListener(1, +1), 1u);
  EXPECT_EQ(table.CountListener(2, +1), 1u);
  EXPECT_EQ(table.CountListener(1, +1), 2u);
  EXPECT_EQ(table.CountListener(1, +1), 3u);
  EXPECT_EQ(table.CountListener(2, +1), 3u);
  EXPECT_EQ(table.CountListener(1, -1), 2u);
  EXPECT_EQ(table.CountListener(1, -1), 2u);
  EXPECT_EQ(table.CountListener(2, -1), 1u);
  EXPECT_EQ(table.CountListener(2, -1), 1u);
  EXPECT_EQ(table.CountListener(1, -1), 1u);
  EXPECT_EQ(table.Listeners(1), 0u);
}

// Held against a map, through growth and in runs of neighbours that come and go.
TEST(SocketCountsTest, EveryKeyKeepsItsCountWhateverComesAndGoes) {
  SocketCounts<uint16_t> counts;
  std::map<uint64_t, uint32_t> expected;
  uint32_t seed = 1;
  for (int step = 0; step < 20'000; ++step) {
    seed = seed * 1664525 + 1013904223;
    const uint64_t key = uint64_t{seed >> 8 & 0x3f} << 32 | (seed >> 14 & 3);
    const bool more = expected[key] == 0 || (seed >> 20 & 1) != 0;
    expected[key] += more ? 1 : -1;
    ASSERT_EQ(counts.Add(key, more ? +1 : -1), expected[key]) << step;
    const uint64_t other = uint64_t{seed >> 16 & 0x3f} << 32 | (seed >> 22 & 3);
    ASSERT_EQ(counts.Of(other), expected[other]) << step;
  }
  for (const auto& [key, count] : expected) EXPECT_EQ(counts.Of(key), count);
  EXPECT_EQ(counts.Of(7), 0u);
}

TEST(SocketCountsTest, MoreThanThereArePortsCanBeOfOneKey) {
  SocketCounts<uint32_t> counts;
  constexpr uint64_t kKey = uint64_t{0xef010101} << 32 | 0xffff;
  for (uint32_t i = 1; i <= 65'536; ++i) ASSERT_EQ(counts.Add(kKey, +1), i);
  EXPECT_EQ(counts.Of(kKey), 65'536u);
  EXPECT_EQ(counts.Of(kKey - 1), 0u);
  EXPECT_EQ(counts.Add(kKey, -1), 65'535u);
}

}  // namespace
}  // namespace xtreme::engine
