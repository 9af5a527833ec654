// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/waiting.h"

#include <cerrno>
#include <csignal>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::sockets {
namespace {

TEST(KernelTurnsTest, OneLookOfSoManyAndWhatIsMadeDue) {
  const auto turns_of = [](int64_t every) {
    KernelTurns turns(every);
    std::string said;
    for (int look = 0; look < 7; ++look) {
      if (look == 5) turns.BeDue();
      said += turns.due() ? 'k' : '.';
      turns.Next();
    }
    return said;
  };
  EXPECT_EQ(turns_of(1), "kkkkkkk");
  EXPECT_EQ(turns_of(3), "k..k.k.");
  EXPECT_EQ(turns_of(0), "k....k.");
}

TEST(TimeToWaitTest, BeginsWithTheFirstLook) {
  TimeToWait none(base::Nanoseconds(0), -1);
  EXPECT_TRUE(none.none());
  constexpr base::Nanoseconds kLimit = base::Seconds(100);
  const base::Nanoseconds begin = SteadyNow();
  TimeToWait some(kLimit, 50'000'000);
  some.Look();
  EXPECT_FALSE(some.none());
  EXPECT_FALSE(some.is_over());
  EXPECT_TRUE(some.polls());
  const base::Nanoseconds until = some.until();
  EXPECT_GE(until, begin + kLimit);
  some.Look();
  EXPECT_EQ(some.until(), until);
}

TEST(TimeToWaitTest, PollsForItsTimeOrAllOfIt) {
  TimeToWait sleeps(base::kNever, 0);
  sleeps.Look();
  EXPECT_FALSE(sleeps.polls());
  EXPECT_FALSE(sleeps.is_over());
  EXPECT_EQ(sleeps.until(), base::kNever);
  TimeToWait polls(base::Nanoseconds(1), -1);
  polls.Look();
  EXPECT_TRUE(polls.polls());
  while (!polls.is_over()) polls.Look();
  EXPECT_FALSE(polls.polls());
}

TEST(WaitingTest, PollForEverEndsWhenTheTimeIsOver) {
  constexpr base::Nanoseconds kLimit = base::Milliseconds(50);
  const base::Nanoseconds begin = SteadyNow();
  Waiting waiting(kLimit, /*polls=*/-1);
  int result = 0;
  while (result == 0 && SteadyNow() - begin < base::Seconds(10)) {
    result = waiting.Once(nullptr, nullptr, 0);
  }
  EXPECT_EQ(result, -EAGAIN);
  EXPECT_GE(SteadyNow() - begin, kLimit);
}

TEST(WaitingTest, HandlerWithoutRestartInterruptsWhateverItsSignalIs) {
  // A sanitizer's handlers are without.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGUSR1, SIGSYS, SIGRTMIN, SIGRTMIN + 5, SIGRTMAX}) {
    struct sigaction action{};
    struct sigaction before{};
    action.sa_handler = [](int) {};
    ASSERT_EQ(sigaction(signal, &action, &before), 0);
    EXPECT_FALSE(CallsAreRestarted()) << signal;
    action.sa_flags = SA_RESTART;
    ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
    EXPECT_TRUE(CallsAreRestarted()) << signal;
    ASSERT_EQ(sigaction(signal, &before, nullptr), 0);
  }
}

}  // namespace
}  // namespace xtreme::sockets
