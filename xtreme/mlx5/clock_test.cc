// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/clock.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include "gtest/gtest.h"

namespace xtreme::mlx5 {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A device whose clock runs at `ns_per_tick` and reads `raw_at_zero` at host time 0.
struct SimulatedClock {
  double ns_per_tick = 6.4;
  uint64_t raw_at_zero = 12345;
  uint64_t mask = ~uint64_t{0};

  uint64_t RawAt(int64_t host_ns) const {
    return (raw_at_zero + static_cast<uint64_t>(static_cast<double>(host_ns) / ns_per_tick)) & mask;
  }
  ClockSample Sample(int64_t host_ns, int64_t half_width_ns = 50) const {
    return {RawAt(host_ns), host_ns, half_width_ns};
  }
};

TEST(ClockTracker, OneSampleIsNotInSyncAndBoundsTheNominalRate) {
  const SimulatedClock device{.ns_per_tick = 6.4 * 1.00005};
  ClockTracker tracker(156'250, ~uint64_t{0});
  EXPECT_FALSE(tracker.conversion().in_sync);
  const auto conversion = tracker.Add(device.Sample(kSecond));
  EXPECT_FALSE(conversion.in_sync);
  const int64_t error =
      std::llabs(conversion.ToNanoseconds(device.RawAt(3 * kSecond)) - 3 * kSecond);
  EXPECT_LE(error, static_cast<int64_t>(conversion.error_bound_ns));
}

TEST(ClockTracker, SamplesASecondApartBoundTheErrorToTheHorizon) {
  for (const double ns_per_tick : {0.8, 1.0, 2.0003, 6.4 * 0.99995}) {
    const SimulatedClock device{.ns_per_tick = ns_per_tick};
    ClockTracker tracker(0, ~uint64_t{0});
    for (int i = 0; i < 20; ++i) {
      const int64_t now = i * kSecond;
      const auto conversion = tracker.Add(device.Sample(now));
      if (i == 0) continue;
      ASSERT_TRUE(conversion.in_sync) << i;
      for (int64_t ahead : {-kSecond, int64_t{0}, kSecond, kClockHorizonNs}) {
        const int64_t error =
            std::llabs(conversion.ToNanoseconds(device.RawAt(now + ahead)) - (now + ahead));
        ASSERT_LE(error, static_cast<int64_t>(conversion.error_bound_ns)) << i << ", " << ahead;
      }
    }
    EXPECT_EQ(tracker.restarts(), 0u);
    EXPECT_LT(tracker.conversion().error_bound_ns, 100u) << "a longer baseline, a better rate";
  }
}

// Each reading is off by as much as it may be: the older one early, the newer one late.
TEST(ClockTracker, BoundHoldsForReadingsThatAreOffByTheirWholeWidth) {
  const SimulatedClock device{.ns_per_tick = 1.0};
  for (const auto& [older, newer] : {std::pair<int64_t, int64_t>{800, 0}, {0, 800}, {400, 400}}) {
    ClockTracker tracker(0, ~uint64_t{0});
    tracker.Add({device.RawAt(0), -older, older});
    constexpr int64_t kNow = kSecond / 10;
    const auto conversion = tracker.Add({device.RawAt(kNow), kNow + newer, newer});
    ASSERT_TRUE(conversion.in_sync);
    const int64_t at = kNow + kClockHorizonNs;
    EXPECT_LE(std::llabs(conversion.ToNanoseconds(device.RawAt(at)) - at),
              static_cast<int64_t>(conversion.error_bound_ns))
        << older << " " << newer;
  }
}

// Of short ticks the multiplier has few bits: what is rounded off it is most of the bound.
TEST(ClockTracker, BoundHoldsWhereTheMultiplierIsRoundedMost) {
  const SimulatedClock device{.ns_per_tick = 0.01};
  ClockTracker tracker(0, ~uint64_t{0});
  tracker.Add(device.Sample(0, 0));
  const auto conversion = tracker.Add(device.Sample(kSecond, 0));
  ASSERT_TRUE(conversion.in_sync);
  const int64_t at = kSecond + kClockHorizonNs;
  EXPECT_LE(std::llabs(conversion.ToNanoseconds(device.RawAt(at)) - at),
            static_cast<int64_t>(conversion.error_bound_ns));
}

TEST(ClockTracker, WhatIsReadLongAfterTheHorizonMayDifferByAsMuchMore) {
  SimulatedClock device{.ns_per_tick = 1.0};
  ClockTracker tracker(1'000'000, ~uint64_t{0});
  tracker.Add(device.Sample(0));
  const auto bound = tracker.Add(device.Sample(kSecond)).error_bound_ns;
  device.raw_at_zero += 10 * bound;
  EXPECT_TRUE(tracker.Add(device.Sample(kSecond + 20 * kClockHorizonNs)).in_sync);
  EXPECT_EQ(tracker.restarts(), 0u);
}

TEST(ClockTracker, ClockThatWasSetWhileNobodyReadItStartsOver) {
  SimulatedClock device{.ns_per_tick = 1.0};
  ClockTracker tracker(1'000'000, ~uint64_t{0});
  tracker.Add(device.Sample(0));
  tracker.Add(device.Sample(kSecond));
  device.raw_at_zero += 1'000'000;
  EXPECT_FALSE(tracker.Add(device.Sample(2 * kSecond + kClockHorizonNs)).in_sync);
  EXPECT_EQ(tracker.restarts(), 1u);
}

TEST(ClockTracker, InterruptedReadingIsLeftOut) {
  const SimulatedClock device;
  ClockTracker tracker(156'250, ~uint64_t{0});
  tracker.Add(device.Sample(0));
  const auto before = tracker.Add(device.Sample(kSecond));
  const auto after =
      tracker.Add(device.Sample(2 * kSecond, ClockTracker::kMaxHalfWidthNs + 1));
  EXPECT_EQ(after.base_raw, before.base_raw);
  EXPECT_EQ(tracker.rejected(), 1u);
}

TEST(ClockTracker, ClockThatWasSetStartsOver) {
  SimulatedClock device;
  ClockTracker tracker(156'250, ~uint64_t{0});
  for (int i = 0; i < 5; ++i) tracker.Add(device.Sample(i * kSecond));
  device.raw_at_zero += 1'000'000;
  EXPECT_FALSE(tracker.Add(device.Sample(5 * kSecond)).in_sync);
  EXPECT_EQ(tracker.restarts(), 1u);
  const auto conversion = tracker.Add(device.Sample(6 * kSecond));
  EXPECT_TRUE(conversion.in_sync);
  EXPECT_LE(std::llabs(conversion.ToNanoseconds(device.RawAt(7 * kSecond)) - 7 * kSecond),
            static_cast<int64_t>(conversion.error_bound_ns));
}

TEST(ClockTracker, RawValuesThatWrapGoOnCounting) {
  constexpr uint64_t kMask = (uint64_t{1} << 41) - 1;
  const SimulatedClock device{.ns_per_tick = 1.0, .raw_at_zero = kMask - 1'500'000'000,
                              .mask = kMask};
  ClockTracker tracker(1'000'000, device.mask);
  for (int i = 0; i < 4; ++i) {
    const auto conversion = tracker.Add(device.Sample(i * kSecond));
    const int64_t error =
        std::llabs(conversion.ToNanoseconds(device.RawAt((i + 1) * kSecond)) - (i + 1) * kSecond);
    EXPECT_LE(error, static_cast<int64_t>(conversion.error_bound_ns)) << i;
  }
  EXPECT_EQ(tracker.restarts(), 0u);
}

// A PTP clock beside ticks of a nanosecond, and what a system publishes of it when it steers it.
struct SteeredClock {
  int64_t ns = 37 * kSecond;
  uint64_t raw = 5'000;
  double rate = 1.0;
  nic::ClockConversion published;

  void Pass(int64_t ticks) {
    ns += static_cast<int64_t>(static_cast<double>(ticks) * rate);
    raw += static_cast<uint64_t>(ticks);
  }
  void Steer(double to) {
    rate = to;
    published = {.base_raw = raw, .base_ns = ns,
                 .multiplier = static_cast<uint32_t>(std::lround(std::ldexp(rate, 30))),
                 .shift = 30};
  }
};

TEST(PtpTracker, FirstSampleIsNotInSync) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  const auto conversion = tracker.Add(clock.published, clock.raw);
  EXPECT_FALSE(conversion.in_sync);
  EXPECT_EQ(conversion.ToNanoseconds(clock.raw), clock.ns);
  EXPECT_FALSE(tracker.Add(clock.published, clock.raw + 1'000).in_sync) << "too soon after it";
}

TEST(PtpTracker, BoundHoldsForAClockThatIsSteeredByAsMuchEachTime) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  for (int i = 0; i < 40; ++i) {
    const auto conversion = tracker.Add(clock.published, clock.raw);
    clock.Pass(kSecond / 2);
    clock.Steer(i % 2 == 0 ? 1.0 + 2e-6 : 1.0 - 2e-6);
    clock.Pass(kSecond / 2);
    if (i == 0) continue;
    ASSERT_TRUE(conversion.in_sync) << i;
    const int64_t error = std::llabs(conversion.ToNanoseconds(clock.raw) - clock.ns);
    EXPECT_LE(error, static_cast<int64_t>(conversion.error_bound_ns)) << i;
    EXPECT_LT(conversion.error_bound_ns, 12'100u) << i;
  }
}

TEST(PtpTracker, ClockThatIsLeftAloneIsSoonKnownToANanosecondOrTwo) {
  SteeredClock clock;
  clock.Steer(1.0 + 5e-6);
  PtpTracker tracker;
  nic::ClockConversion conversion;
  for (int i = 0; i < 5; ++i) {
    conversion = tracker.Add(clock.published, clock.raw);
    clock.Pass(kSecond);
  }
  EXPECT_TRUE(conversion.in_sync);
  EXPECT_LE(conversion.error_bound_ns, 20u);
}

TEST(PtpTracker, ClockThatWasSetIsNotInSyncUntilTheNextSample) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  const auto add = [&] {
    const auto conversion = tracker.Add(clock.published, clock.raw);
    EXPECT_EQ(conversion.ToNanoseconds(clock.raw), clock.ns);
    clock.Pass(kSecond);
    return conversion;
  };
  add();
  EXPECT_TRUE(add().in_sync);
  for (const int64_t step : {-36 * kSecond, 2 * PtpTracker::kStepNs}) {
    clock.ns += step;
    clock.Steer(1.0);
    EXPECT_FALSE(add().in_sync) << step;
    EXPECT_TRUE(add().in_sync) << step;
    EXPECT_LT(add().error_bound_ns, 20u) << "what it was set by is forgotten";
  }
}

TEST(PtpTracker, ClockThatIsBehindItsLastSampleWasSet) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  tracker.Add(clock.published, clock.raw);
  clock.Pass(kSecond);
  EXPECT_TRUE(tracker.Add(clock.published, clock.raw).in_sync);
  clock.ns -= PtpTracker::kStepNs / 2;
  clock.Steer(1.0);
  EXPECT_FALSE(tracker.Add(clock.published, clock.raw).in_sync);
}

TEST(PtpTracker, ClockThatIsLostStaysWhatTimesAreOnAndIsNotInSync) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  EXPECT_FALSE(tracker.last().has_value());
  for (int i = 0; i < 2; ++i) {
    tracker.Add(clock.published, clock.raw);
    clock.Pass(kSecond);
  }
  const auto& lost = tracker.last();
  ASSERT_TRUE(lost.has_value());
  EXPECT_FALSE(lost->in_sync);
  EXPECT_EQ(lost->ToNanoseconds(clock.raw), clock.ns);
  EXPECT_TRUE(tracker.Add(clock.published, clock.raw).in_sync) << "it is steered as before";
}

TEST(PtpTracker, ClockThatNobodySteersIsNotInSync) {
  SteeredClock clock;
  clock.Steer(1.0);
  PtpTracker tracker;
  for (int64_t age = 0; age <= PtpTracker::kStaleNs; age += kSecond) {
    const auto conversion = tracker.Add(clock.published, clock.raw);
    EXPECT_EQ(conversion.in_sync, age > 0 && age < PtpTracker::kStaleNs) << age;
    clock.Pass(kSecond);
  }
}

TEST(ReadClocks, KeepsTheNarrowestOfItsReadings) {
  int64_t now = 0;
  uint64_t raw = 0;
  const auto sample = ReadClocks([&]() -> std::optional<uint64_t> { return ++raw; },
                                 [&] { return now += raw == 3 ? 20 : 1000; });
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->half_width_ns, 10);
  EXPECT_EQ(sample->raw, 3u);
}

TEST(ReadClocks, HalfOfAnOddWidthIsTheLargerHalf) {
  int64_t now = 0;
  const auto sample = ReadClocks([]() -> std::optional<uint64_t> { return 1; },
                                 [&] { return now += 5; });
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->half_width_ns, 3);
}

TEST(ReadClocks, NoneFromADeviceWithoutAClock) {
  EXPECT_FALSE(ReadClocks([]() -> std::optional<uint64_t> { return std::nullopt; },
                          [] { return int64_t{0}; }));
}

}  // namespace
}  // namespace xtreme::mlx5
