// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: timers, lanes, watched fds, waking and handing a ring over.

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

using ThreadsTest = ApiTest;

TEST_F(ThreadsTest, ATimerFiresOnceAtOrAfterItsDeadline) {
  const xtreme_ring ring = OpenRing();
  xtreme_timer timer;
  const int64_t deadline_ns = xtreme_ring_now(ring) + 1'000'000;
  ASSERT_EQ(xtreme_timer_start(ring, deadline_ns, 17, &timer), 0);
  const xtreme_completion fired = Await(ring, XTREME_TIMER);
  EXPECT_EQ(fired.cookie, 17u);
  EXPECT_EQ(fired.deadline_ns, deadline_ns);
  EXPECT_GE(xtreme_ring_now(ring), deadline_ns);
  EXPECT_EQ(xtreme_timer_cancel(ring, timer), -EBADF);
}

TEST_F(ThreadsTest, ACancelledTimerDoesNotFire) {
  const xtreme_ring ring = OpenRing();
  const int64_t now_ns = xtreme_ring_now(ring);
  xtreme_timer first, second;
  ASSERT_EQ(xtreme_timer_start(ring, now_ns + 1'000'000, 1, &first), 0);
  ASSERT_EQ(xtreme_timer_start(ring, now_ns + 2'000'000, 2, &second), 0);
  EXPECT_EQ(xtreme_timer_cancel(ring, first), 0);
  EXPECT_EQ(xtreme_timer_cancel(ring, first), -EBADF);
  EXPECT_EQ(Await(ring, XTREME_TIMER).cookie, 2u);
}

TEST_F(ThreadsTest, ADeadlineOfLongAgoIsLateByAsMuch) {
  const xtreme_ring ring = OpenRing();
  xtreme_timer timer;
  ASSERT_EQ(xtreme_timer_start(ring, INT64_MIN, 1, &timer), 0);
  const xtreme_completion fired = Await(ring, XTREME_TIMER);
  EXPECT_EQ(fired.deadline_ns, INT64_MIN);
  EXPECT_GT(fired.late_ns, uint64_t{1} << 63);
}

TEST_F(ThreadsTest, ATimerIsCancelledOnItsOwnRingOnly) {
  const xtreme_ring ring = OpenRing("xt0"), other = OpenRing("xt1");
  xtreme_timer timer, others;
  ASSERT_EQ(xtreme_timer_start(ring, INT64_MAX / 2, 1, &timer), 0);
  ASSERT_EQ(xtreme_timer_start(other, INT64_MAX / 2, 2, &others), 0);
  EXPECT_EQ(xtreme_timer_cancel(other, timer), -EBADF);
  EXPECT_EQ(xtreme_timer_cancel(other, others), 0);
  EXPECT_EQ(xtreme_timer_cancel(ring, timer), 0);
}

TEST_F(ThreadsTest, MoreTimersThanThereAreIsEnobufs) {
  const xtreme_ring ring = OpenRing();
  xtreme_timer timer;
  int armed = 0;
  while (armed < 100'000 && xtreme_timer_start(ring, INT64_MAX / 2, 0, &timer) == 0) ++armed;
  EXPECT_EQ(armed, 1'024);
  EXPECT_EQ(xtreme_timer_start(ring, 1, 0, &timer), -ENOBUFS);
  EXPECT_STREQ(xtreme_error(), "start timer: 1024 are armed");
}

TEST_F(ThreadsTest, ValuesOfAnotherThreadComeInOrder) {
  const xtreme_ring ring = OpenRing();
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring, &lane), 0);
  std::thread([lane] {
    for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(xtreme_lane_post(lane, i), 0);
  }).join();
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(Await(ring, XTREME_POSTED).value, i);
  EXPECT_EQ(xtreme_lane_close(lane), 0);
  EXPECT_EQ(xtreme_lane_close(lane), -EBADF);
  EXPECT_EQ(xtreme_lane_post(lane, 1), -EBADF);
}

TEST_F(ThreadsTest, AFullLaneIsEagainAndAClosedRingEpipe) {
  const xtreme_ring ring = OpenRing();
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring, &lane), 0);
  int posted = 0;
  while (posted < 100'000 && xtreme_lane_post(lane, 1) == 0) ++posted;
  EXPECT_EQ(posted, 4'096);
  EXPECT_EQ(xtreme_lane_post(lane, 1), -EAGAIN);
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_EQ(xtreme_lane_post(lane, 1), -EPIPE);
  EXPECT_EQ(xtreme_lane_close(lane), 0);
}

TEST_F(ThreadsTest, MoreLanesThanThereAreIsEnobufs) {
  const xtreme_ring ring = OpenRing();
  std::vector<xtreme_lane> lanes(1);
  while (lanes.size() < 1'000 && xtreme_lane_open(ring, &lanes.back()) == 0) lanes.push_back({});
  lanes.pop_back();
  EXPECT_EQ(lanes.size(), 64u);
  EXPECT_STREQ(xtreme_error(), "open lane: 64 are open");
  for (const xtreme_lane lane : lanes) xtreme_lane_close(lane);
}

TEST_F(ThreadsTest, ALaneThatWasClosedMakesRoomForAnother) {
  const xtreme_ring ring = OpenRing();
  for (int i = 0; i < 200; ++i) {
    xtreme_lane lane;
    ASSERT_EQ(xtreme_lane_open(ring, &lane), 0) << i << " were opened and closed";
    ASSERT_EQ(xtreme_lane_close(lane), 0);
  }
}

TEST_F(ThreadsTest, TwoRingsWatchOneFd) {
  const xtreme_ring ring = OpenRing("xt0"), other = OpenRing("xt1");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(xtreme_ring_watch(ring, ends[0], EPOLLIN), 0);
  ASSERT_EQ(xtreme_ring_watch(other, ends[0], EPOLLIN), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(Await(ring, XTREME_FD_EVENT).fd, ends[0]);
  EXPECT_EQ(Await(other, XTREME_FD_EVENT).fd, ends[0]);
  // One of them ends, and the other goes on being told.
  ASSERT_EQ(xtreme_ring_watch(ring, ends[0], EPOLLIN), 0);
  EXPECT_EQ(Await(ring, XTREME_FD_EVENT).fd, ends[0]);
  ASSERT_EQ(xtreme_ring_watch(other, ends[0], EPOLLIN), 0);
  ASSERT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_EQ(Await(other, XTREME_FD_EVENT).fd, ends[0]);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ThreadsTest, AnInterruptedWaitSaysSo) {
  xtreme_ring_options options = Options("xt0");
  options.wait = XTREME_WAIT_SLEEP;
  const xtreme_ring ring = OpenRing(options);
  struct sigaction quiet = {};
  quiet.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &quiet, nullptr), 0);
  ualarm(20'000, 20'000);
  xtreme_completion got;
  int count = 0;
  while ((count = xtreme_ring_wait(ring, &got, 1, sizeof got, kLongNs)) > 0) {
    xtreme_release(&got, count, sizeof got);
  }
  ualarm(0, 0);
  EXPECT_EQ(count, -EINTR);
  EXPECT_STREQ(xtreme_error(), "wait: a signal came");
}

TEST_F(ThreadsTest, AWatchedFdIsReportedOnceUntilItIsWatchedAgain) {
  const xtreme_ring ring = OpenRing();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(xtreme_ring_watch(ring, ends[0], EPOLLIN), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  for (int i = 0; i < 2; ++i) {
    const xtreme_completion ready = Await(ring, XTREME_FD_EVENT);
    EXPECT_EQ(ready.fd, ends[0]);
    EXPECT_NE(ready.events & EPOLLIN, 0u);
    EXPECT_EQ(ready.status, 0);
    ASSERT_EQ(xtreme_ring_watch(ring, ends[0], i == 0 ? uint32_t{EPOLLIN} : 0u), 0);
  }
  EXPECT_EQ(xtreme_ring_watch(ring, -1, EPOLLIN), -EBADF);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ThreadsTest, WhatTheKernelDoesNotWatchIsTold) {
  const xtreme_ring ring = OpenRing();
  ASSERT_EQ(xtreme_ring_watch(ring, 100'000, EPOLLIN), 0);
  EXPECT_EQ(Await(ring, XTREME_FD_EVENT).status, EBADF);
}

TEST_F(ThreadsTest, WakingMakesAnArmedFdReadable) {
  const xtreme_ring ring = OpenRing();
  while (xtreme_ring_arm(ring) != 0) {
    xtreme_completion other;
    const int count = xtreme_ring_poll(ring, &other, 1, sizeof other);
    xtreme_release(&other, count, sizeof other);
  }
  pollfd armed{.fd = xtreme_ring_fd(ring), .events = POLLIN};
  EXPECT_EQ(poll(&armed, 1, 0), 0);
  std::thread([ring] { EXPECT_EQ(xtreme_ring_wake(ring), 0); }).join();
  EXPECT_EQ(poll(&armed, 1, 0), 1);
}

TEST_F(ThreadsTest, AWokenRingThatSleepsLooksAgain) {
  xtreme_ring_options options = Options("xt0");
  options.wait = XTREME_WAIT_SLEEP;
  const xtreme_ring ring = OpenRing(options);
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring, &lane), 0);
  std::thread poster([&] {
    EXPECT_EQ(xtreme_ring_wake(ring), 0);
    EXPECT_EQ(xtreme_lane_post(lane, 9), 0);
  });
  EXPECT_EQ(Await(ring, XTREME_POSTED).value, 9u);
  poster.join();
  xtreme_lane_close(lane);
}

TEST_F(ThreadsTest, AWaitEndsWithItsTime) {
  const xtreme_ring ring = OpenRing();
  xtreme_completion none;
  const int64_t begin_ns = xtreme_ring_now(ring);
  int got = 0;
  while ((got = xtreme_ring_wait(ring, &none, 1, sizeof none, 2'000'000)) != 0) {
    xtreme_release(&none, got, sizeof none);
  }
  EXPECT_GE(xtreme_ring_now(ring) - begin_ns, 2'000'000);
}

#if XTREME_DEBUG
TEST_F(ThreadsTest, CallsOfAnotherThreadAreBusyInACheckedBuild) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  const int ring_fd = xtreme_ring_fd(ring);
  std::thread([&] {
    xtreme_completion got;
    xtreme_group other;
    xtreme_socket opened;
    xtreme_timer timer;
    xtreme_lane lane;
    xtreme_buffer* buffer;
    uint8_t* data;
    uint32_t capacity;
    const xtreme_udp_options udp = UdpOptions(":9001");
    const xtreme_address address = Address("239.1.2.3:9000");
    xtreme_address local;
    const int codes[] = {
        xtreme_ring_start(ring),
        xtreme_ring_close(ring),
        xtreme_ring_poll(ring, &got, 1, sizeof got),
        xtreme_ring_more(ring),
        xtreme_ring_arm(ring),
        xtreme_ring_wait(ring, &got, 1, sizeof got, 0),
        xtreme_ring_reset(ring, 0),
        xtreme_ring_fd(ring),
        static_cast<int>(xtreme_ring_now(ring)),
        static_cast<int>(xtreme_ring_clock_error(ring)),
        xtreme_ring_describe(ring, nullptr, 0),
        xtreme_poll_fd(ring_fd, &got, 1, sizeof got),
        xtreme_ring_flush(ring),
        xtreme_group_open(&ring, 1, &other),
        xtreme_udp_open(ring, &udp, &opened),
        xtreme_udp_connect(socket, &address, 0),
        xtreme_join(socket, &address, nullptr, 0, 0),
        xtreme_leave(socket, &address, nullptr, 0),
        xtreme_socket_close(socket, 0),
        xtreme_socket_set_user_data(socket, 1),
        xtreme_socket_local(socket, &local),
        xtreme_buffer_acquire(ring, &buffer, &data, &capacity),
        xtreme_timer_start(ring, 0, 0, &timer),
        xtreme_timer_cancel(ring, {}),
        xtreme_lane_open(ring, &lane),
        xtreme_ring_watch(ring, 0, EPOLLIN),
        xtreme_ring_counters(ring, nullptr, 0),
        xtreme_socket_counters(socket, nullptr, 0),
    };
    for (const int& code : codes) EXPECT_EQ(code, -EBUSY) << "call " << &code - codes;
    EXPECT_STREQ(xtreme_error(), "ring: another thread owns it; see xtreme_ring_adopt()");
    EXPECT_EQ(xtreme_send(socket, "x", 1, nullptr), XTREME_REFUSED_STATE);
    EXPECT_EQ(xtreme_send_to(socket, &address, "x", 1, nullptr), XTREME_REFUSED_STATE);
    EXPECT_EQ(xtreme_would_send(socket, 1), XTREME_REFUSED_STATE);
    EXPECT_EQ(xtreme_ring_wake(ring), 0);
  }).join();
}

TEST_F(ThreadsTest, CallsOfAnotherThreadOnAGroupAreBusyInACheckedBuild) {
  const xtreme_ring ring = OpenRing();
  xtreme_group group;
  ASSERT_EQ(xtreme_group_open(&ring, 1, &group), 0);
  const int fd = xtreme_group_fd(group);
  std::thread([&] {
    xtreme_completion got;
    const int codes[] = {
        xtreme_group_poll(group, &got, 1, sizeof got),
        xtreme_poll_fd(fd, &got, 1, sizeof got),
        xtreme_group_arm(group),
        xtreme_group_fd(group),
        xtreme_group_set_order(group, XTREME_GROUP_FAIR),
        xtreme_group_close(group),
    };
    for (const int& code : codes) EXPECT_EQ(code, -EBUSY) << "call " << &code - codes;
  }).join();
  EXPECT_EQ(xtreme_group_close(group), 0);
}
#endif

TEST_F(ThreadsTest, ARingIsHandedOverToAnotherThreadAndBack) {
  const xtreme_ring ring = OpenRing();
  OpenSocket(ring, ":9000");
  std::thread([&] {
    ASSERT_EQ(xtreme_ring_adopt(ring), 0);
    Inject(9000, "theirs");
    xtreme_completion packet = Await(ring, XTREME_PACKET);
    EXPECT_EQ(Text(packet), "theirs");
    xtreme_release(&packet, 1, sizeof packet);
  }).join();
  ASSERT_EQ(xtreme_ring_adopt(ring), 0);
  Inject(9000, "ours");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(packet), "ours");
  xtreme_release(&packet, 1, sizeof packet);
}

}  // namespace
}  // namespace xtreme::api_test
