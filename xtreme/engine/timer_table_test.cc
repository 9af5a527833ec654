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

}  // namespace
}  // namespace xtreme::engine
