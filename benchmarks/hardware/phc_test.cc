// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/hardware/phc.h"

#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::hardware {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kEpoch = 1'700'000'000 * kSecond;  // Of the PHC before the host's clock.

// Asked at `host_ns`, there after 1 us, seen after 3 us; the PHC gains `gained_ns` per second.
PhcSample Sample(int64_t host_ns, int64_t gained_ns = 0) {
  const auto phc = [gained_ns](int64_t at) { return kEpoch + at + at / kSecond * gained_ns; };
  return {.asked_host_ns = host_ns,
          .asked_phc_ns = phc(host_ns),
          .packet_ns = host_ns + 1'000,
          .seen_host_ns = host_ns + 3'000,
          .seen_phc_ns = phc(host_ns + 3'000)};
}

TEST(PhcTest, APacketBetweenTheLooksAgrees) {
  const std::array samples = {Sample(kSecond), Sample(2 * kSecond)};
  const PhcComparison comparison = CompareWithPhc(samples, 0);
  EXPECT_EQ(comparison.packets, 2u);
  EXPECT_EQ(comparison.outside, 0u);
  EXPECT_EQ(comparison.offset_ns, kEpoch);
  EXPECT_NEAR(comparison.drift_ppm, 0, 0.001);
}

TEST(PhcTest, ATimeBeforeTheQuestionOrAfterTheAnswerIsOutside) {
  std::array samples = {Sample(kSecond), Sample(2 * kSecond)};
  samples[0].packet_ns = samples[0].asked_host_ns - 500;
  samples[1].packet_ns = samples[1].seen_host_ns + 700;
  EXPECT_EQ(CompareWithPhc(samples, 0).outside, 2u);
  EXPECT_EQ(CompareWithPhc(samples, 0).worst_ns, 700);
  EXPECT_EQ(CompareWithPhc(samples, 500).outside, 1u) << "the other is within the error";
  EXPECT_EQ(CompareWithPhc(samples, 700).outside, 0u);
}

TEST(PhcTest, AClockThatRunsFasterDrifts) {
  const std::array samples = {Sample(kSecond, 20'000), Sample(101 * kSecond, 20'000)};
  EXPECT_NEAR(CompareWithPhc(samples, 0).drift_ppm, 20, 0.1);
}

TEST(PhcTest, NothingToCompareIsNothing) { EXPECT_EQ(CompareWithPhc({}, 0).packets, 0u); }

TEST(PhcTest, AnInterfacesClockIsFoundInSysfs) {
  std::string sysfs = ::testing::TempDir() + "/phc_test.XXXXXX";
  ASSERT_NE(mkdtemp(sysfs.data()), nullptr);
  const std::string device = sysfs + "/class/net/eth2/device";
  std::filesystem::create_directories(device);
  EXPECT_EQ(PhcOf("eth2", sysfs), "");
  std::filesystem::create_directories(device + "/ptp/ptp3");
  EXPECT_EQ(PhcOf("eth2", sysfs), "ptp3");
  EXPECT_EQ(PhcOf("eth9", sysfs), "");
  std::filesystem::remove_all(sysfs);
}

TEST(PhcTest, WhatIsNoClockIsNotOpened) {
  EXPECT_FALSE(Phc::Open("/dev/null").has_value());
  EXPECT_FALSE(Phc::Open("/dev/no-such-clock").has_value());
}

TEST(PhcTest, TellsTheTimeOfItsClock) {
  const Phc phc(CLOCK_REALTIME);
  const int64_t before = phc.Now();
  EXPECT_LE(before, phc.Now());
  EXPECT_GT(before, kEpoch / 2);
}

}  // namespace
}  // namespace xtreme::hardware
