// SPDX-License-Identifier: Apache-2.0
#include "stack/base/time.h"

#include <gtest/gtest.h>

namespace xtreme::base {
namespace {

TEST(Time, UnitsAreNanoseconds) {
  EXPECT_EQ(Microseconds(3).count(), 3'000);
  EXPECT_EQ(Milliseconds(3).count(), 3'000'000);
  EXPECT_EQ(Seconds(3).count(), 3'000'000'000);
}

TEST(Time, ArithmeticKeepsTheType) {
  Nanoseconds t = Seconds(1) + Milliseconds(500);
  EXPECT_EQ(t, Milliseconds(1500));
  EXPECT_EQ(t - Seconds(2), Milliseconds(-500));
  EXPECT_EQ(t * 2, Seconds(3));
  EXPECT_EQ(t / 3, Milliseconds(500));
  EXPECT_EQ(t / Milliseconds(400), 3);
  t += Milliseconds(500);
  EXPECT_EQ(t, Seconds(2));
  t -= Seconds(5);
  EXPECT_EQ(t, -Seconds(3));
}

TEST(Time, NeverIsLaterThanEverything) {
  EXPECT_GT(kNever, Seconds(3600 * 24 * 365));
  EXPECT_EQ(Earlier(kNever, Seconds(1)), Seconds(1));
  EXPECT_EQ(Later(kNever, Seconds(1)), kNever);
}

TEST(Time, ADeadlineNeverWrapsIntoThePast) {
  EXPECT_EQ(DeadlineAfter(Seconds(1), Seconds(2)), Seconds(3));
  EXPECT_EQ(DeadlineAfter(Seconds(1), kNever), kNever);
  EXPECT_EQ(DeadlineAfter(Seconds(-1), kNever), kNever);
  EXPECT_EQ(DeadlineAfter(kNever - Seconds(1), Seconds(2)), kNever);
}

}  // namespace
}  // namespace xtreme::base
