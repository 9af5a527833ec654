// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/rtt.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

using base::Microseconds;
using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;

constexpr RttEstimator::Options kDefaults;
constexpr RttEstimator::Options kLan{.min_rto = Microseconds(300), .max_rto = Seconds(60)};

TEST(TimestampClock, TellsTheRoundTripOfACopyThatThereWas) {
  const TimestampClock clock{.offset = UINT32_MAX};  // wraps meanwhile
  const Nanoseconds first = Milliseconds(5'000);
  const Nanoseconds now = first + Milliseconds(1'000) + Microseconds(300);
  const uint32_t echo = clock.At(first);
  EXPECT_EQ(clock.RoundTrip(echo, first, now), Milliseconds(1'001));
  EXPECT_EQ(clock.RoundTrip(clock.At(now), first, now), Milliseconds(1));
  EXPECT_EQ(clock.RoundTrip(echo - 1, first, now), std::nullopt) << "of before the first";
  EXPECT_EQ(clock.RoundTrip(clock.At(now) + 1, first, now), std::nullopt) << "of the future";
}

TEST(RttEstimator, BeginsWithOneSecond) {
  const RttEstimator rtt(kDefaults);
  EXPECT_EQ(rtt.rto(), Seconds(1));
  EXPECT_FALSE(rtt.has_sample());
}

TEST(RttEstimator, TheFirstSampleSetsBothEstimates) {
  RttEstimator rtt(kLan);
  rtt.Sample(Milliseconds(10));
  EXPECT_EQ(rtt.srtt(), Milliseconds(10));
  EXPECT_EQ(rtt.rttvar(), Milliseconds(5));
  EXPECT_EQ(rtt.rto(), Milliseconds(30));
}

TEST(RttEstimator, LaterSamplesWeighAnEighthAndAQuarter) {
  RttEstimator rtt(kLan);
  rtt.Sample(Milliseconds(8));
  rtt.Sample(Milliseconds(16));
  // RTTVAR = 3/4 x 4 + 1/4 x |8 - 16|, before SRTT = 7/8 x 8 + 1/8 x 16.
  EXPECT_EQ(rtt.rttvar(), Milliseconds(5));
  EXPECT_EQ(rtt.srtt(), Milliseconds(9));
  EXPECT_EQ(rtt.rto(), Milliseconds(29));
}

TEST(RttEstimator, ASteadyLanEndsTheMinimumAfterItsRoundTripBelowOneMillisecond) {
  RttEstimator rtt(kLan);
  for (int i = 0; i < 200; ++i) rtt.Sample(Microseconds(20));
  EXPECT_EQ(rtt.srtt(), Microseconds(20));
  EXPECT_LT(rtt.rttvar(), Nanoseconds(100));
  EXPECT_EQ(rtt.rto(), Microseconds(320));
}

// A peer that answers after 200 ms of its own, or sends again after 200 ms and a round trip, does
// so before this end repeats itself: RFC 6298 (2.3), the minimum in the place of G.
TEST(RttEstimator, TheMinimumBoundsTheDeviationFromBelow) {
  RttEstimator rtt(kDefaults);
  for (int i = 0; i < 200; ++i) rtt.Sample(Milliseconds(2));
  EXPECT_EQ(rtt.rto(), Milliseconds(202));
  RttEstimator far(kDefaults);
  for (int i = 0; i < 200; ++i) far.Sample(Milliseconds(500));
  EXPECT_EQ(far.rto(), Milliseconds(700));
}

TEST(RttEstimator, ADeviationAboveTheMinimumCountsAlone) {
  RttEstimator rtt(kDefaults);
  rtt.Sample(Milliseconds(200));
  EXPECT_EQ(rtt.rto(), Milliseconds(200 + 4 * 100));
}

TEST(RttEstimator, ManySamplesARoundTripWeighAsMuchAsOne) {
  RttEstimator one(kLan), many(kLan);
  one.Sample(Milliseconds(10));
  many.Sample(Milliseconds(10));
  one.Sample(Milliseconds(20));
  for (int i = 0; i < 50; ++i) many.Sample(Milliseconds(20), 50);
  EXPECT_NEAR(many.srtt().count(), one.srtt().count(), Microseconds(100).count());
}

TEST(RttEstimator, BacksOffByDoublingUpToTheMaximum) {
  RttEstimator rtt(kDefaults);
  for (int64_t seconds : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
    EXPECT_EQ(rtt.rto(), Seconds(seconds));
    rtt.BackOff();
  }
  for (int i = 0; i < 100; ++i) rtt.BackOff();
  EXPECT_EQ(rtt.rto(), Seconds(60));
}

TEST(RttEstimator, ASampleEndsBackingOff) {
  RttEstimator rtt(kDefaults);
  rtt.Sample(Seconds(1));
  rtt.BackOff();
  EXPECT_EQ(rtt.rto(), Seconds(6));
  rtt.Sample(Seconds(1));
  EXPECT_LT(rtt.rto(), Seconds(3));
  rtt.BackOff();
  rtt.ClearBackOff();
  EXPECT_LT(rtt.rto(), Seconds(3));
}

TEST(RttEstimator, ALostSynMakesDataBeginWithThreeSeconds) {
  RttEstimator rtt(kDefaults);
  rtt.BackOff();
  rtt.BackOff();
  rtt.SynTimedOut();
  EXPECT_EQ(rtt.rto(), Seconds(3)) << "and not so often doubled as the SYN's";
  rtt.SynTimedOut(Milliseconds(1));
  EXPECT_EQ(rtt.rto(), Milliseconds(201)) << "unless it is known which of them was answered";
  rtt.SynTimedOut(Seconds(2));
  EXPECT_EQ(rtt.rto(), Seconds(3)) << "which never makes it longer";
  EXPECT_FALSE(rtt.has_sample());
  RttEstimator measured(kDefaults);
  measured.Sample(Milliseconds(1));
  measured.SynTimedOut();
  EXPECT_EQ(measured.rto(), Milliseconds(201));
}

TEST(RttEstimator, NoSampleLeavesTheLimits) {
  for (int64_t ns : {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{1} << 40, INT64_MAX}) {
    RttEstimator rtt(kLan);
    rtt.Sample(Nanoseconds(ns));
    rtt.Sample(Nanoseconds(1));
    rtt.Sample(Nanoseconds(ns));
    EXPECT_TRUE(rtt.has_sample()) << ns;
    EXPECT_GE(rtt.rto(), kLan.min_rto) << ns;
    EXPECT_LE(rtt.rto(), kLan.max_rto) << ns;
  }
}

TEST(TimestampClock, CountsTicksFromItsOffsetAndMeasuresAcrossTheWrap) {
  const TimestampClock clock{.offset = 0xFFFFFFF0};
  EXPECT_EQ(clock.At(Milliseconds(5)), 0xFFFFFFF5u);
  EXPECT_EQ(clock.At(Milliseconds(20)), 4u);
  EXPECT_EQ(clock.Since(clock.At(Milliseconds(5)), Milliseconds(20)), Milliseconds(15));
  EXPECT_EQ(clock.Since(clock.At(Milliseconds(21)), Milliseconds(20)), Nanoseconds(0));
}

}  // namespace
}  // namespace xtreme::tcp
