// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/control_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace xtreme::engine {
namespace {

using base::Milliseconds;

std::unique_ptr<ControlThread> MakeThread() {
  auto control = ControlThread::Create();
  EXPECT_TRUE(control.ok()) << control.status();
  return std::move(*control);
}

TEST(ControlThreadTest, OperationsRunInTheOrderTheyWereStarted) {
  auto control = MakeThread();
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) control->Start(MakeOperation([&ran, i] { ran.push_back(i); }));
  control->RunAndWait([] {});
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(ControlThreadTest, StartedWithoutAWakeUpItStillRuns) {
  auto control = MakeThread();
  std::promise<bool> ran;
  control->Start(MakeOperation([&] { ran.set_value(control->OnThisThread()); }));
  EXPECT_TRUE(ran.get_future().get());
}

TEST(ControlThreadTest, WhatWasStartedRunsBeforeTheThreadEnds) {
  bool ran = false;
  auto control = MakeThread();
  control->Start(MakeOperation([&] { ran = true; }));
  control.reset();
  EXPECT_TRUE(ran);
}

TEST(ControlThreadTest, RunAndWaitOnTheThreadItselfRunsDirectly) {
  auto control = MakeThread();
  int depth = 0;
  control->RunAndWait([&] { control->RunAndWait([&] { depth = 2; }); });
  EXPECT_EQ(depth, 2);
}

TEST(ControlThreadTest, CallsBackWhenAWatchedFdIsReadyAndNotAfterUnwatch) {
  auto control = MakeThread();
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
  std::promise<uint32_t> ready;
  control->RunAndWait([&] {
    EXPECT_TRUE(control->Watch(pipe_fds[0], EPOLLIN, [&](uint32_t events) {
      control->Unwatch(pipe_fds[0]);  // Level triggered: once is what the promise can take.
      ready.set_value(events);
    }));
  });
  ASSERT_EQ(write(pipe_fds[1], "x", 1), 1);
  EXPECT_EQ(ready.get_future().get(), static_cast<uint32_t>(EPOLLIN));
  control->RunAndWait([] {});
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(ControlThreadTest, OneWatchOfManyFdsIsToldTheirNumbersUntilItEnds) {
  auto control = MakeThread();
  const int first = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  const int second = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  std::promise<void> both;
  std::set<uint32_t> told;
  uint32_t many = 0;
  control->RunAndWait([&] {
    many = control->StartMany([&](uint32_t number, uint32_t events) {
      EXPECT_EQ(events, static_cast<uint32_t>(EPOLLIN));
      if (told.insert(number).second && told.size() == 2) both.set_value();
      if (number == 7) control->UnwatchOneOf(first);
    });
    EXPECT_TRUE(control->WatchOneOf(many, 7, first, EPOLLIN));
    EXPECT_TRUE(control->WatchOneOf(many, 1'000'000, second, EPOLLIN));
  });
  both.get_future().wait();
  control->RunAndWait([&] {
    EXPECT_EQ(told, (std::set<uint32_t>{7, 1'000'000}));
    control->EndMany(many);
    told.clear();
  });
  control->RunAndWait([] {});
  control->RunAndWait([&] { EXPECT_TRUE(told.empty()); });
  close(first);
  close(second);
}

TEST(ControlThreadTest, AFileCannotBeWatched) {
  auto control = MakeThread();
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  control->RunAndWait([&] {
    EXPECT_FALSE(control->Watch(file, EPOLLIN, [](uint32_t) {}));
    EXPECT_EQ(errno, EPERM);
  });
  close(file);
}

TEST(ControlThreadTest, PeriodicWorkRepeatsUntilStopped) {
  auto control = MakeThread();
  std::promise<void> third;
  int runs = 0;
  uint64_t number = 0;
  control->RunAndWait([&] {
    number = control->StartPeriodic(Milliseconds(1), [&] {
      if (++runs == 3) {
        control->StopPeriodic(number);
        third.set_value();
      }
    });
  });
  third.get_future().wait();
  control->RunAndWait([&] { EXPECT_EQ(runs, 3); });
}

// The CPUs of the thread.
host::CpuSet CpusOf(ControlThread& control) {
  host::CpuSet cpus;
  control.RunAndWait([&cpus] { cpus = host::CpuSet::OfThisThread(); });
  return cpus;
}

TEST(ControlThreadTest, RunsWhereTheProcessMayAlsoWhenMadeByABoundThread) {
  const host::CpuSet process = host::CpuSet::OfThisThread();
  std::unique_ptr<ControlThread> control;
  std::thread bound([&] {
    int cpu = 0;
    while (!process.Has(cpu)) ++cpu;
    host::CpuSet one;
    one.Add(cpu);
    ASSERT_TRUE(one.Bind());
    control = MakeThread();
  });
  bound.join();
  EXPECT_EQ(CpusOf(*control), process);
}

TEST(ControlThreadTest, KeepsOffTheCpusOfOwnersAsLongAsOneIsLeft) {
  const host::CpuSet process = host::CpuSet::OfThisThread();
  auto control = MakeThread();
  int kept_off = 0;
  for (int cpu = 0; cpu < host::CpuSet::kMaxCpus; ++cpu) {
    if (!process.Has(cpu)) continue;
    const bool last = ++kept_off == process.count();
    control->RunAndWait([&] { EXPECT_EQ(control->KeepOff(cpu), !last) << cpu; });
    EXPECT_EQ(CpusOf(*control).Has(cpu), last) << cpu;
  }
  EXPECT_EQ(CpusOf(*control), process);
}

TEST(ControlThreadTest, RunsOnTheCpusItIsToldToUse) {
  auto control = MakeThread();
  const host::CpuSet process = CpusOf(*control);
  int cpu = 0;
  while (!process.Has(cpu)) ++cpu;
  host::CpuSet one;
  one.Add(cpu);
  control->RunAndWait([&] { EXPECT_TRUE(control->UseCpus(one)); });
  EXPECT_EQ(CpusOf(*control), one);
  control->RunAndWait([&] { EXPECT_FALSE(control->UseCpus(host::CpuSet())); });
  EXPECT_EQ(CpusOf(*control), one);
}

}  // namespace
}  // namespace xtreme::engine
