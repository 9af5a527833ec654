// SPDX-License-Identifier: Apache-2.0
//
// Handlers of fork() (pthread_atfork(3)) that a program has before its first call for a descriptor,
// and which use sockets: none waits for ever.
//
// The faces are linked, not preloaded, and made after main() has begun, as on a card. Threads: two,
// and children; an alarm ends those that do not go on.

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "api/sockets/faces.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

constexpr unsigned kSeconds = 20;

// The program's, which it holds while it uses a socket.
std::mutex& Lock() {
  static std::mutex lock;
  return lock;
}

int ours = -1;
bool closed = false;
std::atomic<bool> begun{false};

void BeforeFork() {
  begun = true;
  Lock().lock();
}

void InParent() { Lock().unlock(); }

void InChild() {
  alarm(kSeconds);
  Lock().unlock();
  closed = Close(ours) == 0;
}

class ForkHandlersTest : public LinkedFacesTest {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(sockets::Faces::IfMade(), nullptr);
    ASSERT_EQ(pthread_atfork(&BeforeFork, &InParent, &InChild), 0);
    LinkedFacesTest::SetUpTestSuite();
  }
  void SetUp() override {
    begun = false;
    ours = BoundDatagramSocket(8130);
  }
  void TearDown() override { Close(ours); }

  static int StatusOfAChild() {
    const pid_t child = fork();
    if (child == 0) _exit(closed ? 0 : 1);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
};

TEST_F(ForkHandlersTest, ChildsClosesASocket) { EXPECT_EQ(StatusOfAChild(), 0); }

TEST_F(ForkHandlersTest, ParentsWaitsForALockThatAnotherThreadHasWhoAsksASocket) {
  std::atomic<bool> locked{false};
  Threads threads;
  threads.Start([&] {
    const std::lock_guard lock(Lock());
    locked = true;
    EXPECT_TRUE(Eventually([] { return begun.load(); }));
    // Nothing that the software ConnectX has to do, which stands still by a handler of its own.
    EXPECT_EQ(Behind(ours)->ReadableBytes(), 0);
  });
  threads.Start([&] {
    EXPECT_TRUE(Eventually([&] { return locked.load(); }));
    EXPECT_EQ(StatusOfAChild(), 0);
  });
  threads.Join();
}

}  // namespace
}  // namespace xtreme::faces
