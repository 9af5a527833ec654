// SPDX-License-Identifier: Apache-2.0

#include "stack/base/timer_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace xtreme::base {
namespace {

std::vector<Timer*> ExpireAll(TimerWheel* wheel, Nanoseconds now) {
  std::vector<Timer*> fired;
  wheel->Expire(now, [&](Timer* timer) {
    fired.push_back(timer);
    return true;
  });
  return fired;
}

TEST(TimerWheelTest, EmptyWheelHasNoDeadline) {
  TimerWheel wheel(Seconds(5));
  EXPECT_TRUE(wheel.empty());
  EXPECT_EQ(wheel.NextDeadline(), kNever);
  EXPECT_TRUE(ExpireAll(&wheel, Seconds(100)).empty());
}

TEST(TimerWheelTest, NeverFiresBeforeItsDeadlineNotByANanosecond) {
  TimerWheel wheel(Nanoseconds(0));
  Timer timer;
  wheel.Arm(&timer, Nanoseconds(5'000));
  EXPECT_EQ(wheel.NextDeadline(), Nanoseconds(5'000));
  EXPECT_TRUE(ExpireAll(&wheel, Nanoseconds(4'999)).empty());
  EXPECT_EQ(wheel.NextDeadline(), Nanoseconds(5'000));
  EXPECT_EQ(ExpireAll(&wheel, Nanoseconds(5'000)).size(), 1u);
  EXPECT_FALSE(timer.armed());
  EXPECT_TRUE(wheel.empty());
}

TEST(TimerWheelTest, DeadlineInThePastFiresAtOnce) {
  TimerWheel wheel(Seconds(10));
  Timer timer;
  wheel.Arm(&timer, Seconds(1));
  EXPECT_EQ(ExpireAll(&wheel, Seconds(10)).size(), 1u);
}

TEST(TimerWheelTest, CancelledAndMovedTimersDoNotFireAtTheOldDeadline) {
  TimerWheel wheel(Nanoseconds(0));
  Timer cancelled, moved, neighbour;
  wheel.Arm(&cancelled, Microseconds(10));
  wheel.Arm(&moved, Microseconds(10));
  wheel.Arm(&neighbour, Microseconds(10));
  wheel.Cancel(&cancelled);
  wheel.Cancel(&cancelled);
  wheel.Arm(&moved, Milliseconds(10));
  EXPECT_EQ(ExpireAll(&wheel, Microseconds(10)), std::vector<Timer*>{&neighbour});
  EXPECT_EQ(ExpireAll(&wheel, Milliseconds(10)), std::vector<Timer*>{&moved});
}

TEST(TimerWheelTest, NextDeadlineIsOfTheNextTimerOnceAnEarlierOneIsCancelled) {
  TimerWheel wheel(Nanoseconds(0));
  Timer cancelled, next;
  wheel.Arm(&cancelled, Microseconds(100));
  wheel.Arm(&next, Microseconds(240));
  wheel.Cancel(&cancelled);
  EXPECT_TRUE(ExpireAll(&wheel, Microseconds(1)).empty());
  EXPECT_EQ(wheel.NextDeadline(), Microseconds(240));
}

TEST(TimerWheelTest, FiresInOrderAcrossAllLevels) {
  TimerWheel wheel(Seconds(3));
  std::deque<Timer> timers(6);
  const Nanoseconds after[] = {Microseconds(3),  Microseconds(300), Milliseconds(80),
                               Seconds(30),      Seconds(3600),     Seconds(200'000)};
  for (int i = 5; i >= 0; --i) wheel.Arm(&timers[i], Seconds(3) + after[i]);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(ExpireAll(&wheel, Seconds(3) + after[i] - Nanoseconds(1)).empty()) << i;
    EXPECT_EQ(ExpireAll(&wheel, Seconds(3) + after[i]), std::vector<Timer*>{&timers[i]}) << i;
  }
}

// In one expiry: what stands further down, in the circle behind, comes before the one that is alone
// a level up, and two of one slot there are put in order first.
TEST(TimerWheelTest, OneAloneInItsSlotWaitsForWhatIsBeforeIt) {
  const auto tick = [](int64_t n) { return Nanoseconds(n << 10); };
  TimerWheel wheel(tick(200));
  Timer alone, wrapped, later, sooner;
  wheel.Arm(&alone, tick(470));
  wheel.Arm(&wrapped, tick(266));
  wheel.Arm(&later, tick(800));
  wheel.Arm(&sooner, tick(780));
  EXPECT_EQ(ExpireAll(&wheel, tick(900)),
            (std::vector<Timer*>{&wrapped, &alone, &sooner, &later}));
  EXPECT_EQ(wheel.NextDeadline(), kNever);
  wheel.Arm(&alone, tick(1400));
  EXPECT_TRUE(ExpireAll(&wheel, tick(1400) - Nanoseconds(1)).empty());
  EXPECT_EQ(ExpireAll(&wheel, tick(1400)), std::vector<Timer*>{&alone});
}

TEST(TimerWheelTest, OneAloneInItsSlotWaitsForWhatIsMovedDownWithIt) {
  const auto tick = [](int64_t n) { return Nanoseconds(n << 10); };
  TimerWheel wheel(tick(0));
  Timer moves, from_above, alone;
  wheel.Arm(&from_above, tick(65'586));
  wheel.Arm(&moves, tick(65'000));
  EXPECT_EQ(ExpireAll(&wheel, tick(65'000)), std::vector<Timer*>{&moves});
  wheel.Arm(&alone, tick(65'736));
  EXPECT_EQ(ExpireAll(&wheel, tick(70'000)), (std::vector<Timer*>{&from_above, &alone}));
}

// Nobody need look where a rotation ends unless something further up is moved down there.
TEST(TimerWheelTest, WhatIsBehindInTheCircleIsNextIfNothingIsMovedDownBefore) {
  const auto tick = [](int64_t n) { return Nanoseconds(n << 10); };
  constexpr int64_t kRotation = 65'536, kSlot = 256;
  TimerWheel wheel(tick(60'000));
  Timer behind, above, moved, alone;
  wheel.Arm(&behind, tick(100'000));
  EXPECT_TRUE(ExpireAll(&wheel, tick(60'001)).empty());
  EXPECT_EQ(wheel.NextDeadline(), tick(100'000 / kSlot * kSlot));
  // Nor where what is further up begins later than the level between them.
  wheel.Arm(&above, tick(256 * kRotation + 100));
  wheel.Arm(&moved, tick(60'203));
  EXPECT_TRUE(ExpireAll(&wheel, tick(60'001)).empty());
  EXPECT_EQ(wheel.NextDeadline(), tick(60'203));
  wheel.Cancel(&moved);
  wheel.Arm(&above, tick(140'000));
  EXPECT_TRUE(ExpireAll(&wheel, tick(60'002)).empty());
  EXPECT_EQ(wheel.NextDeadline(), tick(100'000 / kSlot * kSlot));
  wheel.Arm(&moved, tick(125'600));
  EXPECT_TRUE(ExpireAll(&wheel, tick(60'003)).empty());
  EXPECT_EQ(wheel.NextDeadline(), tick(kRotation));
  EXPECT_EQ(ExpireAll(&wheel, tick(140'000)), (std::vector<Timer*>{&behind, &moved, &above}));
  // Two levels up, where both begin.
  wheel.Arm(&alone, tick(256 * kRotation + 140'001));
  wheel.Arm(&moved, tick(256 * kRotation - 10));
  EXPECT_EQ(ExpireAll(&wheel, tick(256 * kRotation - 10)), std::vector<Timer*>{&moved});
  wheel.Arm(&behind, tick(256 * kRotation + 20));
  EXPECT_TRUE(ExpireAll(&wheel, tick(256 * kRotation - 9)).empty());
  EXPECT_EQ(wheel.NextDeadline(), tick(256 * kRotation));
  EXPECT_EQ(ExpireAll(&wheel, tick(257 * kRotation)), std::vector<Timer*>{&behind});
  EXPECT_EQ(ExpireAll(&wheel, tick(259 * kRotation)), std::vector<Timer*>{&alone});
}

TEST(TimerWheelTest, LongIdleDoesNotMakeTheNextTimerLate) {
  TimerWheel wheel(Nanoseconds(0));
  Timer timer;
  wheel.Arm(&timer, Seconds(86'400));
  EXPECT_EQ(ExpireAll(&wheel, Seconds(86'400)).size(), 1u);
  wheel.Arm(&timer, Seconds(86'400) + Microseconds(7));
  EXPECT_EQ(wheel.NextDeadline(), Seconds(86'400) + Microseconds(7));
  EXPECT_EQ(ExpireAll(&wheel, Seconds(86'400) + Microseconds(7)).size(), 1u);
}

TEST(TimerWheelTest, CallbackMayArmCancelAndStop) {
  TimerWheel wheel(Nanoseconds(0));
  Timer first, second, third;
  wheel.Arm(&first, Microseconds(10));
  wheel.Arm(&second, Microseconds(20));
  wheel.Arm(&third, Microseconds(30));
  std::vector<Timer*> fired;
  wheel.Expire(Milliseconds(1), [&](Timer* timer) {
    fired.push_back(timer);
    wheel.Cancel(&second);
    if (timer == &first) wheel.Arm(&first, Microseconds(40));
    return timer != &third;
  });
  EXPECT_EQ(fired, (std::vector<Timer*>{&first, &third}));
  EXPECT_TRUE(first.armed());
  EXPECT_EQ(ExpireAll(&wheel, Milliseconds(1)), std::vector<Timer*>{&first});
}

// Against a sorted list: whatever is armed, moved and cancelled, each timer fires at the first
// expiry at or after its deadline, in the order of slots, and NextDeadline() is never later than
// the earliest one.
TEST(TimerWheelTest, AgreesWithASortedListForRandomUse) {
  std::mt19937_64 random(20261121);
  constexpr int kTimers = 200;
  TimerWheel wheel(Seconds(1));
  std::deque<Timer> timers(kTimers);
  Nanoseconds now = Seconds(1);
  for (int step = 0; step < 20'000; ++step) {
    Timer* timer = &timers[random() % kTimers];
    const int64_t span = int64_t{1} << (random() % 44);
    if (random() % 4 == 0) wheel.Cancel(timer);
    else wheel.Arm(timer, now + Nanoseconds(static_cast<int64_t>(random() % span)));
    now += Nanoseconds(static_cast<int64_t>(random() % (int64_t{1} << (random() % 36))));
    Nanoseconds earliest = kNever;
    size_t due = 0;
    for (Timer& each : timers) {
      if (!each.armed()) continue;
      earliest = Earlier(earliest, each.deadline);
      due += each.deadline <= now;
    }
    ASSERT_LE(wheel.NextDeadline(), earliest) << "step " << step;
    const std::vector<Timer*> fired = ExpireAll(&wheel, now);
    ASSERT_EQ(fired.size(), due) << "step " << step;
    const auto slot_of = [](const Timer* each) { return each->deadline.count() >> 10; };
    ASSERT_TRUE(std::ranges::is_sorted(fired, {}, slot_of)) << "step " << step;
  }
}

}  // namespace
}  // namespace xtreme::base
