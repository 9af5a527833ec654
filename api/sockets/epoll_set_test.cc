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

// A socket to which something happens while it is added: one whose last descriptor is being
// closed, or one of the kernel's, which has no such set.
class Refused : public Pollable {
 public:
  explicit Refused(bool ended) : ended_(ended) {}
  bool Ended() const override { return ended_; }
  void Happen() { Change(EPOLLIN, 0, EPOLLIN); }

 private:
  const bool ended_;
};

class RefusedTest : public testing::TestWithParam<bool> {};

// Who tells of it may do so once it is watched, and before it is found to be refused.
TEST_P(RefusedTest, IsNoMemberAndNotReadyThoughItIsToldOf) {
  constexpr int kTimes = 50'000;
  const auto set = std::make_shared<EpollSet>(nullptr, kNone);
  const auto socket = std::make_shared<Refused>(GetParam());
  std::atomic<bool> over{false};
  std::atomic<bool> telling{false};
  std::thread teller([&] {
    while (!over) {
      socket->Happen();
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
    refused += set->Control(EPOLL_CTL_ADD, kFd, &event, socket) == -EBADF;
    ready += set->Look() != 0;
  }
  over = true;
  teller.join();
  EXPECT_EQ(refused, kTimes);
  EXPECT_EQ(ready, 0);
  EXPECT_TRUE(set->Members().empty());
}

INSTANTIATE_TEST_SUITE_P(EpollSetTest, RefusedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Ended" : "ByTheKernel"; });

}  // namespace
}  // namespace xtreme::sockets
