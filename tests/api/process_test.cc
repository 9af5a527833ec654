// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: what the rings of a process have in common, and its end: other threads, fork, exit.

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

using ProcessTest = ApiTest;

// Memory that a ring which is being opened gets, or one that is being closed is rid of, only when
// `go` is set, or after a while.
struct LateMemory {
  static void* Allocate(void* context, size_t bytes) {
    auto* const self = static_cast<LateMemory*>(context);
    if (self->late_to_come) self->Wait();
    self->memory.resize(bytes);
    return self->memory.data();
  }
  static void Release(void* context, void*) {
    auto* const self = static_cast<LateMemory*>(context);
    if (!self->late_to_come) self->Wait();
  }
  void Wait() {
    asked = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!go && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    in_time = go.load();
  }
  xtreme_ring_options For(xtreme_ring_options options) {
    options.memory_allocate = Allocate;
    options.memory_release = Release;
    options.memory_context = this;
    return options;
  }

  bool late_to_come = true;
  std::atomic<bool> asked{false}, go{false};
  bool in_time = false;
  std::vector<uint8_t> memory;
};

TEST_F(ProcessTest, NobodyElseWaitsWhileARingIsOpened) {
  const xtreme_ring ring = OpenRing("xt0"), another = OpenRing("xt0");
  LateMemory late;
  const xtreme_ring_options options = late.For(Options("xt1"));
  xtreme_ring opened = {};
  std::thread opener([&] { EXPECT_EQ(xtreme_ring_open(&options, &opened), 0) << xtreme_error(); });
  while (!late.asked) std::this_thread::yield();
  xtreme_lane lane;
  EXPECT_EQ(xtreme_lane_open(ring, &lane), 0);
  EXPECT_EQ(xtreme_lane_close(lane), 0);
  xtreme_group group;
  EXPECT_EQ(xtreme_group_open(&ring, 1, &group), 0);
  EXPECT_EQ(xtreme_group_close(group), 0);
  EXPECT_EQ(xtreme_ring_close(ring), 0);
  EXPECT_EQ(xtreme_ring_close(another), 0);
  late.go = true;
  opener.join();
  EXPECT_TRUE(late.in_time);
  ASSERT_EQ(xtreme_ring_adopt(opened), 0);
  EXPECT_EQ(xtreme_ring_start(opened), 0) << "its engine stays when the others close";
  EXPECT_EQ(xtreme_ring_close(opened), 0);
}

TEST_F(ProcessTest, ARingMayCloseWhileAnotherThreadWakesIt) {
  OpenRing("xt1", /*start=*/false);  // Closing the last would take longer.
  for (int lap = 0; lap < 200; ++lap) {
    const xtreme_ring ring = OpenRing("xt0", /*start=*/false);
    std::atomic<bool> woken{false};
    std::thread waker([&] {
      int code = 0;
      while ((code = xtreme_ring_wake(ring)) == 0) woken = true;
      EXPECT_EQ(code, -EBADF);
    });
    while (!woken) std::this_thread::yield();
    EXPECT_EQ(xtreme_ring_close(ring), 0);
    waker.join();
    rings_.pop_back();
  }
}

// How a child that does this ends; a signal, if it does not within ten seconds.
template <typename Work>
int InChild(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    exit(work());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(ProcessTest, AChildOpensRingsOfItsOwnAndHasNoneOfItsParent) {
  const xtreme_ring ring = OpenRing("xt0");
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  // Behind it the control thread, which is not the child's, holds nothing of the socket's opening.
  const xtreme_address group = Address("239.1.1.1");
  ASSERT_EQ(xtreme_join(socket, &group, nullptr, 0, 7), 0) << xtreme_error();
  EXPECT_EQ(Await(ring, XTREME_OP_DONE).cookie, 7u);
  const xtreme_ring_options options = Options("xt1");
  EXPECT_EQ(InChild([&] {
              if (xtreme_ring_wake(ring) != -EBADF) return 7;
              xtreme_ring own = {};
              if (xtreme_ring_open(&options, &own) != 0) return 1;
              if (xtreme_ring_start(own) != 0) return 2;
              if (xtreme_ring_flush(ring) != -EBADF) return 3;
              if (xtreme_socket_close(socket, 0) != -EBADF) return 4;
              if (xtreme_ring_wake(ring) != -EBADF) return 5;
              xtreme_completion none;
              if (xtreme_ring_poll(own, &none, 1, sizeof none) < 0) return 6;
              return xtreme_ring_close(own);
            }),
            0);
  Inject(9000, "still the parent's");
  xtreme_completion packet = Await(ring, XTREME_PACKET);
  EXPECT_EQ(Text(packet), "still the parent's");
  xtreme_release(&packet, 1, sizeof packet);
}

// As vsftpd makes its children: no handler of fork() runs.
TEST_F(ProcessTest, AChildMadeByTheSystemCallHasNoRingOfItsParentOnceItOpensOne) {
  const xtreme_ring ring = OpenRing("xt0");
  const xtreme_ring_options options = Options("xt9");
  const auto child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    alarm(10);
    xtreme_ring none = {};
    const bool opened = xtreme_ring_open(&options, &none) == 0;
    _exit(!opened && xtreme_ring_wake(ring) == -EBADF ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// How a child ends that opens a ring and closes it; 0: it did, and has no thread more than before.
int OpenInChild(const xtreme_ring_options& options) {
  return InChild([&options] {
    xtreme_ring own = {};
    if (xtreme_ring_open(&options, &own) != 0) _exit(1);
    if (xtreme_ring_start(own) != 0) _exit(2);
    if (xtreme_ring_close(own) != 0) _exit(3);
    const std::filesystem::directory_iterator threads("/proc/self/task");
    if (std::distance(begin(threads), end(threads)) != 1) _exit(4);
    _exit(0);  // Sanitizers would ask for what the parent's other thread was making.
    return 0;
  });
}

TEST_F(ProcessTest, AChildOpensRingsAlsoIfAThreadOfItsParentIsOpeningOne) {
  LateMemory late;
  const xtreme_ring_options options = late.For(Options("xt1"));
  xtreme_ring opened = {};
  std::thread opener([&] { EXPECT_EQ(xtreme_ring_open(&options, &opened), 0) << xtreme_error(); });
  while (!late.asked) std::this_thread::yield();
  EXPECT_EQ(OpenInChild(Options("xt0")), 0);
  late.go = true;
  opener.join();
  EXPECT_TRUE(late.in_time);
  ASSERT_EQ(xtreme_ring_adopt(opened), 0);
  EXPECT_EQ(xtreme_ring_close(opened), 0);
}

TEST_F(ProcessTest, AChildOpensRingsAlsoIfAThreadOfItsParentIsClosingOne) {
  LateMemory late;
  late.late_to_come = false;
  const xtreme_ring_options options = late.For(Options("xt1"));
  std::thread closer([&] {
    xtreme_ring ring = {};
    ASSERT_EQ(xtreme_ring_open(&options, &ring), 0) << xtreme_error();
    EXPECT_EQ(xtreme_ring_close(ring), 0);
  });
  while (!late.asked) std::this_thread::yield();
  EXPECT_EQ(OpenInChild(Options("xt0")), 0);
  late.go = true;
  closer.join();
  EXPECT_TRUE(late.in_time);
}

// As the destructor of a static object does whose ring is closed already.
TEST_F(ProcessTest, ACallThatFailsAfterTheThreadsObjectsAreGoneTouchesNothing) {
  EXPECT_EQ(InChild([] {
              xtreme_ring_close({});
              atexit([] {
                const bool failed = xtreme_ring_close({}) == -EBADF;
                _exit(failed && *xtreme_error() == 0 ? 7 : 1);
              });
              return 0;
            }),
            7);
}

}  // namespace
}  // namespace xtreme::api_test
