// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/epoll_set.h"

#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>

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

// --- What happens in the middle of a call ---

// A socket on a ring.
class OnRing : public Pollable {
 public:
  RingDoor* door() const override { return ring_; }
  void End() { SayGone(); }
  using Pollable::awaited;

 private:
  // Nobody goes in.
  RingDoor* const ring_ = reinterpret_cast<RingDoor*>(alignof(std::max_align_t));
};

// An event that something happens before: on another thread, between the call's look for the item
// and its change of it, which is where the event is first read. One at a time.
class InterruptingEvent {
 public:
  explicit InterruptingEvent(std::function<void()> happens) : happens_(std::move(happens)) {
    the_ = this;
    sem_init(&read_, 0, 0);
    sem_init(&done_, 0, 0);
    other_ = std::thread([this] {
      sem_wait(&read_);
      if (happened_) happens_();
      sem_post(&done_);
    });
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    new (memory_) epoll_event{.events = EPOLLIN, .data = {}};
    mprotect(memory_, kBytes, PROT_NONE);
    struct sigaction action {};
    action.sa_handler = [](int) { the_->Read(); };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~InterruptingEvent() {
    if (!happened_) sem_post(&read_);
    other_.join();
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, kBytes);
  }
  InterruptingEvent(const InterruptingEvent&) = delete;
  InterruptingEvent& operator=(const InterruptingEvent&) = delete;

  const epoll_event* event() const { return static_cast<const epoll_event*>(memory_); }
  bool happened() const { return happened_; }

 private:
  static constexpr size_t kBytes = 4096;

  void Read() {
    mprotect(memory_, kBytes, PROT_READ);
    happened_ = true;
    sem_post(&read_);
    sem_wait(&done_);
  }

  static inline InterruptingEvent* the_ = nullptr;
  const std::function<void()> happens_;
  std::thread other_;
  sem_t read_;
  sem_t done_;
  void* memory_ = nullptr;
  struct sigaction before_ {};
  bool happened_ = false;
};

// What happens that nobody waits for is told to nobody: a send under who waits to receive.
TEST(EpollSetTest, SocketKnowsWhatItsSetsAwait) {
  const int kernels = epoll_create1(EPOLL_CLOEXEC);
  const int fd = eventfd(0, EFD_CLOEXEC);
  const auto set = std::make_shared<EpollSet>(nullptr, kernels);
  const auto socket = std::make_shared<OnRing>();
  EXPECT_FALSE(socket->awaited(~uint32_t{0}));
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(set->Control(EPOLL_CTL_ADD, fd, &event, socket), 0);
  EXPECT_TRUE(socket->awaited(EPOLLIN));
  EXPECT_FALSE(socket->awaited(EPOLLOUT));
  event.events = EPOLLOUT | EPOLLET;
  ASSERT_EQ(set->Control(EPOLL_CTL_MOD, fd, &event, socket), 0);
  EXPECT_TRUE(socket->awaited(EPOLLOUT));
  {
    const Attachment waiting(socket.get(), &Sleeper::OfThread());
    EXPECT_TRUE(socket->awaited(EPOLLIN)) << "who is for everything";
  }
  EXPECT_FALSE(socket->awaited(EPOLLIN));
  ASSERT_EQ(set->Control(EPOLL_CTL_DEL, fd, nullptr, socket), 0);
  EXPECT_FALSE(socket->awaited(~uint32_t{0}));
  close(fd);
  close(kernels);
}

class OvertakenTest : public testing::TestWithParam<bool> {};

// The number is somebody else's by then.
TEST_P(OvertakenTest, ChangeOfAnItemThatIsGonePutsNothingIntoTheKernelsSet) {
  const int kernels = epoll_create1(EPOLL_CLOEXEC);
  const int fd = eventfd(0, EFD_CLOEXEC);
  const auto set = std::make_shared<EpollSet>(nullptr, kernels);
  const auto socket = std::make_shared<OnRing>();
  const epoll_event added{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(set->Control(EPOLL_CTL_ADD, fd, &added, socket), 0);
  const InterruptingEvent changed([&] {
    if (GetParam()) return socket->End();
    EXPECT_EQ(set->Control(EPOLL_CTL_DEL, fd, nullptr, socket), 0);
  });
  EXPECT_EQ(set->Control(EPOLL_CTL_MOD, fd, changed.event(), socket), -ENOENT);
  EXPECT_TRUE(changed.happened());
  EXPECT_EQ(epoll_ctl(kernels, EPOLL_CTL_DEL, fd, nullptr), -1);
  EXPECT_EQ(errno, ENOENT);
  close(fd);
  close(kernels);
}

INSTANTIATE_TEST_SUITE_P(EpollSetTest, OvertakenTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "ByClose" : "ByRemoval"; });

}  // namespace
}  // namespace xtreme::sockets
