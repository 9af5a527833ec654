// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/lane.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "xtreme/engine/inbox.h"

namespace xtreme::engine {
namespace {

TEST(LaneTest, FullLaneRefusesAndKeepsOrder) {
  auto lane = std::make_unique<Lane>();
  for (uint64_t i = 0; i < Lane::kCapacity; ++i) ASSERT_TRUE(lane->Push({.value = i}));
  EXPECT_FALSE(lane->Push({}));
  std::vector<uint64_t> taken;
  const auto take = [&](const LaneEntry& entry) { taken.push_back(entry.value); };
  EXPECT_EQ(lane->Drain(2, take), 2u);
  EXPECT_EQ(taken, (std::vector<uint64_t>{0, 1}));
  EXPECT_TRUE(lane->Push({.value = 77}));
  EXPECT_EQ(lane->Drain(Lane::kCapacity, take), Lane::kCapacity - 1);
  EXPECT_EQ(taken.back(), 77u);
  EXPECT_TRUE(lane->empty());
}

// Until something of the lane is taken, which came after it.
TEST(LaneTest, WhatStandsBesideIsOneOfThoseThatMayWait) {
  auto lane = std::make_unique<Lane>();
  const auto take = [](const LaneEntry&) {};
  EXPECT_TRUE(lane->AllTaken());
  lane->CountOneBeside();
  for (uint64_t i = 0; i < Lane::kCapacity - 1; ++i) ASSERT_TRUE(lane->Push({.value = i}));
  EXPECT_FALSE(lane->AllTaken());
  EXPECT_FALSE(lane->Push({}));
  EXPECT_EQ(lane->Drain(1, take), 1u);
  EXPECT_TRUE(lane->Push({}));
  EXPECT_TRUE(lane->Push({})) << "as many as ever";
  EXPECT_FALSE(lane->Push({}));
  EXPECT_EQ(lane->Drain(Lane::kCapacity, take), Lane::kCapacity);
  EXPECT_TRUE(lane->AllTaken());
}

// What stood in a slot the lap before is not there any more, whatever it was.
TEST(LaneTest, AnEntryIsTakenInItsLapAlone) {
  auto lane = std::make_unique<Lane>();
  for (uint64_t i = 0; i < 3 * Lane::kCapacity; ++i) {
    EXPECT_TRUE(lane->empty());
    ASSERT_TRUE(lane->Push({.value = i, .work = i % 3}));
    EXPECT_FALSE(lane->empty());
    uint32_t taken = 0;
    EXPECT_EQ(lane->Drain(Lane::kCapacity,
                          [&](const LaneEntry& entry) {
                            ++taken;
                            EXPECT_EQ(entry.value, i);
                            EXPECT_EQ(entry.work, i % 3);
                          }),
              1u);
    ASSERT_EQ(taken, 1u);
  }
}

TEST(LaneTest, ValuesOfAnotherThreadArriveOnceAndInOrder) {
  constexpr uint64_t kValues = 100'000;
  auto lane = std::make_unique<Lane>();
  std::thread producer([&] {
    for (uint64_t i = 0; i < kValues;) {
      if (lane->Push({.value = i})) ++i;
      else std::this_thread::yield();
    }
  });
  uint64_t expected = 0;
  bool in_order = true;
  while (expected < kValues) {
    const uint32_t taken = lane->Drain(256, [&](const LaneEntry& entry) {
      in_order = in_order && entry.value == expected;
      ++expected;
    });
    if (taken == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_TRUE(in_order);
}

struct Numbered : Notice {
  explicit Numbered(int number) : number(number) {}
  int number;
};

TEST(InboxTest, NoticesOfOneSenderComeOutInOrder) {
  Inbox inbox;
  EXPECT_FALSE(inbox.HasAny());
  for (int i = 0; i < 3; ++i) inbox.Push(std::make_unique<Numbered>(i));
  EXPECT_TRUE(inbox.HasAny());
  std::vector<int> numbers;
  inbox.TakeAll([&](std::unique_ptr<Notice> notice) {
    numbers.push_back(static_cast<Numbered*>(notice.get())->number);
  });
  EXPECT_EQ(numbers, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(inbox.HasAny());
}

TEST(InboxTest, WhatNobodyTookIsFreed) {
  Inbox inbox;
  inbox.Push(std::make_unique<Numbered>(1));  // Address sanitizer would see a leak.
}

TEST(InboxTest, NothingIsLostBetweenThreads) {
  constexpr int kEach = 20'000;
  Inbox inbox;
  auto send = [&] {
    for (int i = 0; i < kEach; ++i) inbox.Push(std::make_unique<Numbered>(i));
  };
  std::thread first(send), second(send);
  int taken = 0;
  while (taken < 2 * kEach) {
    if (!inbox.HasAny()) std::this_thread::yield();
    else inbox.TakeAll([&](std::unique_ptr<Notice>) { ++taken; });
  }
  first.join();
  second.join();
  EXPECT_EQ(taken, 2 * kEach);
}

}  // namespace
}  // namespace xtreme::engine
