// SPDX-License-Identifier: Apache-2.0
#include "stack/base/small_hash_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace xtreme::base {
namespace {

struct Key {
  uint64_t value = 0;
  bool operator==(const Key&) const = default;
  uint64_t Hash() const { return MixBits(value); }
};

// Every key wants one of two neighbouring slots at the end of the table: all probes collide and
// wrap.
struct CollidingKey {
  uint64_t value = 0;
  bool operator==(const CollidingKey&) const = default;
  uint64_t Hash() const { return ~uint64_t{0} - value % 2; }
};

TEST(SmallHashMap, FindsWhatWasInsertedAndNothingElse) {
  int x = 0, y = 0;
  SmallHashMap<Key, int> map(8);
  EXPECT_TRUE(map.Insert({1}, &x));
  EXPECT_TRUE(map.Insert({2}, &y));
  EXPECT_EQ(map.Find({1}), &x);
  EXPECT_EQ(map.Find({2}), &y);
  EXPECT_EQ(map.Find({3}), nullptr);
  EXPECT_EQ(map.Find({0}), nullptr);
  EXPECT_EQ(map.size(), 2u);
}

TEST(SmallHashMap, AnInsertOfAKnownKeyReplaces) {
  int x = 0, y = 0;
  SmallHashMap<Key, int> map(1);
  EXPECT_TRUE(map.Insert({1}, &x));
  EXPECT_TRUE(map.Insert({1}, &y));
  EXPECT_EQ(map.Find({1}), &y);
  EXPECT_EQ(map.size(), 1u);
}

TEST(SmallHashMap, HasRoomForItsCapacityAndRefusesMore) {
  for (size_t asked : {0u, 1u, 3u, 4u, 7u, 100u, 1000u}) {
    SCOPED_TRACE(asked);
    int x = 0;
    SmallHashMap<Key, int> map(asked);
    ASSERT_GE(map.capacity(), asked);
    for (uint64_t i = 0; i < map.capacity(); ++i) ASSERT_TRUE(map.Insert({i}, &x));
    EXPECT_FALSE(map.Insert({map.capacity()}, &x));
    EXPECT_TRUE(map.Insert({0}, &x)) << "a known key needs no room";
    EXPECT_EQ(map.Find({map.capacity()}), nullptr);
  }
}

TEST(SmallHashMap, GrowsOnlyWhenAskedAndKeepsEverything) {
  std::vector<int> values(500);
  SmallHashMap<Key, int> map(2);
  for (uint64_t i = 0; i < values.size(); ++i) {
    map.Reserve(i + 1);
    ASSERT_TRUE(map.Insert({i}, &values[i]));
  }
  for (uint64_t i = 0; i < values.size(); ++i) EXPECT_EQ(map.Find({i}), &values[i]);
  const size_t bytes = map.memory_bytes();
  map.Reserve(10);
  EXPECT_EQ(map.memory_bytes(), bytes);
}

TEST(SmallHashMap, ErasingOfAnUnknownKeyChangesNothing) {
  int x = 0;
  SmallHashMap<Key, int> map(4);
  map.Insert({1}, &x);
  EXPECT_EQ(map.Erase({2}), nullptr);
  EXPECT_EQ(map.size(), 1u);
}

// Random operations beside std::map, checked whole after each.
template <typename TestedKey>
void BehavesAsAMap(uint64_t key_space) {
  std::mt19937_64 random(1);
  std::vector<int> values(64);
  SmallHashMap<TestedKey, int> map(12);
  std::map<uint64_t, int*> model;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t key = random() % key_space;
    int* value = &values[random() % values.size()];
    if (random() % 2 == 0) {
      const bool fits = model.contains(key) || model.size() < map.capacity();
      ASSERT_EQ(map.Insert({key}, value), fits) << "step " << step;
      if (fits) model[key] = value;
    } else {
      int* expected = model.contains(key) ? model[key] : nullptr;
      ASSERT_EQ(map.Erase({key}), expected) << "step " << step;
      model.erase(key);
    }
    ASSERT_EQ(map.size(), model.size());
    for (uint64_t k = 0; k < key_space; ++k) {
      ASSERT_EQ(map.Find({k}), model.contains(k) ? model[k] : nullptr) << "step " << step;
    }
  }
}

TEST(SmallHashMap, BehavesAsAMapUnderRandomOperations) { BehavesAsAMap<Key>(24); }

TEST(SmallHashMap, BehavesAsAMapWhenEveryKeyCollidesAndWraps) { BehavesAsAMap<CollidingKey>(24); }

}  // namespace
}  // namespace xtreme::base
