// SPDX-License-Identifier: Apache-2.0
//
// Waiting: who spins, who arms and sleeps, and what ends it.
//
// Each look at the clock takes a microsecond of virtual time, so a spin ends by itself. A queue is
// armed only by a ring that is about to sleep.

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class RingWaitTest : public RingTest {
 protected:
  void OpenWith(WaitPolicy policy) {
    options.wait = policy;
    options.spin_us = 50;
    Open();
    OpenSocket(7000);
    look_ns = 1'000;
  }
  int Wait(base::Nanoseconds timeout) {
    return ring->Wait(&completion_, 1, sizeof completion_, timeout);
  }

  Completion completion_;
};

constexpr WaitPolicy kPolicies[] = {WaitPolicy::kBusy, WaitPolicy::kSleep, WaitPolicy::kHybrid};

TEST_F(RingWaitTest, BusySpinsToItsTimeOutAndArmsNothing) {
  OpenWith(WaitPolicy::kBusy);
  const uint64_t start = now;
  EXPECT_EQ(Wait(base::Milliseconds(5)), 0);
  EXPECT_GE(now - start, 5'000'000u);
  EXPECT_LE(now - start, 5'010'000u);
  EXPECT_FALSE(queue().armed());
}

TEST_F(RingWaitTest, SleepArmsAtOnce) {
  OpenWith(WaitPolicy::kSleep);
  const uint64_t start = now;
  // The kernel sleeps as long in real time; the looks before and after use the rest up.
  EXPECT_EQ(Wait(base::Microseconds(8)), 0);
  EXPECT_TRUE(queue().armed());
  EXPECT_LE(now - start, 20'000u);
}

TEST_F(RingWaitTest, HybridSpinsForItsTimeAndThenArms) {
  OpenWith(WaitPolicy::kHybrid);
  EXPECT_EQ(Wait(base::Microseconds(40)), 0);
  EXPECT_FALSE(queue().armed());
  const uint64_t start = now;
  EXPECT_EQ(Wait(base::Microseconds(60)), 0);
  EXPECT_TRUE(queue().armed());
  EXPECT_GE(now - start, 50'000u);
}

TEST_F(RingWaitTest, WhatIsThereAlreadyIsReturnedWithoutArming) {
  for (const WaitPolicy policy : kPolicies) {
    SCOPED_TRACE(static_cast<int>(policy));
    look_ns = 0;
    ring.reset();
    engine.reset();
    OpenWith(policy);
    ASSERT_TRUE(Inject({}));
    ASSERT_EQ(Wait(base::kNever), 1);
    EXPECT_EQ(completion_.kind, Kind::kPacket);
    EXPECT_FALSE(queue().armed());
    packet::BufferPool::ReleaseChain(completion_.buffer);
  }
}

TEST_F(RingWaitTest, AnotherThreadsValueEndsAWaitWithoutATimeOut) {
  for (const WaitPolicy policy : kPolicies) {
    SCOPED_TRACE(static_cast<int>(policy));
    look_ns = 0;
    ring.reset();
    engine.reset();
    OpenWith(policy);
    const auto lane = ring->OpenLane();
    std::thread other([&lane] { EXPECT_EQ(lane->Post(42), 0); });
    ASSERT_EQ(Wait(base::kNever), 1);
    other.join();
    EXPECT_EQ(completion_.kind, Kind::kPosted);
    EXPECT_EQ(completion_.value, 42u);
  }
}

TEST_F(RingWaitTest, ATimerEndsASleepWithoutATimeOut) {
  OpenWith(WaitPolicy::kSleep);
  ring->StartTimer(base::Nanoseconds(static_cast<int64_t>(now.load())) + base::Microseconds(30), 9);
  // The timerfd is of real time, which has long passed the deadline.
  while (Wait(base::kNever) == 0) {
  }
  EXPECT_EQ(completion_.kind, Kind::kTimer);
  EXPECT_EQ(completion_.cookie, 9u);
}

TEST_F(RingWaitTest, ASignalEndsASleepWithEintr) {
  OpenWith(WaitPolicy::kSleep);
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> ended{false};
  const pthread_t self = pthread_self();
  // A signal before the sleep is lost: so until one ends it.
  std::thread other([&ended, self] {
    while (!ended) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(Wait(base::kNever), -EINTR);
  ended = true;
  other.join();
  sigaction(SIGUSR1, &before, nullptr);
}

// The kernel closes the channels of a device that was pulled: such a descriptor is ready for ever.
TEST_F(RingWaitTest, ARemovedDeviceWakesNobodyForItsQueues) {
  OpenWith(WaitPolicy::kSleep);
  const auto ready = [this] {
    pollfd fd{.fd = ring->fd(), .events = POLLIN, .revents = 0};
    return poll(&fd, 1, 0) == 1;
  };
  EXPECT_FALSE(ready());
  eventfd_write(queue().fd(), 1);
  EXPECT_TRUE(ready());
  ring->OnPortEvent(nic::PortEvent::kDeviceRemoved);
  EXPECT_FALSE(ready());
}

}  // namespace
}  // namespace xtreme::engine::testing
