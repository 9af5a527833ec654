// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/tail_loss_probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace xtreme::tcp {
namespace {

using base::Milliseconds;
using base::Seconds;

constexpr Seq kFirst(0xFFFFFF00);

class TailLossProbeTest : public testing::Test {
 protected:
  void TearDown() override {
    queue_.Cancel([](const Segment&) {});
  }

  void Send(int segments) {
    for (int i = 0; i < segments; ++i) {
      queue_.MarkSent(*queue_.Append({.bytes = memory_, .length = 100}), Seconds(1), false);
    }
  }

  // A probe that retransmitted the last of what is outstanding.
  void ProbeAgain() { probe_.OnSent(queue_.nxt(), true); }

  uint8_t memory_[100] = {};
  SegmentPool segments_{8};
  SegmentQueue queue_{segments_, kFirst};
  TailLossProbe probe_;
};

TEST_F(TailLossProbeTest, RunsOnlyWhileAllIsWellAndSomethingIsOutstanding) {
  EXPECT_FALSE(probe_.MayRun(queue_, true, false));
  Send(2);
  EXPECT_TRUE(probe_.MayRun(queue_, true, false));
  EXPECT_FALSE(probe_.MayRun(queue_, false, false)) << "without SACK";
  EXPECT_FALSE(probe_.MayRun(queue_, true, true)) << "in recovery";
  queue_.MarkSacked(*queue_.last());
  EXPECT_FALSE(probe_.MayRun(queue_, true, false)) << "RACK has something to work with";
  queue_.ClearSacked(*queue_.last());
  queue_.MarkLost(*queue_.first());
  EXPECT_FALSE(probe_.MayRun(queue_, true, false));
  queue_.ClearLost(*queue_.first());
  ProbeAgain();
  EXPECT_FALSE(probe_.MayRun(queue_, true, false)) << "one probe at a time";
  probe_.Cancel();
  EXPECT_TRUE(probe_.MayRun(queue_, true, false));
}

TEST_F(TailLossProbeTest, WaitsTwoRoundTripsAndForADelayedAcknowledgementOfOneSegment) {
  TailLossProbe::Times times{.now = Seconds(10),
                             .srtt = Milliseconds(20),
                             .max_ack_delay = Milliseconds(30),
                             .rto_deadline = Seconds(20)};
  Send(1);
  EXPECT_EQ(TailLossProbe::Deadline(queue_, times), Seconds(10) + Milliseconds(70));
  Send(1);
  EXPECT_EQ(TailLossProbe::Deadline(queue_, times), Seconds(10) + Milliseconds(40));
  times.rto_deadline = Seconds(10) + Milliseconds(35);
  EXPECT_EQ(TailLossProbe::Deadline(queue_, times), times.rto_deadline);
  times = {.now = Seconds(10), .rto_deadline = Seconds(20)};
  EXPECT_EQ(TailLossProbe::Deadline(queue_, times), Seconds(11)) << "no round trip known";
}

TEST_F(TailLossProbeTest, ANewDataProbeRepairsNothing) {
  Send(2);
  probe_.OnSent(queue_.nxt(), false);
  EXPECT_FALSE(probe_.OnAck({.ack = queue_.nxt() - 1u, .advances = true}));
  EXPECT_TRUE(probe_.outstanding());
  EXPECT_FALSE(probe_.OnAck({.ack = queue_.nxt(), .advances = true}));
  EXPECT_FALSE(probe_.outstanding());
}

TEST_F(TailLossProbeTest, ADsackOfTheProbeSaysThatNothingWasLost) {
  Send(2);
  ProbeAgain();
  const Seq end = queue_.nxt();
  EXPECT_FALSE(probe_.OnAck(
      {.ack = end, .dsack = wire::SackBlock{(end - 100u).value(), end.value()}, .advances = true}));
  EXPECT_FALSE(probe_.outstanding());
}

TEST_F(TailLossProbeTest, AnAcknowledgementBeyondTheProbeSaysThatItRepairedALoss) {
  Send(2);
  ProbeAgain();
  const Seq end = queue_.nxt();
  EXPECT_FALSE(probe_.OnAck({.ack = end, .advances = true})) << "not told apart yet";
  EXPECT_TRUE(probe_.outstanding());
  Send(1);
  EXPECT_TRUE(probe_.OnAck({.ack = end + 100, .advances = true}));
  EXPECT_FALSE(probe_.outstanding());
}

TEST_F(TailLossProbeTest, ADuplicateWithoutSackSaysThatTheFirstCopyArrived) {
  Send(2);
  ProbeAgain();
  const Seq end = queue_.nxt();
  EXPECT_FALSE(probe_.OnAck({.ack = end, .has_sack = true}));
  EXPECT_TRUE(probe_.outstanding());
  EXPECT_FALSE(probe_.OnAck({.ack = end}));
  EXPECT_FALSE(probe_.outstanding());
}

}  // namespace
}  // namespace xtreme::tcp
