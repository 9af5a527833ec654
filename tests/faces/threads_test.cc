// SPDX-License-Identifier: Apache-2.0
//
// Threads that share sockets, sets, rings and descriptors: nothing is torn, lost or waited for for
// ever. The faces are linked, not preloaded, so that sanitizers see them; on a software ConnectX
// that is an interface, against the kernel in another namespace.
//
// Threads: many; whoever is blocked is to go on by what is tested, and a watchdog ends who is not.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <string>

#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

using sockets::Received;
using sockets::Socket;
using sockets::Verdict;

class ThreadsTest : public LinkedFacesTest {};

// Serves as epoll servers with several threads do: one set, one-shot connections, one listener.
void ServeOnSet(int set, int listener, const std::atomic<bool>& over) {
  char bytes[4096];
  while (!over) {
    epoll_event event{};
    if (WaitSet(set, &event, 1, 20) != 1) continue;
    if (event.data.fd == listener) {
      const int fd = Accept(listener, SOCK_NONBLOCK);
      if (fd >= 0) ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT);
      continue;
    }
    const int fd = event.data.fd;
    ssize_t got = 0;
    while ((got = Receive(fd, bytes, sizeof bytes)) > 0) Send(fd, bytes, static_cast<size_t>(got));
    if (got == -EAGAIN) {
      ControlSet(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT);
    } else {
      Close(fd);
    }
  }
}

TEST_F(ThreadsTest, ThreadsThatPollOneSetEchoEveryConnection) {
  // Of several threads that one connection wakes, one accepts it; the others are not to wait.
  const int listener = Listener(8000, SOCK_NONBLOCK);
  const int set = NewSet();
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, listener, EPOLLIN), 0);
  std::atomic<bool> over{false};
  std::atomic<int> equal{0};
  Threads servers;
  for (int i = 0; i < 3; ++i) servers.Start([&] { ServeOnSet(set, listener, over); });
  Threads clients;
  for (int i = 0; i < 3; ++i) {
    clients.Start([&] {
      for (int turn = 0; turn < 15; ++turn) equal += TheirEcho(8000, 300 * turn + 1);
    });
  }
  clients.Join();
  over = true;
  servers.Join();
  EXPECT_EQ(equal, 45);
  Close(set);
  Close(listener);
}

TEST_F(ThreadsTest, DatagramsOfOneSocketReachWhoeverReceives) {
  constexpr int kCount = 600;
  const int fd = BoundDatagramSocket(8001);
  SetReceiveTimeout(fd, 200);
  std::atomic<int> received{0};
  std::atomic<bool> over{false};
  Threads receivers;
  for (int i = 0; i < 2; ++i) {
    receivers.Start([&] {
      char bytes[64];
      while (!over) received += Receive(fd, bytes, sizeof bytes) == 5;
    });
  }
  // Beside them sockets come and go, which takes both locks.
  Threads others;
  others.Start([&] {
    for (int i = 0; i < 30; ++i) Close(BoundDatagramSocket(8100 + i % 3));
  });
  const auto echo = TheirUdpEcho(7001);
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
    if (i % 50 != 49) continue;
    EXPECT_TRUE(Eventually([&] { return received > i; })) << received;
  }
  EXPECT_TRUE(Eventually([&] { return received == kCount; })) << received;
  over = true;
  receivers.Join();
  others.Join();
  Close(fd);
}

TEST_F(ThreadsTest, CopyIsReceivedFromWhenTheNumberItWasMadeOfIsAnothers) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8004);
  SetReceiveTimeout(fd, 10'000);
  const int copy = Duplicate(fd);
  std::atomic<int> received{0};
  Threads receiver;
  receiver.Start([&] {
    char bytes[64];
    for (int i = 0; i < 20; ++i) received += Receive(copy, bytes, sizeof bytes) == 5;
  });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
  Close(fd);
  const int other = BoundDatagramSocket(8005);
  EXPECT_EQ(other, fd);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SendTo(copy, "12345", kTheirs, 7001), 5);
  receiver.Join();
  EXPECT_EQ(received, 20);
  EXPECT_EQ(PortOf(copy), 8004);
  EXPECT_EQ(PortOf(other), 8005);
  Close(copy);
  Close(other);
}

// --- Receive callbacks, which run inside the ring's door ---

TEST_F(ThreadsTest, CallbackOpensBindsAndClosesWhileOthersDo) {
  const int fd = BoundDatagramSocket(8006);
  std::atomic<int> calls{0};
  Behind(fd)->SetCallback([&](Socket&, const Received&) {
    Close(BoundDatagramSocket(8110));
    ++calls;
    return Verdict::kDrop;
  });
  std::atomic<bool> over{false};
  Threads threads;
  threads.Start([&] {
    while (!over) Close(BoundDatagramSocket(8111));
  });
  threads.Start([&] {
    while (!over) Poke(fd);
  });
  const auto echo = TheirUdpEcho(7001);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
    EXPECT_TRUE(Eventually([&] { return calls > i; }));
  }
  over = true;
  threads.Join();
  Close(fd);
}

TEST_F(ThreadsTest, CallbackClosesItsOwnSocket) {
  const auto echo = TheirUdpEcho(7001);
  for (int i = 0; i < 10; ++i) {
    const int fd = BoundDatagramSocket(8006);
    std::atomic<bool> closed{false};
    Behind(fd)->SetCallback([&](Socket&, const Received&) {
      Close(fd);
      closed = true;
      return Verdict::kQueue;
    });
    const int other = BoundDatagramSocket(8007);
    EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
    EXPECT_TRUE(Eventually([&] {
      Poke(other);
      return closed.load();
    }));
    Close(other);
  }
}

// What was polled before a callback binds comes before what its bind polls.
TEST_F(ThreadsTest, BytesKeepTheirOrderWhileACallbackBinds) {
  const int fd = BoundDatagramSocket(8006);
  std::atomic<int> calls{0};
  Behind(fd)->SetCallback([&](Socket&, const Received&) {
    Close(BoundDatagramSocket(8110));
    ++calls;
    return Verdict::kDrop;
  });
  const auto echo = TheirUdpEcho(7001);
  const int listener = Listener(8008);
  Poke(listener);
  std::atomic<bool> over{false};
  Threads threads;
  threads.Start([&] {
    for (int i = 0; !over; ++i) {
      SendTo(fd, "12345", kTheirs, 7001);
      EXPECT_TRUE(Eventually([&] { return over || calls > i; }));
    }
  });
  std::atomic<bool> equal{false};
  threads.Start([&] { equal = TheirEcho(8008, 20'000); });
  const int connection = Accept(listener, 0);
  ASSERT_GE(connection, 0);
  char bytes[4096];
  ssize_t got = 0;
  while ((got = Receive(connection, bytes, sizeof bytes)) > 0) {
    EXPECT_EQ(Send(connection, bytes, static_cast<size_t>(got)), got);
  }
  EXPECT_EQ(got, 0);
  Close(connection);
  EXPECT_TRUE(Eventually([&] {
    Poke(fd);
    return calls > 3;
  }));
  over = true;
  threads.Join();
  EXPECT_TRUE(equal);
  Close(listener);
  Close(fd);
}

// As the library's own thread polls, by which no callback is called.
TEST_F(ThreadsTest, WhatComesForACallbackWhileTheProgramIsAwayWaitsAsFarAsThereIsRoom) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8006);
  const int other = BoundDatagramSocket(8007);
  sockets::RingDoor* const door = Behind(other)->door();
  const int least = 1;  // Room for four.
  ASSERT_EQ(Behind(fd)->SetOption(SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
  std::string seen;
  Behind(fd)->SetCallback([&](Socket&, const Received& packet) {
    seen += static_cast<char>(packet.data[0]);
    return Verdict::kDrop;
  });
  for (const char* each : {"1", "2", "3", "4", "5", "6"}) {
    EXPECT_EQ(SendTo(fd, each, kTheirs, 7001), 1);
  }
  EXPECT_EQ(SendTo(other, "x", kTheirs, 7001), 1);
  EXPECT_TRUE(Eventually([&] {
    door->TryProgress();
    const sockets::RingDoor::Entry entry(door);
    return Behind(other)->queued() == 1;
  }));
  EXPECT_EQ(seen, "");
  {
    const sockets::RingDoor::Entry entry(door);
    EXPECT_FALSE(door->Arm()) << "who waits is to look";
    EXPECT_EQ(Behind(fd)->counters().dropped, 2u);
  }
  Poke(other);
  EXPECT_EQ(seen, "1234");
  Close(other);
  Close(fd);
}

}  // namespace
}  // namespace xtreme::faces
