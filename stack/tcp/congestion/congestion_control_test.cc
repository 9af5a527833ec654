// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/congestion/congestion_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace xtreme::tcp {
namespace {

using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;
using Algorithm = CongestionControl::Algorithm;

constexpr uint32_t kSmss = 1000;

AckEvent Ack(uint32_t acked, Nanoseconds now = Seconds(1)) {
  return {.acked = acked, .now = now, .srtt = Milliseconds(100)};
}

// Through one loss, so that slow start is over; the window is `cwnd` when it happens.
void LoseAt(CongestionControl& control, uint32_t cwnd, Nanoseconds now = Seconds(1)) {
  control.SetDuringRecovery(cwnd);
  control.OnLoss({.flight = cwnd, .now = now});
  control.EndRecovery();
}

// A round trip in which every segment of the window is acknowledged.
void RoundTrip(CongestionControl& control, Nanoseconds now) {
  const uint32_t segments = control.cwnd() / kSmss;
  for (uint32_t i = 0; i < segments; ++i) control.OnAck(Ack(kSmss, now));
}

TEST(InitialWindow, FollowsTheTableOfRfc6928) {
  EXPECT_EQ(InitialWindow(536), 5360u);
  EXPECT_EQ(InitialWindow(1460), 14'600u);
  EXPECT_EQ(InitialWindow(2000), 14'600u);
  EXPECT_EQ(InitialWindow(8960), 17'920u);
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, DoublesAWindowInSlowStart) {
  CongestionControl control(GetParam(), kSmss);
  EXPECT_EQ(control.cwnd(), 10 * kSmss);
  EXPECT_TRUE(control.InSlowStart());
  RoundTrip(control, Seconds(1));
  EXPECT_EQ(control.cwnd(), 20 * kSmss);
}

TEST_P(EveryAlgorithm, AStretchAcknowledgementCountsForEightSegmentsAtMost) {
  CongestionControl control(GetParam(), kSmss);
  control.OnAck(Ack(100 * kSmss));
  EXPECT_EQ(control.cwnd(), 18 * kSmss);
}

TEST_P(EveryAlgorithm, AWindowThatIsNotUsedDoesNotGrow) {
  CongestionControl control(GetParam(), kSmss);
  AckEvent ack = Ack(5 * kSmss);
  ack.window_limited = false;
  control.OnAck(ack);
  LoseAt(control, 40 * kSmss);
  const uint32_t before = control.cwnd();
  control.OnAck(ack);
  EXPECT_EQ(control.cwnd(), before);
}

TEST_P(EveryAlgorithm, ATimeoutBeginsAgainWithOneSegmentAndReducesOnce) {
  CongestionControl control(GetParam(), kSmss);
  control.OnTimeout({.flight = 40 * kSmss, .now = Seconds(1)}, false);
  EXPECT_EQ(control.cwnd(), kSmss);
  const uint32_t ssthresh = control.ssthresh();
  EXPECT_LT(ssthresh, 40 * kSmss);
  control.OnTimeout({.flight = kSmss, .now = Seconds(2)}, true);
  EXPECT_EQ(control.ssthresh(), ssthresh);
  control.OnTimeout({.flight = kSmss, .now = Seconds(2)}, false);
  EXPECT_EQ(control.ssthresh(), 2 * kSmss);
}

TEST_P(EveryAlgorithm, SlowStartStopsAtSsthresh) {
  CongestionControl control(GetParam(), kSmss);
  control.OnTimeout({.flight = 20 * kSmss, .now = Seconds(1)}, false);
  const uint32_t ssthresh = control.ssthresh();
  for (int i = 0; i < 60 && control.InSlowStart(); ++i) control.OnAck(Ack(kSmss));
  EXPECT_GE(control.cwnd(), ssthresh);
  EXPECT_LT(control.cwnd(), ssthresh + kSmss);
}

TEST_P(EveryAlgorithm, ASpuriousLossIsUndone) {
  CongestionControl control(GetParam(), kSmss);
  LoseAt(control, 100 * kSmss);
  control.SetDuringRecovery(80 * kSmss);
  const uint32_t ssthresh = control.ssthresh();
  control.OnTimeout({.flight = 80 * kSmss, .now = Seconds(2)}, false);
  EXPECT_EQ(control.cwnd(), kSmss);
  control.OnSpuriousLoss(80 * kSmss);
  EXPECT_EQ(control.cwnd(), 80 * kSmss);
  EXPECT_EQ(control.ssthresh(), std::max(ssthresh, control.ssthresh()));
  EXPECT_GE(control.ssthresh(), ssthresh);
}

TEST_P(EveryAlgorithm, TheWindowIsNeverBelowASegmentNorAboveTheLargest) {
  CongestionControl control(GetParam(), kSmss);
  control.SetDuringRecovery(0);
  EXPECT_EQ(control.cwnd(), kSmss);
  control.SetDuringRecovery(kMaxCongestionWindow);
  control.OnAck(Ack(kSmss));
  control.OnAck(Ack(kMaxCongestionWindow));
  EXPECT_LE(control.cwnd(), kMaxCongestionWindow);
}

TEST_P(EveryAlgorithm, IdleTimeLostSynAndSegmentSizeSetTheWindow) {
  CongestionControl control(GetParam(), kSmss);
  control.SetDuringRecovery(99 * kSmss);
  control.RestartAfterIdle();
  EXPECT_EQ(control.cwnd(), 10 * kSmss);
  control.StartAfterLostSyn();
  EXPECT_EQ(control.cwnd(), kSmss);
  control.SetSmss(1460, true);
  EXPECT_EQ(control.cwnd(), 14'600u);
  control.StartAfterLostSyn();
  control.SetSmss(9000, false);
  EXPECT_EQ(control.cwnd(), 9000u);
}

INSTANTIATE_TEST_SUITE_P(, EveryAlgorithm, testing::Values(Algorithm::kNewReno, Algorithm::kCubic),
                         [](const auto& param) {
                           return param.param == Algorithm::kCubic ? "Cubic" : "NewReno";
                         });

TEST(NewReno, HalvesAndGrowsByASegmentARoundTrip) {
  CongestionControl control(Algorithm::kNewReno, kSmss);
  LoseAt(control, 40 * kSmss);
  EXPECT_EQ(control.cwnd(), 20 * kSmss);
  for (uint32_t round = 1; round <= 5; ++round) {
    RoundTrip(control, Seconds(round));
    EXPECT_EQ(control.cwnd(), (20 + round) * kSmss);
  }
}

TEST(NewReno, CountsEveryByteOnce) {
  CongestionControl control(Algorithm::kNewReno, kSmss);
  LoseAt(control, 40 * kSmss);
  control.OnAck(Ack(30 * kSmss));
  EXPECT_EQ(control.cwnd(), 21 * kSmss);
  control.OnAck(Ack(11 * kSmss));
  EXPECT_EQ(control.cwnd(), 22 * kSmss) << "ten segments were left over";
}

TEST(NoCongestionControl, NeverHoldsBack) {
  CongestionControl control(Algorithm::kNone, kSmss);
  control.OnTimeout({.flight = kSmss, .now = Seconds(1)}, false);
  control.OnLoss({.flight = kSmss, .now = Seconds(1)});
  control.SetDuringRecovery(kSmss);
  control.EndRecovery();
  control.RestartAfterIdle();
  control.SetSmss(500, true);
  EXPECT_EQ(control.cwnd(), kMaxCongestionWindow);
}

// RFC 9406. A path of `kRtt`, seen in rounds.
class SlowStartRounds : public testing::TestWithParam<Algorithm> {
 protected:
  static constexpr Nanoseconds kRtt = Milliseconds(20);

  // All that was sent when the last round ended is acknowledged, each segment after `rtt`, and the
  // window always used. Returns how many bytes.
  uint32_t Round(Nanoseconds rtt) {
    const Seq begin = una_;
    for (const Seq end = sent_; una_ < end;) Acknowledge(std::min(kSmss, Distance(una_, end)), rtt);
    return Distance(begin, una_);
  }
  uint32_t Rounds(int count, Nanoseconds rtt) {
    uint32_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += Round(rtt);
    return bytes;
  }
  void Acknowledge(uint32_t bytes, Nanoseconds rtt) {
    sent_ = una_ + control_.cwnd();
    AckEvent ack = Ack(bytes);
    ack.rtt = rtt;
    ack.una = una_ += bytes;
    ack.nxt = sent_;
    control_.OnAck(ack);
  }

  CongestionControl control_{GetParam(), kSmss};
  Seq una_{UINT32_MAX - 15'000};
  Seq sent_ = una_ + 10 * kSmss;
};

TEST_P(SlowStartRounds, ThatKeepTheirTimeGrowByWhatIsAcknowledged) {
  const uint32_t acknowledged = Rounds(6, kRtt);
  EXPECT_GT(acknowledged, 300 * kSmss);
  EXPECT_EQ(control_.cwnd(), 10 * kSmss + acknowledged);
  EXPECT_TRUE(control_.InSlowStart());
}

// Section 4.2: an eighth of a round trip, but 4 ms at least and 16 at most.
TEST_P(SlowStartRounds, ThatGrowByLessThanTheThresholdAreNoSign) {
  for (const auto& [rtt, threshold] : {std::pair(Milliseconds(8), Milliseconds(4)),
                                       std::pair(Milliseconds(80), Milliseconds(10)),
                                       std::pair(Milliseconds(800), Milliseconds(16))}) {
    for (const bool reached : {false, true}) {
      control_ = CongestionControl(GetParam(), kSmss);
      sent_ = una_ + control_.cwnd();
      Rounds(2, rtt);
      const uint32_t before = control_.cwnd();
      const uint32_t bytes = Round(rtt + threshold - Nanoseconds(reached ? 0 : 1));
      EXPECT_EQ(control_.cwnd() < before + bytes, reached) << rtt.count();
    }
  }
}

// Eight samples find it; from then on the window grows by a quarter of what is acknowledged, five
// rounds long with the one in which that began, and then slow start is over.
TEST_P(SlowStartRounds, ThatTakeLongerGrowByAQuarterForFiveRoundsAndEndSlowStart) {
  Rounds(2, kRtt);
  uint32_t before = control_.cwnd();
  const uint32_t first = Round(kRtt + Milliseconds(4));
  EXPECT_EQ(control_.cwnd(), before + 8 * kSmss + (first - 8 * kSmss) / 4);
  for (int round = 2; round <= 5; ++round) {
    EXPECT_TRUE(control_.InSlowStart()) << round;
    before = control_.cwnd();
    const uint32_t bytes = Round(kRtt + Milliseconds(4));
    EXPECT_NEAR(control_.cwnd(), before + bytes / 4, 2) << round;
  }
  EXPECT_FALSE(control_.InSlowStart());
  before = control_.cwnd();
  Round(kRtt + Milliseconds(4));
  EXPECT_NEAR(control_.cwnd(), before + kSmss, 2 * kSmss);
}

TEST_P(SlowStartRounds, ThatTookLongerOnceGoOnAsBefore) {
  Rounds(2, kRtt);
  Round(kRtt + Milliseconds(4));
  Round(kRtt);
  const uint32_t before = control_.cwnd();
  const uint32_t bytes = Rounds(6, kRtt);
  EXPECT_TRUE(control_.InSlowStart());
  EXPECT_EQ(control_.cwnd(), before + bytes);
}

TEST_P(SlowStartRounds, WithFewSamplesAreNotJudged) {
  Rounds(2, kRtt);
  const uint32_t before = control_.cwnd();
  for (int i = 0; i < 8; ++i) Acknowledge(kSmss, Seconds(1));
  EXPECT_EQ(control_.cwnd(), before + 8 * kSmss);
  Acknowledge(kSmss, Seconds(1));
  EXPECT_EQ(control_.cwnd(), before + 8 * kSmss + kSmss / 4);
}

// What did not need the window was not looked at.
TEST_P(SlowStartRounds, AfterGigabytesThatWereSentInBetweenAreRoundsStill) {
  Rounds(2, kRtt);
  una_ += 3u << 30;
  sent_ = una_ + control_.cwnd();
  Rounds(2, kRtt);
  EXPECT_TRUE(control_.InSlowStart());
  Rounds(5, kRtt + Milliseconds(4));
  EXPECT_FALSE(control_.InSlowStart());
}

// Section 4.3: the first slow start only.
TEST_P(SlowStartRounds, AfterALossAreNotWatched) {
  control_.OnTimeout({.flight = 400 * kSmss, .now = Seconds(1)}, false);
  control_.SetDuringRecovery(10 * kSmss);
  Rounds(2, kRtt);
  const uint32_t before = control_.cwnd();
  const uint32_t bytes = Round(2 * kRtt);
  EXPECT_EQ(control_.cwnd(), before + bytes);
}

INSTANTIATE_TEST_SUITE_P(, SlowStartRounds,
                         testing::Values(Algorithm::kNewReno, Algorithm::kCubic),
                         [](const auto& param) {
                           return param.param == Algorithm::kCubic ? "Cubic" : "NewReno";
                         });

// RFC 9438 section 5.1's functions in floating point, against the integers.
TEST(Cubic, FollowsTheCurveOfTheRfc) {
  CongestionWindow window(kSmss);
  window.ssthresh = window.cwnd = 100 * kSmss;
  Cubic cubic;
  cubic.OnLoss({.flight = window.cwnd, .now = Seconds(1)}, window);
  EXPECT_EQ(window.ssthresh, 70 * kSmss);
  window.cwnd = window.ssthresh;
  cubic.OnAck(Ack(kSmss, Seconds(1)), window);
  const double k = std::cbrt((100 - 70) / 0.4);
  EXPECT_NEAR(static_cast<double>(cubic.k_us()), k * 1e6, 2);
  for (double t : {0.0, 1.0, 3.0, 4.217, 6.0, 10.0}) {
    const double expected = (0.4 * std::pow(t - k, 3) + 100) * kSmss;
    EXPECT_NEAR(static_cast<double>(cubic.WindowAt(static_cast<int64_t>(t * 1e6), kSmss)), expected,
                2)
        << t;
  }
}

TEST(Cubic, IsBackAtTheOldWindowAfterK) {
  CongestionControl control(Algorithm::kCubic, kSmss);
  LoseAt(control, 1000 * kSmss, Seconds(1));
  EXPECT_EQ(control.cwnd(), 700 * kSmss);
  const double k_ms = std::cbrt(300 / 0.4) * 1000;
  Nanoseconds now = Seconds(1);
  for (; now < Seconds(1) + Milliseconds(static_cast<int64_t>(k_ms)); now += Milliseconds(100)) {
    RoundTrip(control, now);
  }
  EXPECT_NEAR(control.cwnd(), 1000.0 * kSmss, 10.0 * kSmss);
  // Flat around the plateau, then steep.
  const uint32_t at_plateau = control.cwnd();
  for (int i = 0; i < 10; ++i) RoundTrip(control, now += Milliseconds(100));
  EXPECT_LT(control.cwnd() - at_plateau, 8 * kSmss);
  for (int i = 0; i < 60; ++i) RoundTrip(control, now += Milliseconds(100));
  EXPECT_GT(control.cwnd() - at_plateau, 100 * kSmss);
}

TEST(Cubic, IsAsFastAsNewRenoWhereThatIsFaster) {
  CongestionControl control(Algorithm::kCubic, kSmss);
  LoseAt(control, 20 * kSmss, Seconds(1));
  EXPECT_EQ(control.cwnd(), 14 * kSmss);
  // A round trip of 1 ms: in 100 ms the cubic term is nothing.
  Nanoseconds now = Seconds(1);
  AckEvent ack{.acked = kSmss, .srtt = Milliseconds(1)};
  for (int round = 0; round < 100; ++round) {
    ack.now = now += Milliseconds(1);
    for (uint32_t i = control.cwnd() / kSmss; i > 0; --i) control.OnAck(ack);
    if (round == 5) {
      EXPECT_NEAR(control.cwnd() / 1000.0, 14 + 6 * 9 / 17.0, 0.3);
    }
  }
  // 9/17 of a segment a round trip up to 20, then a whole one.
  EXPECT_NEAR(control.cwnd() / 1000.0, 20 + (100 - 6 * 17 / 9.0), 4);
}

// Section 4.4: what one acknowledged segment adds is its share of the way to the curve a round trip
// ahead, or to half the window more, whichever is less.
TEST(Cubic, AimsARoundTripAheadAndAtMostHalfTheWindowMore) {
  for (const auto& [seconds, target] :
       {std::pair(1, 100 - 0.4 * std::pow(2.217, 3)), std::pair(10, 70.5 * 1.5)}) {
    CongestionWindow window(kSmss);
    window.ssthresh = window.cwnd = 100 * kSmss;
    Cubic cubic;
    cubic.OnLoss({.flight = window.cwnd, .now = Seconds(1)}, window);
    window.cwnd = window.ssthresh;
    AckEvent ack{.acked = kSmss, .now = Seconds(1), .srtt = Seconds(1)};
    cubic.OnAck(ack, window);  // the epoch begins
    window.cwnd = 70'500;
    ack.now += Seconds(seconds);
    cubic.OnAck(ack, window);
    EXPECT_NEAR(window.cwnd - 70'500, (target - 70.5) / 70.5 * kSmss, 5) << seconds;
  }
}

TEST(Cubic, AFlowThatCouldNotGetBackMakesRoom) {
  CongestionWindow window(kSmss);
  window.ssthresh = window.cwnd = 100 * kSmss;
  Cubic cubic;
  cubic.OnLoss({.flight = 100 * kSmss, .now = Seconds(1)}, window);
  window.cwnd = 80 * kSmss;
  cubic.OnLoss({.flight = 80 * kSmss, .now = Seconds(2)}, window);
  window.cwnd = window.ssthresh;
  cubic.OnAck(Ack(1, Seconds(2)), window);
  // W_max is 80 x (1 + 0.7) / 2.
  EXPECT_EQ(cubic.WindowAt(cubic.k_us(), kSmss), 68 * kSmss);
}

TEST(Cubic, AfterATimeoutTheCurveBeginsFlat) {
  CongestionWindow window(kSmss);
  window.cwnd = 100 * kSmss;
  Cubic cubic;
  cubic.OnTimeout({.flight = 100 * kSmss, .now = Seconds(1)}, false, window);
  window.cwnd = window.ssthresh;
  cubic.OnAck(Ack(kSmss, Seconds(2)), window);
  EXPECT_EQ(cubic.k_us(), 0);
  EXPECT_EQ(cubic.WindowAt(0, kSmss), 70 * kSmss);
}

TEST(Cubic, TimeWithoutNeedIsNotGrownThrough) {
  CongestionControl control(Algorithm::kCubic, kSmss);
  LoseAt(control, 100 * kSmss, Seconds(1));
  RoundTrip(control, Seconds(1));
  AckEvent unused = Ack(kSmss, Seconds(100));
  unused.window_limited = false;
  control.OnAck(unused);
  const uint32_t before = control.cwnd();
  RoundTrip(control, Seconds(100));
  EXPECT_LT(control.cwnd(), before + 2 * kSmss);
}

TEST(Cubic, ALongEpochDoesNotOverflow) {
  CongestionControl control(Algorithm::kCubic, kSmss);
  LoseAt(control, kMaxCongestionWindow, Seconds(1));
  control.OnAck(Ack(kSmss, Seconds(1)));
  for (int64_t day = 1; day < 400; day += 40) control.OnAck(Ack(1 << 29, Seconds(86'400 * day)));
  EXPECT_GT(control.cwnd(), kMaxCongestionWindow - kMaxCongestionWindow / 100);
}

}  // namespace
}  // namespace xtreme::tcp
