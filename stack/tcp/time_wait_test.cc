// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/time_wait.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

using base::kNever;
using base::Nanoseconds;
using base::Seconds;
using Verdict = TimeWait::Verdict;

constexpr TimeWait::Options kOptions{.capacity = 3, .duration = Seconds(60)};
constexpr Seq kSndNxt(5000);
constexpr Seq kRcvNxt(0xFFFFFFFE);
constexpr uint32_t kTsRecent = 0xFFFFFFF0;

FlowKey Key(uint16_t port) {
  return FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 80},
                     {wire::Ipv4Address(198, 51, 100, 7), port}, 0);
}

class TimeWaitTest : public testing::Test {
 protected:
  TimeWaitRecord& Enter(uint16_t port, Nanoseconds now, bool timestamps = false) {
    TimeWaitRecord& record = table_.Enter(Key(port), now);
    record.snd_nxt = kSndNxt;
    record.rcv_nxt = kRcvNxt;
    record.timestamps = timestamps;
    record.ts_recent = kTsRecent;
    return record;
  }

  // A segment `offset` from RCV.NXT.
  Verdict Arrives(uint16_t port, uint8_t flags, int32_t offset, uint16_t payload_bytes = 0,
                  Nanoseconds now = Seconds(11)) {
    wire::TcpSegment segment;
    segment.sequence = (kRcvNxt + static_cast<uint32_t>(offset)).value();
    segment.flags = flags;
    segment.payload_bytes = payload_bytes;
    return table_.OnSegment(*table_.Find(Key(port)), segment, now);
  }

  TimeWait table_{kOptions};
};

TEST_F(TimeWaitTest, ARecordLeavesWhenItsTimeIsOver) {
  EXPECT_EQ(table_.NextDeadline(), kNever);
  Enter(1, Seconds(10));
  Enter(2, Seconds(20));
  EXPECT_EQ(table_.NextDeadline(), Seconds(70));
  table_.Expire(Seconds(69), 100);
  EXPECT_NE(table_.Find(Key(1)), nullptr);
  table_.Expire(Seconds(70), 100);
  EXPECT_EQ(table_.Find(Key(1)), nullptr);
  EXPECT_NE(table_.Find(Key(2)), nullptr);
  EXPECT_EQ(table_.counters().expired, 1u);
}

TEST_F(TimeWaitTest, NoMoreLeaveAtOnceThanWasAsked) {
  for (int port = 1; port <= 3; ++port) Enter(port, Seconds(10));
  table_.Expire(Seconds(70), 2);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.NextDeadline(), Seconds(70));
  table_.Expire(Seconds(70), 2);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TimeWaitTest, AFullTableGivesUpItsOldest) {
  for (uint16_t port = 1; port <= 4; ++port) Enter(port, Seconds(port));
  EXPECT_EQ(table_.Find(Key(1)), nullptr);
  EXPECT_NE(table_.Find(Key(2)), nullptr);
  EXPECT_EQ(table_.counters().evicted, 1u);
  EXPECT_EQ(table_.size(), 3u);
}

TEST_F(TimeWaitTest, TheSameFlowHasOneRecord) {
  Enter(1, Seconds(1), true);
  TimeWaitRecord& again = table_.Enter(Key(1), Seconds(5));
  EXPECT_FALSE(again.timestamps);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.NextDeadline(), Seconds(65));
}

TEST_F(TimeWaitTest, TheFinAgainIsAnsweredAndTheWaitBeginsAgain) {
  Enter(1, Seconds(10));
  Enter(2, Seconds(11));
  EXPECT_EQ(Arrives(1, wire::kTcpFin | wire::kTcpAck, -1, 0, Seconds(30)), Verdict::kAcknowledge);
  EXPECT_EQ(table_.NextDeadline(), Seconds(71));
  table_.Expire(Seconds(71), 100);
  EXPECT_NE(table_.Find(Key(1)), nullptr);
}

TEST_F(TimeWaitTest, OldDataIsAnsweredAndTheWaitGoesOn) {
  Enter(1, Seconds(10));
  EXPECT_EQ(Arrives(1, wire::kTcpAck, -100, 100), Verdict::kAcknowledge);
  EXPECT_EQ(Arrives(1, wire::kTcpAck, -100), Verdict::kAcknowledge);
  EXPECT_EQ(Arrives(1, wire::kTcpSyn | wire::kTcpAck, -100), Verdict::kAcknowledge);
  EXPECT_EQ(table_.NextDeadline(), Seconds(70));
  EXPECT_EQ(table_.counters().acknowledged, 3u);
}

TEST_F(TimeWaitTest, ASynWithAcknowledgementIsNoNewIncarnation) {
  Enter(1, Seconds(10));
  EXPECT_EQ(Arrives(1, wire::kTcpSyn | wire::kTcpAck, 10), Verdict::kAcknowledge);
  EXPECT_NE(table_.Find(Key(1)), nullptr);
}

TEST_F(TimeWaitTest, ThePeersLastAcknowledgementIsNotAnswered) {
  Enter(1, Seconds(10));
  EXPECT_EQ(Arrives(1, wire::kTcpAck, 0), Verdict::kIgnore);
}

TEST_F(TimeWaitTest, AResetDoesNotEndTheWait) {
  Enter(1, Seconds(10));
  EXPECT_EQ(Arrives(1, wire::kTcpRst, 0), Verdict::kIgnore);
  EXPECT_EQ(Arrives(1, wire::kTcpRst | wire::kTcpSyn, 10), Verdict::kIgnore);
  EXPECT_NE(table_.Find(Key(1)), nullptr);
  EXPECT_EQ(table_.counters().resets_ignored, 2u);
}

TEST_F(TimeWaitTest, ANewerSynTakesThePlaceAndAnOlderOneIsAnswered) {
  Enter(1, Seconds(10));
  EXPECT_EQ(Arrives(1, wire::kTcpSyn, -1), Verdict::kAcknowledge);
  EXPECT_NE(table_.Find(Key(1)), nullptr);
  EXPECT_EQ(Arrives(1, wire::kTcpSyn, 0), Verdict::kReuse);
  ASSERT_NE(table_.Find(Key(1)), nullptr) << "nobody has taken the SYN yet";
  EXPECT_EQ(table_.counters().reused, 0u);
  table_.Reuse(*table_.Find(Key(1)));
  EXPECT_EQ(table_.Find(Key(1)), nullptr);
  EXPECT_EQ(table_.counters().reused, 1u);
}

// The cases of RFC 6191 section 2.
TEST(IsNewerIncarnation, FollowsTheRfc) {
  struct Row {
    const char* name;
    bool had_timestamps;
    int32_t sequence;                  // relative to RCV.NXT
    std::optional<int32_t> timestamp;  // relative to TS.Recent
    bool newer;
  };
  for (const Row& row : {
           Row{"both with, later timestamp", true, -1000, 1, true},
           Row{"both with, later across the wrap", true, -1000, 100, true},
           Row{"both with, equal timestamp, later sequence", true, 5, 0, true},
           Row{"both with, equal timestamp, older sequence", true, -5, 0, false},
           Row{"both with, older timestamp, later sequence", true, 5, -1, false},
           Row{"only the old one, later sequence", true, 0, std::nullopt, true},
           Row{"only the old one, older sequence", true, -1, std::nullopt, false},
           Row{"only the new one", false, -5, 0, true},
           Row{"neither, later sequence", false, 0, std::nullopt, true},
           Row{"neither, older sequence", false, -1, std::nullopt, false},
       }) {
    TimeWaitRecord record;
    record.rcv_nxt = kRcvNxt;
    record.ts_recent = kTsRecent;
    record.timestamps = row.had_timestamps;
    std::optional<uint32_t> timestamp;
    if (row.timestamp) timestamp = kTsRecent + static_cast<uint32_t>(*row.timestamp);
    EXPECT_EQ(IsNewerIncarnation(record, kRcvNxt + static_cast<uint32_t>(row.sequence), timestamp),
              row.newer)
        << row.name;
  }
}

}  // namespace
}  // namespace xtreme::tcp
