// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/time_of_day.h"

#include <gtest/gtest.h>

namespace xtreme::connectx {
namespace {

constexpr int64_t kHour = 3'600'000'000'000;

// The clocks a while after the start, the time of day `set_ns` off.
TimeOfDay::Reading After(int64_t ns, int64_t set_ns, int64_t between_ns = 100) {
  return {ns, 1'700'000'000'000'000'000 + ns + set_ns + between_ns / 2, ns + between_ns};
}

TEST(TimeOfDayTest, StepsAreTakenOutBothWays) {
  TimeOfDay time;
  time.Look(After(0, 0));
  EXPECT_EQ(time.Unset(5), 5);
  time.Look(After(1'000, kHour));
  EXPECT_EQ(time.Unset(kHour + 5), 5);
  time.Look(After(2'000, -kHour));
  EXPECT_EQ(time.Unset(5 - kHour), 5);
  time.Look(After(3'000, 0));
  EXPECT_EQ(time.Unset(5), 5);
}

TEST(TimeOfDayTest, WhatAReadingIsOffByIsNoStep) {
  TimeOfDay time;
  time.Look(After(0, 0));
  time.Look(After(1'000, 0, 9'000));
  EXPECT_EQ(time.Unset(5), 5);
  time.Look(After(2'000, kHour, 20'000));
  EXPECT_EQ(time.Unset(5), 5) << "interrupted between the readings";
}

TEST(TimeOfDayTest, ReadsTheSystemsClocks) {
  TimeOfDay time;
  for (int i = 0; i < 1000; ++i) time.Look(TimeOfDay::Read());
  EXPECT_EQ(time.Unset(5), 5);
}

}  // namespace
}  // namespace xtreme::connectx
