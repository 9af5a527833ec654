// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/syn_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::tcp {
namespace {

using base::kNever;
using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;

constexpr SynQueue::Options kOptions{.capacity = 4, .resend_after = Seconds(1), .resends = 2};

FlowKey Key(uint16_t port) {
  return FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 80},
                     {wire::Ipv4Address(198, 51, 100, 7), port}, 0);
}

class SynQueueTest : public testing::Test {
 protected:
  // The ports of those to be answered again, and negative those given up.
  std::vector<int> Expire(Nanoseconds now, uint32_t most = 100) {
    std::vector<int> ports;
    queue_.Expire(
        now, most, [&](SynRecord& record) { ports.push_back(record.key.remote().port); },
        [&](const SynRecord& record) { ports.push_back(-record.key.remote().port); });
    return ports;
  }

  SynQueue queue_{kOptions};
};

TEST_F(SynQueueTest, FindsWhatItHoldsUntilItIsRemoved) {
  EXPECT_EQ(queue_.Find(Key(1)), nullptr);
  SynRecord* const record = queue_.Insert(Key(1), Seconds(1));
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(queue_.Find(Key(1)), record);
  queue_.Remove(*record);
  EXPECT_EQ(queue_.Find(Key(1)), nullptr);
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_EQ(queue_.NextDeadline(), kNever);
}

TEST_F(SynQueueTest, ANewRecordRemembersNothingOfTheOldOne) {
  SynRecord* const record = queue_.Insert(Key(1), Seconds(1));
  record->window_scale = 7;
  record->sack_permitted = true;
  Expire(Seconds(2));
  queue_.Remove(*record);
  SynRecord* const again = queue_.Insert(Key(2), Seconds(5));
  EXPECT_EQ(again, record);
  EXPECT_FALSE(again->window_scale || again->sack_permitted);
  EXPECT_EQ(again->resends, 0);
  EXPECT_EQ(again->mss, 536);
  EXPECT_EQ(again->deadline, Seconds(6));
}

TEST_F(SynQueueTest, IsFullAtItsCapacityAndCountsIt) {
  for (uint16_t port = 1; port <= 4; ++port)
    EXPECT_NE(queue_.Insert(Key(port), Seconds(1)), nullptr);
  EXPECT_TRUE(queue_.full());
  EXPECT_EQ(queue_.Insert(Key(5), Seconds(1)), nullptr);
  EXPECT_EQ(queue_.counters().full, 1u);
  queue_.Remove(*queue_.Find(Key(3)));
  EXPECT_NE(queue_.Insert(Key(5), Seconds(1)), nullptr);
  for (uint16_t port : {1, 2, 4, 5}) EXPECT_NE(queue_.Find(Key(port)), nullptr) << port;
}

TEST_F(SynQueueTest, AnswersAgainAfterTimesThatDoubleAndThenGivesUp) {
  queue_.Insert(Key(1), Seconds(10));
  EXPECT_EQ(queue_.NextDeadline(), Seconds(11));
  EXPECT_EQ(Expire(Milliseconds(10'999)), std::vector<int>{});
  EXPECT_EQ(Expire(Seconds(11)), std::vector<int>{1});
  EXPECT_EQ(queue_.NextDeadline(), Seconds(13));
  EXPECT_EQ(Expire(Seconds(13)), std::vector<int>{1});
  EXPECT_EQ(queue_.NextDeadline(), Seconds(17));
  EXPECT_EQ(Expire(Seconds(17)), std::vector<int>{-1});
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_EQ(queue_.counters().resent, 2u);
  EXPECT_EQ(queue_.counters().given_up, 1u);
}

// Longer than it would without an acknowledgement.
TEST_F(SynQueueTest, OneThatWaitsForDataAnswersAgainWithTheLastOfItsTimersOnly) {
  SynRecord* const record = queue_.Insert(Key(1), Seconds(10));
  queue_.Defer(*record, 4, Milliseconds(10'030));
  EXPECT_EQ(record->acknowledged_after, Milliseconds(30));
  for (const int64_t quiet : {11, 13, 17}) EXPECT_EQ(Expire(Seconds(quiet)), std::vector<int>{});
  queue_.Defer(*record, 4, Seconds(18));
  EXPECT_EQ(record->acknowledged_after, Milliseconds(30));
  EXPECT_EQ(Expire(Seconds(25)), std::vector<int>{1});
  EXPECT_EQ(Expire(Seconds(41)), std::vector<int>{-1});
  EXPECT_EQ(queue_.counters().deferred, 1u);
  EXPECT_EQ(queue_.counters().resent, 1u);
}

// Karn: of two SYN-ACKs nobody knows which was acknowledged.
TEST_F(SynQueueTest, OneThatWasAnsweredTwiceBeforeItWaitsForDataIsNotMeasured) {
  SynRecord* const resent = queue_.Insert(Key(1), Seconds(10));
  EXPECT_EQ(Expire(Seconds(11)), std::vector<int>{1});
  queue_.Defer(*resent, 4, Milliseconds(11'030));
  EXPECT_EQ(resent->acknowledged_after, Nanoseconds(0));
  SynRecord* const asked_again = queue_.Insert(Key(2), Seconds(12));
  asked_again->answered_again = true;
  queue_.Defer(*asked_again, UINT8_MAX, Milliseconds(12'030));
  EXPECT_EQ(asked_again->acknowledged_after, Nanoseconds(0));
  EXPECT_EQ(asked_again->deferrals, SynQueue::kMaxResends);
}

TEST_F(SynQueueTest, TheNextDeadlineIsTheEarliestOfAll) {
  queue_.Insert(Key(1), Seconds(10));
  Expire(Seconds(11));  // 1 waits until 13
  queue_.Insert(Key(2), Milliseconds(11'500));
  queue_.Insert(Key(3), Milliseconds(12'500));
  EXPECT_EQ(queue_.NextDeadline(), Milliseconds(12'500));
  EXPECT_EQ(Expire(Seconds(13)), (std::vector<int>{2, 1}));
  EXPECT_EQ(queue_.NextDeadline(), Milliseconds(13'500));
}

TEST_F(SynQueueTest, AnOlderSynMayBeDueBeforeANewerOne) {
  queue_.Insert(Key(1), Seconds(10));
  Expire(Seconds(11));  // 1 waits until 13
  queue_.Insert(Key(2), Milliseconds(12'500));
  EXPECT_EQ(queue_.NextDeadline(), Seconds(13));
}

TEST_F(SynQueueTest, AListenersRecordsLeaveWithIt) {
  for (uint16_t port = 1; port <= 4; ++port)
    queue_.Insert(Key(port), Seconds(1))->listener = port % 2;
  queue_.RemoveIf([](const SynRecord& record) { return record.listener == 1; });
  EXPECT_EQ(queue_.size(), 2u);
  EXPECT_EQ(queue_.Find(Key(1)), nullptr);
  EXPECT_NE(queue_.Find(Key(2)), nullptr);
  EXPECT_EQ(Expire(Seconds(2)), (std::vector<int>{2, 4}));
}

TEST_F(SynQueueTest, NoMoreExpireAtOnceThanWasAsked) {
  for (int port = 1; port <= 3; ++port) queue_.Insert(Key(port), Seconds(10));
  EXPECT_EQ(Expire(Seconds(11), 2), (std::vector<int>{1, 2}));
  EXPECT_LE(queue_.NextDeadline(), Seconds(11));
  EXPECT_EQ(Expire(Seconds(11), 2), std::vector<int>{3});
  EXPECT_EQ(queue_.NextDeadline(), Seconds(13));
}

TEST_F(SynQueueTest, NoMoreResendsThanThereAreLists) {
  SynQueue many({.capacity = 1, .resend_after = Seconds(1), .resends = 100});
  many.Insert(Key(1), Seconds(0));
  size_t resends = 0;
  for (int64_t now = 1; many.size() != 0; ++now) {
    many.Expire(
        Seconds(now), 1, [&](SynRecord&) { ++resends; }, [](const SynRecord&) {});
  }
  EXPECT_EQ(resends, SynQueue::kMaxResends);
}

}  // namespace
}  // namespace xtreme::tcp
