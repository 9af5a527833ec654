// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rack.h"

#include <gtest/gtest.h>

#include <string>

namespace xtreme::tcp {
namespace {

using base::kNever;
using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;

constexpr Seq kFirst(0xFFFFFF00);
constexpr Nanoseconds kStart = Seconds(100);

// Times are milliseconds after kStart; segments have 100 bytes and are counted from 0.
class RackTest : public testing::Test {
 protected:
  void TearDown() override {
    queue_.Cancel([](const Segment&) {});
  }

  static Nanoseconds At(int64_t ms) { return kStart + Milliseconds(ms); }

  void Send(int64_t ms) {
    queue_.MarkSent(*queue_.Append({.bytes = memory_, .length = 100}), At(ms), false);
  }
  void SendAgain(int i, int64_t ms) { queue_.MarkSent(Nth(i), At(ms), false); }
  Segment& Nth(int i) {
    Segment* segment = queue_.first();
    while (Distance(kFirst, segment->sequence) != static_cast<uint32_t>(i) * 100) {
      segment = segment->next;
    }
    return *segment;
  }

  std::optional<Nanoseconds> Sack(int i, int64_t ms, std::optional<uint32_t> echo = {}) {
    const auto rtt = rack_.OnDelivered(Nth(i), {.now = At(ms), .echo = echo, .clock = clock_});
    queue_.MarkSacked(Nth(i));
    return rtt;
  }

  Rack::Context Context(int64_t ms, bool in_recovery = false) const {
    return {.now = At(ms), .srtt = Milliseconds(10), .in_recovery = in_recovery};
  }
  // When to look again, in ms after kStart; -1: never.
  int64_t Detect(int64_t ms, bool in_recovery = false) {
    const Nanoseconds deadline = rack_.DetectLosses(queue_, Context(ms, in_recovery));
    return deadline == kNever ? -1 : (deadline - kStart) / Milliseconds(1);
  }

  std::string Marks() const {
    std::string marks;
    for (const Segment* s = queue_.first(); s != nullptr; s = s->next) {
      const bool waits = s->Has(Segment::kLost) && !s->Has(Segment::kRetransmitted);
      marks += s->Has(Segment::kSacked) ? 's' : waits ? 'L' : s->Has(Segment::kLost) ? 'r' : '.';
    }
    return marks;
  }

  uint8_t memory_[100] = {};
  TimestampClock clock_;
  SegmentPool segments_{16};
  SegmentQueue queue_{segments_, kFirst};
  Rack rack_{kFirst};
};

TEST_F(RackTest, NothingIsLostBeforeSomethingSentLaterIsDelivered) {
  for (int i = 0; i < 4; ++i) Send(i);
  EXPECT_EQ(Detect(50), -1);
  EXPECT_EQ(Marks(), "....");
}

TEST_F(RackTest, AnEarlierSegmentIsLostWhenTheReorderingWindowHasPassed) {
  for (int i = 0; i < 4; ++i) Send(i);
  Sack(2, 12);                // round trip 10, a quarter of it to wait
  EXPECT_EQ(Detect(12), 13);  // segment 1: 1 + 10 + 2.5
  EXPECT_EQ(Marks(), "..s.");
  EXPECT_EQ(Detect(13), 13);
  EXPECT_EQ(Marks(), "L.s.");
  EXPECT_EQ(Detect(14), -1);
  EXPECT_EQ(Marks(), "LLs.");
}

TEST_F(RackTest, ThreeSackedSegmentsNeedNoWindow) {
  for (int i = 0; i < 5; ++i) Send(0);
  Sack(1, 10);
  Sack(2, 10);
  EXPECT_EQ(Detect(10), 12);
  EXPECT_EQ(Marks(), ".ss..");
  Sack(3, 10);
  EXPECT_EQ(Detect(10), -1);
  EXPECT_EQ(Marks(), "Lsss.");
}

TEST_F(RackTest, TheOnlySegmentIsDeliveredAsAnyOther) {
  Send(0);
  Send(1);
  Sack(1, 10);
  Detect(20, true);
  SendAgain(0, 21);
  Sack(0, 31);
  Send(19);  // By a clock that was read before: not the latest.
  Rack other = rack_;
  const Segment& only = Nth(2);
  const auto rtt = other.OnDelivered(only, {.now = At(24), .echo = {}, .clock = clock_});
  EXPECT_EQ(rack_.OnOnlyDelivered(only, only.end(), At(24)), rtt);
  rack_.Sample(*rtt, At(24));
  EXPECT_EQ(rack_.min_rtt().value(), other.min_rtt().value());
  queue_.MarkSacked(Nth(2));
  for (int i = 0; i < 3; ++i) Send(40 + i);
  for (Rack* rack : {&rack_, &other}) {
    EXPECT_EQ(rack->OnDelivered(Nth(5), {.now = At(52), .echo = {}, .clock = clock_}),
              Milliseconds(10));
    EXPECT_FALSE(rack->reordering_seen());
    rack->OnDelivered(Nth(4), {.now = At(52), .echo = {}, .clock = clock_});
    EXPECT_TRUE(rack->reordering_seen());
  }
  EXPECT_EQ(rack_.ReorderingWindow(queue_, Context(52)),
            other.ReorderingWindow(queue_, Context(52)));
}

TEST_F(RackTest, InRecoveryThereIsNoWindowUnlessReorderingWasSeen) {
  for (int i = 0; i < 3; ++i) Send(0);
  Sack(1, 10);
  EXPECT_EQ(Detect(10, true), -1);
  EXPECT_EQ(Marks(), "Ls.");
}

TEST_F(RackTest, AfterReorderingTheWindowStaysInRecovery) {
  for (int i = 0; i < 5; ++i) Send(0);
  Sack(3, 10);
  Sack(1, 10);  // below what was delivered, and not a retransmission
  EXPECT_TRUE(rack_.reordering_seen());
  EXPECT_EQ(Detect(10, true), 12);
  EXPECT_EQ(Marks(), ".s.s.");
  EXPECT_EQ(Detect(13, true), -1);
  EXPECT_EQ(Marks(), "LsLs.");
}

TEST_F(RackTest, ALostRetransmissionIsFoundToo) {
  for (int i = 0; i < 6; ++i) Send(0);
  Sack(1, 10);
  Detect(10, true);
  SendAgain(0, 11);
  Send(12);
  EXPECT_EQ(Marks(), "rs.....");
  Sack(6, 22);  // sent after the retransmission
  Detect(22, true);
  EXPECT_EQ(Marks(), "LsLLLLs");
  EXPECT_EQ(queue_.flight().retransmitted, 0u);
}

TEST_F(RackTest, ARetransmissionDeliveredSoonerThanAnyRoundTripWasNotIt) {
  for (int i = 0; i < 4; ++i) Send(0);
  Sack(3, 10);
  Detect(20, true);
  SendAgain(1, 19);
  SendAgain(0, 20);
  EXPECT_EQ(Sack(0, 25), std::nullopt);  // 5 ms, and the least round trip is 10
  Detect(25, true);
  EXPECT_EQ(Marks(), "srLs") << "what was retransmitted at 19 is not judged by it";
}

TEST_F(RackTest, AnEchoFromBeforeTheRetransmissionMeansTheFirstCopy) {
  for (int i = 0; i < 3; ++i) Send(0);
  Sack(2, 10, clock_.At(At(0)));
  SendAgain(0, 20);
  EXPECT_EQ(Sack(0, 40, clock_.At(At(0))), std::nullopt);
  SendAgain(1, 20);
  EXPECT_EQ(Sack(1, 41, clock_.At(At(20))), Milliseconds(21)) << "Karn: told apart by its echo";
}

TEST_F(RackTest, ARoundTripOfARetransmissionIsNoSampleWithoutTimestamps) {
  Send(0);
  Send(0);
  EXPECT_EQ(Sack(0, 10), Milliseconds(10));
  SendAgain(1, 20);
  EXPECT_EQ(Sack(1, 40), std::nullopt);
}

TEST_F(RackTest, DsacksWidenTheWindowOncePerRoundAndSixteenRecoveriesNarrowIt) {
  for (int i = 0; i < 3; ++i) Send(0);
  Sack(1, 8);
  EXPECT_EQ(rack_.ReorderingWindow(queue_, Context(8)), Milliseconds(2));
  rack_.OnAck(true, kFirst, kFirst + 300);
  rack_.OnAck(true, kFirst + 100, kFirst + 400);
  EXPECT_EQ(rack_.reordering_multiplier(), 2u);
  EXPECT_EQ(rack_.ReorderingWindow(queue_, Context(8)), Milliseconds(4));
  rack_.OnAck(true, kFirst + 300, kFirst + 400);
  EXPECT_EQ(rack_.reordering_multiplier(), 3u);
  for (int i = 0; i < 15; ++i) rack_.OnRecoveryEnd();
  EXPECT_EQ(rack_.reordering_multiplier(), 3u);
  rack_.OnRecoveryEnd();
  EXPECT_EQ(rack_.reordering_multiplier(), 1u);
}

TEST_F(RackTest, ADsackKeepsTheWindowWideForSixteenRecoveriesMore) {
  rack_.OnAck(true, kFirst, kFirst + 1);
  for (int i = 0; i < 10; ++i) rack_.OnRecoveryEnd();
  rack_.OnAck(true, kFirst + 1, kFirst + 2);
  for (int i = 0; i < 15; ++i) rack_.OnRecoveryEnd();
  EXPECT_EQ(rack_.reordering_multiplier(), 3u);
}

TEST_F(RackTest, BehindALaterCopyFirstCopiesAreStillJudged) {
  for (int ms : {0, 0, 0, 5}) Send(ms);
  queue_.MarkLost(Nth(0));
  SendAgain(0, 14);
  Sack(3, 15);
  Detect(15, true);
  EXPECT_EQ(Marks(), "rLLs");
}

TEST_F(RackTest, ATimeoutMarksTheFirstSegmentHoweverLateItWasSent) {
  for (int ms : {0, 1, 2}) Send(ms);
  Sack(1, 11);
  queue_.MarkLost(Nth(0));
  SendAgain(0, 98);
  rack_.MarkLossesOnTimeout(queue_, Context(100));
  EXPECT_EQ(Marks(), "LsL");
}

TEST_F(RackTest, TheWindowIsAtMostASmoothedRoundTrip) {
  for (int i = 0; i < 3; ++i) Send(0);
  Sack(1, 8);
  for (uint32_t i = 1; i < 100; ++i) rack_.OnAck(true, kFirst + i, kFirst + i);
  EXPECT_EQ(rack_.ReorderingWindow(queue_, Context(8)), Milliseconds(10));
}

TEST_F(RackTest, ATimeoutMarksTheFirstSegmentAndThoseWhoseTimeIsOver) {
  for (int i : {0, 1, 90, 95}) Send(i);
  Sack(1, 11);
  rack_.MarkLossesOnTimeout(queue_, Context(100));
  EXPECT_EQ(Marks(), "Ls..");
  rack_.MarkLossesOnTimeout(queue_, Context(103));
  EXPECT_EQ(Marks(), "LsL.");
}

TEST_F(RackTest, SegmentsSentTogetherAreOrderedBySequence) {
  for (int i = 0; i < 5; ++i) Send(0);
  Sack(2, 10);
  Detect(30);
  EXPECT_EQ(Marks(), "LLs..");
}

TEST_F(RackTest, OfSegmentsSentTogetherTheLastDeliveredCounts) {
  for (int i = 0; i < 5; ++i) Send(0);
  Sack(1, 10);
  Sack(3, 10);
  Detect(30);
  EXPECT_EQ(Marks(), "LsLs.");
}

TEST_F(RackTest, ARetransmissionBelowWhatWasDeliveredIsNoReordering) {
  for (int i = 0; i < 3; ++i) Send(0);
  Sack(2, 10);
  Detect(20, true);
  SendAgain(0, 20);
  Sack(0, 40);
  EXPECT_FALSE(rack_.reordering_seen());
}

TEST(MinRtt, ForgetsWhatIsOlderThanTwoWindows) {
  const Nanoseconds window(int64_t{1} << 36);
  MinRtt least;
  EXPECT_EQ(least.value(), kNever);
  least.Sample(Milliseconds(5), 10 * window);
  least.Sample(Milliseconds(3), 10 * window + Seconds(1));
  least.Sample(Milliseconds(9), 10 * window + Seconds(2));
  EXPECT_EQ(least.value(), Milliseconds(3));
  least.Sample(Milliseconds(7), 11 * window);
  EXPECT_EQ(least.value(), Milliseconds(3));
  least.Sample(Milliseconds(8), 12 * window);
  EXPECT_EQ(least.value(), Milliseconds(7));
  least.Sample(Milliseconds(9), 14 * window);
  EXPECT_EQ(least.value(), Milliseconds(9));
}

TEST(MinRtt, ALongRoundTripIsOneToo) {
  MinRtt least;
  least.Sample(Seconds(30), Seconds(601));
  EXPECT_GT(least.value(), Seconds(4));
  EXPECT_LT(least.value(), Seconds(30));
}

}  // namespace
}  // namespace xtreme::tcp
