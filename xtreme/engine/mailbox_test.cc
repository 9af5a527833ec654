// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace xtreme::engine {
namespace {

struct MailboxTest : ::testing::Test {
  Mailbox mailbox{*Waiter::Create()};
};

constexpr uint64_t kAllWork = (uint64_t{1} << 55) - 1;

TEST_F(MailboxTest, AnEntryStandsWhereTheOwnerLooks) {
  EXPECT_EQ(mailbox.waiting(), 0u);
  for (const LaneEntry& left : {LaneEntry{}, LaneEntry{~uint64_t{0}, kAllWork}, LaneEntry{5, 6}}) {
    ASSERT_TRUE(mailbox.LeaveAtDoor(left));
    EXPECT_NE(mailbox.waiting() >> 23, 0u);
    EXPECT_TRUE(mailbox.HasEntry());
    EXPECT_FALSE(mailbox.knocked());
    EXPECT_FALSE(mailbox.LeaveAtDoor({1, 2})) << "there is one";
    const LaneEntry taken = mailbox.TakeEntry();
    EXPECT_EQ(taken.value, left.value);
    EXPECT_EQ(taken.work, left.work);
    EXPECT_EQ(mailbox.waiting(), 0u);
  }
}

TEST_F(MailboxTest, NoEntryStandsBesideAKnockThatWasBefore) {
  mailbox.Knock();
  EXPECT_TRUE(mailbox.knocked());
  EXPECT_FALSE(mailbox.HasEntry());
  EXPECT_FALSE(mailbox.LeaveAtDoor({1, 2}));
  mailbox.TakeKnock();
  EXPECT_TRUE(mailbox.LeaveAtDoor({1, 2}));
}

TEST_F(MailboxTest, AKnockBesideAnEntryStays) {
  ASSERT_TRUE(mailbox.LeaveAtDoor({1, kAllWork}));
  mailbox.Knock();
  EXPECT_TRUE(mailbox.HasEntry());
  EXPECT_EQ(mailbox.TakeEntry().work, kAllWork);
  EXPECT_TRUE(mailbox.knocked());
  EXPECT_FALSE(mailbox.HasEntry());
  mailbox.TakeKnock();
  EXPECT_EQ(mailbox.waiting(), 0u);
}

TEST_F(MailboxTest, WorkThatDoesNotFitGoesAnotherWay) {
  EXPECT_FALSE(mailbox.LeaveAtDoor({1, kAllWork + 1}));
  EXPECT_EQ(mailbox.waiting(), 0u);
}

TEST_F(MailboxTest, ANoticeComesWithAKnockAndWakesWhoSleeps) {
  mailbox.waiter().Arm(base::kNever);
  mailbox.Push(MakeNotice([](Ring&) {}));
  EXPECT_TRUE(mailbox.knocked());
  EXPECT_TRUE(mailbox.inbox().HasAny());
  EXPECT_TRUE(mailbox.waiter().Sleep(base::kNever));
}

TEST_F(MailboxTest, WhatIsPushedToAClosedOneEndsAtOnce) {
  mailbox.Close();
  const auto held = std::make_shared<int>();
  mailbox.Push(MakeNotice([held](Ring&) {}));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(mailbox.waiting(), 0u);
}

TEST_F(MailboxTest, AnEntryWakesWhoSleeps) {
  mailbox.waiter().Arm(base::kNever);
  ASSERT_TRUE(mailbox.LeaveAtDoor({1, 2}));
  EXPECT_TRUE(mailbox.waiter().Sleep(base::kNever));
}

}  // namespace
}  // namespace xtreme::engine
