// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/waiter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace xtreme::engine {
namespace {

std::unique_ptr<Waiter> MakeWaiter() {
  auto waiter = Waiter::Create();
  EXPECT_TRUE(waiter.ok()) << waiter.status();
  return std::move(*waiter);
}

bool Readable(int fd, int timeout_ms = 0) {
  pollfd waited = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waited, 1, timeout_ms) == 1;
}

base::Nanoseconds Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return base::Seconds(now.tv_sec) + base::Nanoseconds(now.tv_nsec);
}

TEST(WaiterTest, WakeMakesAnArmedFdReadableUntilTheNextArm) {
  auto waiter = MakeWaiter();
  waiter->Wake();
  EXPECT_FALSE(Readable(waiter->fd()));  // Not armed: no system call, no event.
  waiter->Arm(base::kNever);
  EXPECT_FALSE(Readable(waiter->fd()));
  waiter->Wake();
  EXPECT_TRUE(Readable(waiter->fd()));
  EXPECT_TRUE(Readable(waiter->fd()));
  waiter->Arm(base::kNever);
  EXPECT_FALSE(Readable(waiter->fd()));
}

TEST(WaiterTest, DeadlineMakesItReadableAndNoDeadlineTakesItBack) {
  auto waiter = MakeWaiter();
  waiter->Arm(Now() + base::Milliseconds(1));
  EXPECT_TRUE(Readable(waiter->fd(), 10'000));
  waiter->Arm(base::kNever);
  EXPECT_FALSE(Readable(waiter->fd()));
  waiter->Arm(base::Nanoseconds(0));
  EXPECT_TRUE(Readable(waiter->fd(), 10'000));
}

TEST(WaiterTest, WorksInsideAnotherEpollSet) {
  auto waiter = MakeWaiter();
  const int queue = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_TRUE(waiter->Add(queue));
  const int outer = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = 7}};
  ASSERT_EQ(epoll_ctl(outer, EPOLL_CTL_ADD, waiter->fd(), &event), 0);
  EXPECT_EQ(epoll_wait(outer, &event, 1, 0), 0);
  const uint64_t one = 1;
  ASSERT_EQ(write(queue, &one, sizeof one), 8);
  ASSERT_EQ(epoll_wait(outer, &event, 1, 0), 1);
  EXPECT_EQ(event.data.u64, 7u);
  waiter->Remove(queue);
  EXPECT_EQ(epoll_wait(outer, &event, 1, 0), 0);
  close(outer);
  close(queue);
}

TEST(WaiterTest, SleepEndsAfterItsTimeOut) {
  auto waiter = MakeWaiter();
  waiter->Arm(base::kNever);
  EXPECT_TRUE(waiter->Sleep(base::Microseconds(100)));
}

// What is put before Wake() is seen by the look after Arm(), or the fd becomes readable: otherwise
// this test hangs.
TEST(WaiterTest, NoWakeUpIsLost) {
  constexpr int kValues = 20'000;
  auto waiter = MakeWaiter();
  std::atomic<int> put{0};
  std::thread producer([&] {
    for (int i = 1; i <= kValues; ++i) {
      put.store(i, std::memory_order_release);
      waiter->Wake();
    }
  });
  int seen = 0;
  while (seen < kValues) {
    waiter->Arm(base::kNever);
    const int now = put.load(std::memory_order_acquire);
    if (now == seen) {
      ASSERT_TRUE(Readable(waiter->fd(), 60'000));
    }
    seen = now;
  }
  producer.join();
}

}  // namespace
}  // namespace xtreme::engine
