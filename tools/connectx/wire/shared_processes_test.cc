// SPDX-License-Identifier: Apache-2.0
//
// Members of a shared wire that are killed at any point: what they leave is whole, and their ports
// are free. A member is a forked child that knows nothing of the test.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kSeed = 20'240'607;

// A frame whose every byte follows from its number and its sender.
std::vector<uint8_t> CheckedFrame(uint8_t sender, uint32_t number) {
  std::vector<uint8_t> frame = NumberedFrame(number, 60 + number % 700);
  std::fill_n(frame.begin(), 12, uint8_t{0});
  frame[0] = 2;  // To station 0.
  frame[6] = 2;
  frame[11] = sender;
  for (size_t i = 18; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>(number + i + sender);
  return frame;
}

class SharedProcessesTest : public testing::Test {
 protected:
  SharedProcessesTest()
      : segment_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
                 testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  ~SharedProcessesTest() override { std::filesystem::remove_all(segment_); }

  std::unique_ptr<SharedWire> Open() const {
    auto wire = SharedWire::Open({.segment = segment_, .ports = 4, .ring_bytes = 32 << 10});
    return wire.ok() ? *std::move(wire) : nullptr;
  }

  static pid_t Fork(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(0);
    }
    return child;
  }

  // Sends for ever as `sender`.
  void SendForever(uint8_t sender) const {
    auto wire = Open();
    for (uint32_t number = 0; wire != nullptr; ++number) {
      while (!wire->Transmit(CheckedFrame(sender, number), 0)) ::usleep(10);
    }
  }

  // Waits until the child has written to the pipe, and closes it.
  static void AwaitByte(const int (&pipe)[2]) {
    char byte;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }

  static void Kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  // Checks that frames are whole, and that those of a sender come in order without a gap.
  struct Checked final : FrameSink {
    void OnFrame(std::span<const uint8_t> frame, int64_t) override {
      const uint8_t sender = frame[11];
      const uint32_t number = NumberOf(frame);
      const auto expected = CheckedFrame(sender, number);
      ASSERT_EQ(std::vector<uint8_t>(frame.begin(), frame.end()), expected);
      ASSERT_EQ(number, next[sender]) << "of sender " << int{sender};
      next[sender] = number + 1;
    }
    std::array<uint32_t, 256> next{};
  };

  const std::string segment_;
};

TEST_F(SharedProcessesTest, SenderKilledAtAnyPointHarmsNobody) {
  std::mt19937 random(kSeed);
  auto receiver = Open();
  ASSERT_NE(receiver, nullptr);
  receiver->Transmit(CheckedFrame(0, 0), 0);  // From then on its address is known.
  const pid_t steady = Fork([this] { SendForever(1); });
  Checked frames;
  for (int round = 0; round < 100; ++round) {
    frames.next[2] = 0;
    const pid_t doomed = Fork([this] { SendForever(2); });
    const uint32_t enough = random() % 400;
    const uint32_t more = frames.next[1] + 20;
    while (frames.next[2] < enough || frames.next[1] < more) {
      if (receiver->Receive(frames, 64, 0) == 0) ::poll(nullptr, 0, 1);
    }
    Kill(doomed);
    // What the dead left is whole too, and belongs to the dead.
    while (receiver->Receive(frames, 64, 0) != 0 && !HasFatalFailure()) {
    }
    ASSERT_FALSE(HasFatalFailure()) << "seed " << kSeed << ", round " << round;
  }
  Kill(steady);
  EXPECT_EQ(CountOf(*receiver, "rx_dropped_corrupt"), 0u);
}

TEST_F(SharedProcessesTest, MemberKilledWhileItComesOrGoesKeepsNobodyOut) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 100; ++round) {
    const pid_t doomed = Fork([this] {
      for (;;) Open().reset();
    });
    ::usleep(random() % 3'000);
    Kill(doomed);
    auto a = Open();
    auto b = Open();
    ASSERT_TRUE(a != nullptr && b != nullptr) << "seed " << kSeed << ", round " << round;
    ASSERT_TRUE(a->Transmit(CheckedFrame(1, round), 0));
    FrameList frames;
    ASSERT_EQ(b->Receive(frames, 64, 0), 1);
  }
  EXPECT_FALSE(std::filesystem::exists(segment_));
}

TEST_F(SharedProcessesTest, PortOfADeadReceiverIsNoLongerSentTo) {
  auto sender = Open();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t receiver = Fork([&] {
    auto wire = Open();
    (void)!::write(ready[1], "r", 1);
    for (;;) ::pause();
  });
  AwaitByte(ready);
  Kill(receiver);
  for (uint32_t i = 0; i < 1000; ++i) sender->Transmit(CheckedFrame(1, i), 0);
  const uint64_t dropped = CountOf(*sender, "tx_dropped_full");
  EXPECT_GT(dropped, 0u);
  EXPECT_LE(dropped, 16u) << "its death was noticed soon after its ring was full";
}

TEST_F(SharedProcessesTest, ChildOfAMemberThatLeftKeepsNobodyOut) {
  auto stays = Open();
  auto leaves = Open();
  ASSERT_TRUE(stays != nullptr && leaves != nullptr);
  const int port = leaves->port();
  const pid_t child = Fork([] {
    for (;;) ::pause();
  });
  leaves.reset();
  const auto comes = Open();
  Kill(child);
  ASSERT_NE(comes, nullptr);
  EXPECT_EQ(comes->port(), port);
}

TEST_F(SharedProcessesTest, ChildOfAKilledMemberDoesNotHoldItsPort) {
  auto stays = Open();
  int pids[2];
  ASSERT_TRUE(stays != nullptr && ::pipe(pids) == 0);
  const pid_t member = Fork([&] {
    const auto wire = Open();
    const pid_t child = Fork([&] {
      const pid_t own = ::getpid();
      (void)!::write(pids[1], &own, sizeof(own));
      for (;;) ::pause();
    });
    ::waitpid(child, nullptr, 0);
  });
  pid_t child = 0;
  ASSERT_EQ(::read(pids[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  Kill(member);
  const auto comes = Open();
  ::kill(child, SIGKILL);
  for (const int end : pids) ::close(end);
  ASSERT_NE(comes, nullptr);
  EXPECT_EQ(comes->port(), stays->port() + 1) << "the killed member's";
}

TEST_F(SharedProcessesTest, SleepingMemberOfAnotherProcessIsWoken) {
  auto here = Open();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t echo = Fork([&] {
    auto wire = Open();
    (void)!::write(ready[1], "r", 1);
    FrameList frames;
    for (;;) {
      while (wire->Receive(frames, 64, 0) != 0) {
      }
      for (auto& each : frames.entries) wire->Transmit(CheckedFrame(2, NumberOf(each.bytes)), 0);
      frames.entries.clear();
      pollfd source{.fd = wire->fd(), .events = POLLIN, .revents = 0};
      if (wire->Arm()) ::poll(&source, 1, -1);
    }
  });
  AwaitByte(ready);
  Checked answers;
  uint32_t sent = 0;
  while (answers.next[2] < 500) {
    if (sent == answers.next[2]) here->Transmit(CheckedFrame(1, sent++), 0);
    pollfd source{.fd = here->fd(), .events = POLLIN, .revents = 0};
    const bool sleeps = here->Arm();
    ASSERT_TRUE(!sleeps || ::poll(&source, 1, 20'000) == 1) << "after " << sent;
    here->Receive(answers, 64, 0);
  }
  Kill(echo);
}

}  // namespace
}  // namespace xtreme::connectx
