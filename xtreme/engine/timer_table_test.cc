// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/timer_table.h"

#include "gtest/gtest.h"

namespace xtreme::engine {
namespace {

// Polls up to and with the next one that looks.
uint32_t PollsToLook(TimerTable& timers) {
  uint32_t polls = 1;
  while (!timers.IsTurn()) ++polls;
  return polls;
}

TEST(TimerTableTest, OnePollInSoManyLooksAndTheNextOneIfItIsTold) {
  TimerTable timers(1, 4);
  EXPECT_EQ(PollsToLook(timers), TimerTable::kPollsPerLook);
  EXPECT_EQ(PollsToLook(timers), TimerTable::kPollsPerLook);
  timers.MakeTurn();
  EXPECT_EQ(PollsToLook(timers), 1u);
}

TEST(TimerTableTest, APollPutsItsLookOffOnce) {
  TimerTable timers(1, 4);
  for (int i = 0; i < 3; ++i) {
    if (i != 0) timers.MakeTurn();  // The next one looks also where this one would not have.
    EXPECT_TRUE(timers.PutOff());
    EXPECT_FALSE(timers.PutOff()) << "until one has looked";
    EXPECT_EQ(PollsToLook(timers), 1u);
  }
}

// Else very many that are due would wait for a queue that is never empty, again and again.
TEST(TimerTableTest, WhatIsLeftOverOfABarrierFiresWithTheNextPollWhateverComes) {
  constexpr uint32_t kQueue = 64;
  constexpr base::Nanoseconds kNow(1000), kLater(2000);
  TimerTable timers(1, 4);
  bool forced = false;
  EXPECT_EQ(timers.Barrier(kNow, /*receive_empty=*/true, kQueue, &forced), kNow);
  timers.GoOn(kNow, kQueue);
  EXPECT_EQ(PollsToLook(timers), 1u);
  EXPECT_EQ(timers.Barrier(kLater, /*receive_empty=*/false, kQueue, &forced), kNow);
  EXPECT_FALSE(forced) << "the queue was empty when they came due";
  EXPECT_LT(timers.Barrier(kLater, /*receive_empty=*/false, kQueue, &forced), kNow);
}

}  // namespace
}  // namespace xtreme::engine
