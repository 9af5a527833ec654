// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_lane.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

namespace xtreme::engine {
namespace {

constexpr uint16_t kRing = 7;
constexpr Handle kPrepared = MakeHandle(kRing, /*place=*/5, /*generation=*/9);

// The test is the owner too.
struct RingLaneTest : ::testing::Test {
  // What stands before the lane, if anything does, and then `most` of what it holds.
  std::vector<uint64_t> Take(uint32_t most = Lane::kCapacity) {
    std::vector<uint64_t> values;
    if (mailbox->HasEntry()) values.push_back(mailbox->TakeEntry().value);
    if (mailbox->knocked()) mailbox->TakeKnock();
    lane.lane().Drain(most, [&](const LaneEntry& entry) { values.push_back(entry.value); });
    return values;
  }

  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>(*Waiter::Create());
  RingLane lane{mailbox, kRing};
};

using Values = std::vector<uint64_t>;

TEST_F(RingLaneTest, WhatComesAloneStandsBeforeTheLane) {
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(lane.Post(i), 0);
    EXPECT_TRUE(mailbox->HasEntry());
    EXPECT_FALSE(mailbox->knocked());
    EXPECT_TRUE(lane.lane().empty());
    EXPECT_EQ(Take(), Values{i});
  }
}

TEST_F(RingLaneTest, WhatFollowsIsInItWithAKnock) {
  ASSERT_EQ(lane.Post(1), 0);
  ASSERT_EQ(lane.Post(2), 0);
  EXPECT_TRUE(mailbox->knocked());
  EXPECT_EQ(Take(), (Values{1, 2}));
}

TEST_F(RingLaneTest, NothingPassesWhatTheLaneStillHolds) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(lane.Post(i), 0);
  EXPECT_EQ(Take(/*most=*/1), (Values{0, 1}));
  ASSERT_EQ(lane.Post(3), 0);
  EXPECT_FALSE(mailbox->HasEntry());
  EXPECT_EQ(Take(), (Values{2, 3}));
  ASSERT_EQ(lane.Post(4), 0);
  EXPECT_TRUE(mailbox->HasEntry()) << "the lane is empty again";
}

TEST_F(RingLaneTest, WhatAnotherLaneLeftIsNotWrittenOver) {
  RingLane other(mailbox, kRing);
  ASSERT_EQ(other.Post(1), 0);
  ASSERT_EQ(lane.Post(2), 0);
  EXPECT_EQ(Take(), (Values{1, 2}));
  EXPECT_TRUE(other.lane().empty());
}

TEST_F(RingLaneTest, OnesThatMayWaitAreAsManyWhereverTheFirstStands) {
  for (int lap = 0; lap < 3; ++lap) {
    for (uint64_t i = 0; i < Lane::kCapacity; ++i) ASSERT_EQ(lane.Post(i), 0) << i;
    EXPECT_EQ(lane.Post(0), EAGAIN);
    EXPECT_EQ(Take().size(), Lane::kCapacity);
  }
  mailbox->Knock();  // None can stand before it.
  for (uint64_t i = 0; i < Lane::kCapacity; ++i) ASSERT_EQ(lane.Post(i), 0) << i;
  EXPECT_EQ(lane.Post(0), EAGAIN);
  EXPECT_EQ(Take().size(), Lane::kCapacity);
}

TEST_F(RingLaneTest, OneThatIsClosedTakesNothing) {
  lane.Close();
  EXPECT_TRUE(lane.closed());
  EXPECT_EQ(lane.Post(1), EPIPE);
  EXPECT_EQ(lane.Fire(kPrepared, 1, 0), EPIPE);
  EXPECT_EQ(Take(), Values{});
}

TEST_F(RingLaneTest, NorDoesOneOfAClosedRing) {
  mailbox->Close();
  EXPECT_FALSE(lane.closed());
  EXPECT_EQ(lane.Post(1), EPIPE);
  EXPECT_EQ(Take(), Values{});
}

TEST_F(RingLaneTest, AFireNamesItsSendAndHowInOneWord) {
  for (const uint32_t flags : {0u, 1u, 0x7fu}) {
    ASSERT_EQ(lane.Fire(kPrepared, /*cookie=*/~uint64_t{0}, flags), 0);
    ASSERT_TRUE(mailbox->HasEntry()) << flags;
    const LaneEntry entry = mailbox->TakeEntry();
    EXPECT_EQ(entry.value, ~uint64_t{0});
    EXPECT_EQ(RingLane::HandleOf(entry.work, kRing), kPrepared);
    EXPECT_EQ(RingLane::FlagsOf(entry.work), flags);
  }
}

TEST_F(RingLaneTest, FlagsForWhichThereIsNoRoomBeforeTheLaneAreInIt) {
  constexpr uint32_t kFlags = 0x80;
  ASSERT_EQ(lane.Fire(kPrepared, 1, kFlags), 0);
  EXPECT_FALSE(mailbox->HasEntry());
  EXPECT_TRUE(mailbox->knocked());
  uint64_t work = 0;
  lane.lane().Drain(1, [&](const LaneEntry& entry) { work = entry.work; });
  EXPECT_EQ(RingLane::HandleOf(work, kRing), kPrepared);
  EXPECT_EQ(RingLane::FlagsOf(work), kFlags);
}

TEST_F(RingLaneTest, OfAnotherRingNothingIsFired) {
  EXPECT_EQ(lane.Fire(MakeHandle(kRing + 1, 5, 9), 1, 0), EBADF);
  EXPECT_EQ(Take(), Values{});
}

}  // namespace
}  // namespace xtreme::engine
