// SPDX-License-Identifier: Apache-2.0
#include "stack/base/keyed_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "stack/base/small_hash_map.h"

namespace xtreme::base {
namespace {

struct Object {
  uint64_t key = 0;
};

struct Key {
  uint64_t value = 0;
  static Key Of(const Object& object) { return {object.key}; }
  bool operator==(const Key&) const = default;
  uint64_t Hash() const { return MixBits(value); }
};

// Every key wants one of two neighbouring slots at the end of the table, and the bits that a slot
// keeps are the same of all: each probe looks at an object, and they wrap.
struct CollidingKey {
  uint64_t value = 0;
  static CollidingKey Of(const Object& object) { return {object.key}; }
  bool operator==(const CollidingKey&) const = default;
  uint64_t Hash() const { return ~uint64_t{0} - value % 2; }
};

TEST(KeyedSet, FindsWhatWasInsertedAndNothingElse) {
  Object one{1}, two{2};
  KeyedSet<Key, Object> set(8);
  EXPECT_TRUE(set.Insert(&one));
  EXPECT_TRUE(set.Insert(&two));
  EXPECT_EQ(set.Find({1}), &one);
  EXPECT_EQ(set.Find({2}), &two);
  EXPECT_EQ(set.Find({3}), nullptr);
  EXPECT_EQ(set.Find({0}), nullptr);
  EXPECT_EQ(set.size(), 2u);
}

#if !defined(NDEBUG)
TEST(KeyedSetDeathTest, AnAddressThatASlotCannotHoldIsSeen) {
  KeyedSet<Key, Object> set(8);
  EXPECT_DEATH(set.Insert(reinterpret_cast<Object*>(uint64_t{1} << 48)), "48 bits");
}
#endif

TEST(KeyedSet, AnObjectOfAKnownKeyReplaces) {
  Object one{1}, other{1};
  KeyedSet<Key, Object> set(1);
  EXPECT_TRUE(set.Insert(&one));
  EXPECT_TRUE(set.Insert(&other));
  EXPECT_EQ(set.Find({1}), &other);
  EXPECT_EQ(set.size(), 1u);
}

TEST(KeyedSet, HasRoomForItsCapacityAndRefusesMore) {
  for (size_t asked : {0u, 1u, 3u, 4u, 7u, 100u, 1000u}) {
    SCOPED_TRACE(asked);
    KeyedSet<Key, Object> set(asked);
    ASSERT_GE(set.capacity(), asked);
    std::vector<Object> objects(set.capacity() + 1);
    for (size_t i = 0; i < objects.size(); ++i) objects[i].key = i;
    for (size_t i = 0; i < set.capacity(); ++i) ASSERT_TRUE(set.Insert(&objects[i]));
    EXPECT_FALSE(set.Insert(&objects.back()));
    EXPECT_TRUE(set.Insert(&objects[0])) << "a known key needs no room";
    EXPECT_EQ(set.Find({objects.back().key}), nullptr);
  }
}

TEST(KeyedSet, GrowsOnlyWhenAskedAndKeepsEverything) {
  std::vector<Object> objects(500);
  KeyedSet<Key, Object> set(2);
  for (uint64_t i = 0; i < objects.size(); ++i) {
    objects[i].key = i;
    set.Reserve(i + 1);
    ASSERT_TRUE(set.Insert(&objects[i]));
  }
  for (Object& object : objects) EXPECT_EQ(set.Find({object.key}), &object);
  const size_t bytes = set.memory_bytes();
  EXPECT_EQ(bytes, 1024 * sizeof(void*));
  set.Reserve(10);
  EXPECT_EQ(set.memory_bytes(), bytes);
}

// Random operations beside std::map, checked whole after each.
template <typename TestedKey>
void BehavesAsASet(uint64_t key_space) {
  std::mt19937_64 random(1);
  std::vector<Object> objects(64);
  for (size_t i = 0; i < objects.size(); ++i) objects[i].key = i % key_space;
  KeyedSet<TestedKey, Object> set(12);
  std::map<uint64_t, Object*> model;
  for (int step = 0; step < 20'000; ++step) {
    Object* object = &objects[random() % objects.size()];
    if (random() % 2 == 0) {
      const bool fits = model.contains(object->key) || model.size() < set.capacity();
      ASSERT_EQ(set.Insert(object), fits) << "step " << step;
      if (fits) model[object->key] = object;
    } else {
      set.Erase({object->key});
      model.erase(object->key);
    }
    ASSERT_EQ(set.size(), model.size());
    for (uint64_t k = 0; k < key_space; ++k) {
      ASSERT_EQ(set.Find({k}), model.contains(k) ? model[k] : nullptr) << "step " << step;
    }
  }
}

TEST(KeyedSet, BehavesAsASetUnderRandomOperations) { BehavesAsASet<Key>(24); }

TEST(KeyedSet, BehavesAsASetWhenEveryKeyCollidesAndWraps) { BehavesAsASet<CollidingKey>(24); }

}  // namespace
}  // namespace xtreme::base
