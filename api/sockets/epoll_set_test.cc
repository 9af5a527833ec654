// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/epoll_set.h"

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "api/sockets/watch.h"

namespace xtreme::sockets {
namespace {

constexpr int kNone = -1;
constexpr int kFd = 1000;

// A socket whose last descriptor is being closed, and to which something happens meanwhile.
class Ending : public Pollable {
 public:
  bool Ended() const override { return true; }
  void Happen() { Change(EPOLLIN, 0, EPOLLIN); }
};

// Who tells of it may do so once it is watched, and before it is found to have ended.
TEST(EpollSetTest, WhatIsBeingClosedIsNoMemberAndNotReadyThoughItIsToldOf) {
  constexpr int kTimes = 50'000;
  const auto set = std::make_shared<EpollSet>(nullptr, kNone);
  const auto ending = std::make_shared<Ending>();
  std::atomic<bool> over{false};
  std::atomic<bool> telling{false};
  std::thread teller([&] {
    while (!over) {
      ending->Happen();
      telling = true;
      telling.notify_one();
    }
  });
  telling.wait(false);
  epoll_event event{};
  event.events = EPOLLIN;
  int refused = 0;
  int ready = 0;
  for (int i = 0; i < kTimes; ++i) {
    refused += set->Control(EPOLL_CTL_ADD, kFd, &event, ending) == -EBADF;
    ready += set->Look() != 0;
  }
  over = true;
  teller.join();
  EXPECT_EQ(refused, kTimes);
  EXPECT_EQ(ready, 0);
  EXPECT_TRUE(set->Members().empty());
}

}  // namespace
}  // namespace xtreme::sockets
