// SPDX-License-Identifier: Apache-2.0
//
// close() of what other threads use or wait for: they end, with what is documented, and no call
// asks the kernel by a number that is nobody's or somebody else's.
//
// Apart from threads_test.cc because the thread sanitizer models descriptors.
// Threads: many; a watchdog ends who does not go on.

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

#ifdef __SANITIZE_THREAD__
// It takes the close of a descriptor that another thread uses, which is what is tested here, for a
// race: those of descriptors are not told, all others are.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:^__interceptor_close$\nrace:^__interceptor_epoll_\n";
}
#endif

namespace xtreme::faces {
namespace {

class ClosingTest : public LinkedFacesTest {};

// Between a close's half and the kernel's: a receive that found nothing of ours would sleep in the
// kernel on a socket that nobody sends to.
TEST_F(ClosingTest, NumberThatIsBeingClosedIsNobodysAndNoCallSleepsOnIt) {
  const int fd = BoundDatagramSocket(8002);
  const timeval soon{.tv_usec = 10'000};  // So that a receive that sleeps ends, and is found out.
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
  const int set = NewSet();
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
  BeginClose(set);
  BeginClose(fd);
  char bytes[8];
  EXPECT_EQ(Behind(fd), nullptr);
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), -EBADF);
  EXPECT_EQ(recv(fd, bytes, sizeof bytes, 0), -1);
  EXPECT_EQ(errno, EBADF);
  pollfd one{.fd = fd, .events = POLLIN};
  EXPECT_EQ(Poll(&one, 1, 0), 1);
  EXPECT_EQ(one.revents, POLLNVAL);
  epoll_event event{};
  EXPECT_EQ(epoll_wait(set, &event, 1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  // The numbers are nobody else's until the kernel closes them.
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(close(set), 0);
}

TEST_F(ClosingTest, CopyOfANumberThatIsBeingClosedGoesOn) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8002);
  const int copy = Duplicate(fd);
  BeginClose(fd);
  SetReceiveTimeout(copy, 10'000);
  EXPECT_EQ(SendTo(copy, "12345", kTheirs, 7001), 5);
  char bytes[8];
  EXPECT_EQ(Receive(copy, bytes, sizeof bytes), 5);
  EXPECT_EQ(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(close(fd), 0);
  Close(copy);
}


TEST_F(ClosingTest, ReceiveOfAClosedSocketEndsWithEbadf) {
  for (int i = 0; i < 20; ++i) {
    const int fd = BoundDatagramSocket(8002);
    std::atomic<bool> begun{false};
    Threads receiver;
    receiver.Start([&] {
      char bytes[64];
      begun = true;
      EXPECT_EQ(Receive(fd, bytes, sizeof bytes), -EBADF);
    });
    EXPECT_TRUE(Eventually([&] { return begun.load(); }));
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
    Close(fd);
    receiver.Join();
  }
}

TEST_F(ClosingTest, PollOfAClosedSocketEndsWithPollnval) {
  for (int i = 0; i < 20; ++i) {
    const int fd = BoundDatagramSocket(8002);
    std::atomic<bool> begun{false};
    Threads poller;
    poller.Start([&] {
      pollfd one{.fd = fd, .events = POLLIN};
      begun = true;
      EXPECT_EQ(Poll(&one, 1, 10'000), 1);
      EXPECT_EQ(one.revents, POLLNVAL);
    });
    EXPECT_TRUE(Eventually([&] { return begun.load(); }));
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
    Close(fd);
    poller.Join();
  }
}

TEST_F(ClosingTest, AcceptOfAClosedListenerEnds) {
  for (int i = 0; i < 10; ++i) {
    const int listener = Listener(8003);
    pollfd one{.fd = listener, .events = POLLIN};
    ASSERT_EQ(Poll(&one, 1, 0), 0);
    Threads acceptor;
    acceptor.Start([&] { EXPECT_LT(Accept(listener, 0), 0); });
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    Close(listener);
    acceptor.Join();
  }
}

// Nobody else would: what came for them is in the queues of sockets that no descriptor has.
TEST_F(ClosingTest, ListenerGivesBackWhatCameForConnectionsThatNobodyAccepted) {
  const int other = BoundDatagramSocket(8002);
  const int listener = Listener(8003);
  const uint32_t before = FreeBuffers(other);
  const int theirs = TheirSocket(SOCK_STREAM | SOCK_NONBLOCK);
  const int on = 1;
  setsockopt(theirs, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(8003)};
  inet_pton(AF_INET, kOurs, &to.sin_addr);
  connect(theirs, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  for (int i = 0; i < 20; ++i) {
    int unacknowledged = 1;
    ASSERT_TRUE(Eventually([&] {
      Poke(other);
      return send(theirs, "x", 1, MSG_NOSIGNAL) == 1;
    }));
    ASSERT_TRUE(Eventually([&] {
      Poke(other);
      return ioctl(theirs, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
    }));
  }
  EXPECT_LE(FreeBuffers(other) + 20, before);
  Close(listener);
  EXPECT_TRUE(Eventually([&] { return FreeBuffers(other) == before; }))
      << FreeBuffers(other) << " of " << before;
  close(theirs);
  Close(other);
}

TEST_F(ClosingTest, WaitForAClosedSetEndsWithEbadfAndAClosedMemberIsNoMore) {
  for (int i = 0; i < 20; ++i) {
    const int fd = BoundDatagramSocket(8002);
    const int set = NewSet();
    ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
    Threads waiter;
    waiter.Start([&] {
      epoll_event event{};
      EXPECT_EQ(WaitSet(set, &event, 1, -1), -EBADF);
    });
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
    Close(fd);
    Close(set);
    waiter.Join();
  }
}

// A member is closed, and its number taken again, while another thread puts it in and out.
TEST_F(ClosingTest, MembersOfASetComeAndGoWhileTheyAreClosed) {
  const int set = NewSet();
  std::atomic<int> current{BoundDatagramSocket(8002)};
  std::atomic<bool> over{false};
  Threads threads;
  threads.Start([&] {
    while (!over) {
      ControlSet(set, EPOLL_CTL_ADD, current, EPOLLIN | EPOLLOUT);
      ControlSet(set, EPOLL_CTL_DEL, current, 0);
    }
  });
  threads.Start([&] {
    epoll_event events[4];
    while (!over) EXPECT_GE(WaitSet(set, events, 4, 5), 0);
  });
  for (int i = 0; i < 50; ++i) {
    Close(current);
    current = BoundDatagramSocket(8002);
  }
  over = true;
  threads.Join();
  Close(current);
  Close(set);
}

// --- One connection, both ways, by several threads ---

TEST_F(ClosingTest, OneThreadSendsWhileAnotherReceivesAndAThirdAsks) {
  const int listener = Listener(8009);
  Poke(listener);
  std::atomic<bool> equal{false};
  Threads threads;
  threads.Start([&] { equal = TheirEcho(8009, 20'000); });
  const int fd = Accept(listener, 0);
  ASSERT_GE(fd, 0);
  std::atomic<bool> over{false};
  threads.Start([&] {
    while (!over) AskAboutAll(fd);
  });
  char bytes[8192];
  ssize_t got = 0;
  while ((got = Receive(fd, bytes, sizeof bytes)) > 0) {
    Threads sender;
    sender.Start([&] { EXPECT_EQ(Send(fd, bytes, static_cast<size_t>(got)), got); });
  }
  EXPECT_EQ(got, 0);
  over = true;
  // The asker still has it: its numbers are asked for until it ends.
  threads.Start([&] { Close(fd); });
  threads.Join();
  EXPECT_TRUE(equal);
  Close(listener);
}

}  // namespace
}  // namespace xtreme::faces
