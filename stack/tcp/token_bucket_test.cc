// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/token_bucket.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;

int TakeAll(TokenBucket& bucket, Nanoseconds now) {
  int taken = 0;
  while (taken < 1000 && bucket.Take(now)) ++taken;
  return taken;
}

TEST(TokenBucket, IsFullAtFirstAndFillsAtItsRate) {
  for (const Nanoseconds start : {Nanoseconds(0), Seconds(1'000'000)}) {
    TokenBucket bucket(100, 20);
    EXPECT_EQ(TakeAll(bucket, start), 20);
    EXPECT_EQ(TakeAll(bucket, start + Milliseconds(9)), 0);
    EXPECT_EQ(TakeAll(bucket, start + Milliseconds(10)), 1);
    EXPECT_EQ(TakeAll(bucket, start + Milliseconds(55)), 4);
    EXPECT_EQ(TakeAll(bucket, start + Milliseconds(60)), 1);
  }
}

TEST(TokenBucket, HoldsNoMoreThanItsBurst) {
  TokenBucket bucket(100, 20);
  TakeAll(bucket, Seconds(1));
  EXPECT_EQ(TakeAll(bucket, Seconds(1000)), 20);
}

TEST(TokenBucket, AnEmptyOneLetsNothingThrough) {
  TokenBucket bucket(100, 0);
  EXPECT_EQ(TakeAll(bucket, Seconds(1)), 0);
  EXPECT_EQ(TakeAll(bucket, Seconds(1000)), 0);
}

TEST(TokenBucket, FloodsPassAtTheRateExactly) {
  TokenBucket bucket(1000, 10);
  int taken = 0;
  for (Nanoseconds now = Seconds(1); now < Seconds(3); now += Nanoseconds(10'000)) {
    taken += bucket.Take(now);
  }
  EXPECT_EQ(taken, 10 + 1999);
}

}  // namespace
}  // namespace xtreme::tcp
