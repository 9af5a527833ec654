// SPDX-License-Identifier: Apache-2.0
//
// poll() and epoll_wait() on sockets of rings and things of the kernel's at once: when the kernel
// is asked. An eventfd stands for whatever is the kernel's.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "api/sockets/faces.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kEchoPort = 7001;
constexpr int kSkips = 4;  // SELECT_SKIP_OS.

bool NeverWhilePolling() {
  return sockets::Faces::The().settings().select_poll_os_ratio == 0;
}

class KernelTurnsTest : public LinkedFacesTest {
 protected:
  KernelTurnsTest() { EXPECT_EQ(ControlSet(set_, EPOLL_CTL_ADD, fd_, EPOLLIN), 0); }
  ~KernelTurnsTest() override {
    Close(set_);
    Close(fd_);
    close(event_);
  }

  void AddEvent() { EXPECT_EQ(ControlSet(set_, EPOLL_CTL_ADD, event_, EPOLLIN), 0); }
  void Raise() const { EXPECT_EQ(eventfd_write(event_, 1), 0); }
  // A datagram waits at the socket, and is not taken.
  void Arrive() {
    const auto echo = TheirUdpEcho(kEchoPort);
    EXPECT_EQ(SendTo(fd_, "12345", kTheirs, kEchoPort), 5);
    EXPECT_TRUE(Eventually([&] { return WaitSocket(0) == 1; }));
  }
  int Wait(int milliseconds) {
    epoll_event events[4];
    return WaitSet(set_, events, 4, milliseconds);
  }
  // Of the socket alone, which asks no kernel.
  int WaitSocket(int milliseconds) {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    return Poll(&one, 1, milliseconds);
  }
  int PollBoth(int milliseconds) {
    pollfd both[] = {{.fd = fd_, .events = POLLIN, .revents = 0},
                     {.fd = event_, .events = POLLIN, .revents = ~0}};
    return Poll(both, 2, milliseconds);
  }
  // Of calls that the socket's ring answers, the first that tells of the eventfd too.
  static int FirstOfBoth(const std::function<int()>& call) {
    for (int calls = 1; calls <= 3 * kSkips; ++calls) {
      const int ready = call();
      if (ready == 2) return calls;
      EXPECT_EQ(ready, 1);
    }
    return 0;
  }

  const int set_ = NewSet();
  const int fd_ = BoundDatagramSocket(8000);
  const int event_ = eventfd(0, EFD_CLOEXEC);
};

TEST_F(KernelTurnsTest, SetOfSocketsOnRingsAsksNoKernel) {
  // Behind its back: so it is seen whether it asks.
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(set_, EPOLL_CTL_ADD, event_, &event), 0);
  Raise();
  EXPECT_EQ(Wait(0), 0);
  Arrive();
  for (int i = 0; i < 3 * kSkips; ++i) EXPECT_EQ(Wait(0), 1);
}

TEST_F(KernelTurnsTest, CallsThatRingsAnswerAskTheKernelOnceInSoMany) {
  AddEvent();
  Raise();
  Arrive();
  EXPECT_EQ(FirstOfBoth([&] { return Wait(0); }), kSkips + 1);
  EXPECT_EQ(FirstOfBoth([&] { return Wait(0); }), kSkips + 1);
  EXPECT_NE(FirstOfBoth([&] { return PollBoth(0); }), 0);
  EXPECT_EQ(FirstOfBoth([&] { return PollBoth(0); }), kSkips + 1);
}

TEST_F(KernelTurnsTest, OneEventAtATimeTellsOfBoth) {
  AddEvent();
  Raise();
  Arrive();
  bool told = false;
  for (int calls = 0; calls < 3 * kSkips; ++calls) {
    epoll_event event{};
    EXPECT_EQ(WaitSet(set_, &event, 1, 0), 1);
    told |= event.data.fd == event_;
  }
  EXPECT_TRUE(told);
}

TEST_F(KernelTurnsTest, CallThatRingsDoNotAnswerAsksAtOnce) {
  AddEvent();
  EXPECT_EQ(Wait(0), 0);
  EXPECT_EQ(PollBoth(0), 0);
  Raise();
  EXPECT_EQ(Wait(0), 1);
  EXPECT_EQ(PollBoth(0), 1);
}

TEST_F(KernelTurnsTest, WhatTheKernelHasWhileRingsArePolledIsToldAtTheEndAtTheLatest) {
  // Far beyond what a busy machine makes of it where it is told by polling.
  const std::chrono::milliseconds limit(NeverWhilePolling() ? 200 : 20'000);
  AddEvent();
  for (const auto& call : {std::function<int(int)>([&](int ms) { return Wait(ms); }),
                           std::function<int(int)>([&](int ms) { return PollBoth(ms); })}) {
    const auto start = std::chrono::steady_clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Raise();
    });
    EXPECT_EQ(call(static_cast<int>(limit.count())), 1);
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(took >= limit, NeverWhilePolling());
    other.join();
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(event_, &count), 0);
  }
}

}  // namespace
}  // namespace xtreme::faces
