// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/tsc_clock.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::host {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(TscConversionTest, FitPassesThroughBothSamples) {
  const ClockSample first{.ticks = 1'000, .ns = 5'000, .error_ticks = 30};
  const ClockSample last{.ticks = 1'000 + 3'000'000'000, .ns = 5'000 + kSecond, .error_ticks = 30};
  const auto fit = TscConversion::Fit(first, last);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->ToNs(last.ticks), last.ns);
  EXPECT_NEAR(static_cast<double>(fit->ToNs(first.ticks)), 5'000.0, 1.0);
  EXPECT_NEAR(static_cast<double>(fit->ToNs(last.ticks + 300)), 5'100.0 + kSecond, 1.0);
}

TEST(TscConversionTest, TicksInIsTheInverseOfTheRate) {
  const auto fit = TscConversion::Fit({.ticks = 0, .ns = 0}, {.ticks = 2'500'000, .ns = 1'000'000});
  ASSERT_TRUE(fit.ok());
  EXPECT_NEAR(static_cast<double>(fit->TicksIn(1'000)), 2'500.0, 1.0);
}

TEST(TscConversionTest, ErrorIsTheBracketAtTheAnchorAndGrowsWithDistance) {
  const ClockSample first{.ticks = 1, .ns = 1, .error_ticks = 50};
  const ClockSample last{.ticks = 2'000'001, .ns = 1'000'001, .error_ticks = 50};
  const auto fit = TscConversion::Fit(first, last);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->ErrorNs(last.ticks), 26u);   // 50 ticks are 25 ns.
  EXPECT_EQ(fit->rate_error_ppb(), 50'001u);  // 100 of 2,000,000 ticks.
  EXPECT_NEAR(static_cast<double>(fit->ErrorNs(last.ticks + 2'000'000'000)), 50'027.0, 2.0);
  EXPECT_EQ(fit->ErrorNs(last.ticks - 1'000), fit->ErrorNs(last.ticks + 1'000));
}

TEST(TscConversionTest, RefusesSamplesThatMakeNoLine) {
  struct Row {
    std::string name;
    ClockSample first, last;
  };
  for (const Row& row : {Row{"counter stood still", {7, 1, 0}, {7, 2, 0}},
                         Row{"counter ran backwards", {7, 1, 0}, {6, 2, 0}},
                         Row{"time stood still", {7, 1, 0}, {8, 1, 0}},
                         Row{"100 ticks per ns", {0, 0, 0}, {100'000, 1'000, 0}},
                         Row{"100 ns per tick", {0, 0, 0}, {1'000, 100'000, 0}}}) {
    EXPECT_EQ(TscConversion::Fit(row.first, row.last).status().code(),
              absl::StatusCode::kInvalidArgument)
        << row.name;
  }
}

TEST(TscConversionTest, DefaultIsTheKernelClock) {
  const TscConversion identity;
  const uint64_t before = MonotonicNs();
  const uint64_t now = identity.NowNs();
  EXPECT_FALSE(identity.uses_tsc());
  EXPECT_GE(now, before);
  EXPECT_LE(now, MonotonicNs());
  EXPECT_EQ(identity.ErrorNs(now), 0u);
}

TEST(TscClockTest, AgreesWithTheKernelWithinItsOwnErrorBound) {
  auto clock = TscClock::Start({});
  ASSERT_TRUE(clock.ok()) << clock.status();
  EXPECT_EQ(clock->conversion().uses_tsc(), HasInvariantTsc());
  clock->Recalibrate();
  const TscConversion& conversion = clock->conversion();
  // A preempted bracket is wide and proves nothing, so only the order is asked of it.
  const uint64_t before = MonotonicNs();
  const uint64_t ticks = conversion.Ticks();
  const uint64_t after = MonotonicNs();
  const uint64_t slack = conversion.ErrorNs(ticks) + 100;  // RDTSC may run ahead a little.
  EXPECT_GE(conversion.ToNs(ticks) + slack, before);
  EXPECT_LE(conversion.ToNs(ticks), after + slack);
}

TEST(TscClockTest, RecalibratingNarrowsTheRate) {
  auto clock = TscClock::Start({.calibration_ns = 10'000});
  ASSERT_TRUE(clock.ok()) << clock.status();
  if (!clock->conversion().uses_tsc()) return;
  const uint64_t at_first = clock->conversion().rate_error_ppb();
  const uint64_t start = MonotonicNs();
  while (MonotonicNs() - start < 2'000'000) _mm_pause();
  clock->Recalibrate();
  EXPECT_LT(clock->conversion().rate_error_ppb(), at_first);
}

TEST(TscClockTest, FallsBackWhenTheTscIsNotAllowed) {
  auto clock = TscClock::Start({.allow_tsc = false});
  ASSERT_TRUE(clock.ok());
  EXPECT_FALSE(clock->conversion().uses_tsc());
  clock->Recalibrate();
  EXPECT_FALSE(clock->conversion().uses_tsc());
}

// What a suspended host or a virtual machine that stood still sees: the counter goes on while
// CLOCK_MONOTONIC stands, or begins anew.
TEST(TscClockTest, ACounterThatJumpsIsFollowedAtTheRateItHad) {
  auto clock = TscClock::Start({});
  ASSERT_TRUE(clock.ok()) << clock.status();
  if (!clock->conversion().uses_tsc()) return;
  const uint64_t second = clock->conversion().TicksIn(kSecond);
  const ClockSample now = SampleClocks(8);
  for (const uint64_t jumped : {now.ticks + 4 * second, uint64_t{1'000'000}}) {
    ClockSample sample{.ticks = jumped, .ns = MonotonicNs(), .error_ticks = 30};
    clock->Recalibrate(sample);
    EXPECT_EQ(clock->conversion().ToNs(sample.ticks), sample.ns);
    for (int i = 0; i < 40; ++i) {
      EXPECT_NEAR(static_cast<double>(clock->conversion().ToNs(sample.ticks + second)),
                  static_cast<double>(sample.ns + kSecond), kSecond / 1'000);
      sample.ticks += second;
      sample.ns += kSecond;
      clock->Recalibrate(sample);
      EXPECT_EQ(clock->conversion().ToNs(sample.ticks), sample.ns);
    }
  }
}

TEST(TscClockTest, RefusesACalibrationOutOfRange) {
  EXPECT_EQ(TscClock::Start({.calibration_ns = 999}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TscClock::Start({.calibration_ns = kSecond + 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::host
