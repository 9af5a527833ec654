// SPDX-License-Identifier: Apache-2.0
//
// The short ways of sends and receives: what they leave to the long way, and what happens to a
// socket under them. A first call goes the long way and makes the short one, so each test calls
// twice what it is about.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "api/sockets/faces.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

using sockets::Faces;
using sockets::Received;
using sockets::Socket;
using sockets::Verdict;

class ShortWayTest : public LinkedFacesTest {};

// Makes the short way, by a send that the other side answers, and an answer that is taken.
void Warm(int fd) {
  char bytes[8];
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 5);
  EXPECT_NE(Faces::The().descriptors().WayTo(fd)->door(), nullptr);
}

// Most likely: the first poll of a receive is to find what was sent, and nobody else polls. If it
// does not, the long way is tested once more.
void LetArrive() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST_F(ShortWayTest, SocketThatACallbackClosesUnderItsReceiveSaysEbadf) {
  const auto echo = TheirUdpEcho(7001);
  for (int i = 0; i < 5; ++i) {
    const int fd = BoundDatagramSocket(8020);
    Warm(fd);
    const int other = BoundDatagramSocket(8021);
    int taken = -1;
    Behind(other)->SetCallback([&](Socket&, const Received&) {
      Close(fd);
      taken = BoundDatagramSocket(8022);  // Has the number.
      SetReceiveTimeout(taken, 1'000);
      return Verdict::kDrop;
    });
    EXPECT_EQ(SendTo(other, "12345", kTheirs, 7001), 5);
    LetArrive();
    char bytes[8];
    EXPECT_EQ(Receive(fd, bytes, sizeof bytes), -EBADF);
    EXPECT_EQ(taken, fd);
    Close(taken);
    Close(other);
  }
}

TEST_F(ShortWayTest, SocketThatACallbackClosesBehindItsPacketIsNotTouched) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8020);
  Warm(fd);
  const int other = BoundDatagramSocket(8021);
  std::atomic<bool> closed{false};
  Behind(other)->SetCallback([&](Socket&, const Received&) {
    if (!closed.exchange(true)) Close(fd);
    return Verdict::kDrop;
  });
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
  EXPECT_EQ(SendTo(other, "12345", kTheirs, 7001), 5);
  LetArrive();
  char bytes[8];
  const ssize_t got = Receive(fd, bytes, sizeof bytes);
  EXPECT_TRUE(got == 5 || got == -EBADF) << got;
  EXPECT_TRUE(Eventually([&] {
    Poke(other);
    return closed.load();
  }));
  Close(other);
}

TEST_F(ShortWayTest, DatagramThatIsTooLongForItsReceiveIsCutAndTheNextIsWhole) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8020);
  Warm(fd);
  EXPECT_EQ(SendTo(fd, "abcdefgh", kTheirs, 7001), 8);
  EXPECT_EQ(SendTo(fd, "ijk", kTheirs, 7001), 3);
  LetArrive();
  char bytes[8];
  EXPECT_EQ(Receive(fd, bytes, 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "abc");
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 3);
  EXPECT_EQ(std::string(bytes, 3), "ijk");
  EXPECT_EQ(Behind(fd)->counters().received, 3u);
  Close(fd);
}

TEST_F(ShortWayTest, EdgeTriggeredSetTellsOfTheNextDatagram) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8020);
  Warm(fd);
  const int set = NewSet();
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET), 0);
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), 5);
  EXPECT_EQ(SendTo(fd, "67890", kTheirs, 7001), 5);
  char bytes[8];
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 5);
  epoll_event event{};
  EXPECT_EQ(WaitSet(set, &event, 1, 10'000), 1);
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 5);
  Close(set);
  Close(fd);
}

TEST_F(ShortWayTest, ShutdownAndCallbackEndIt) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8020);
  Warm(fd);
  Behind(fd)->Shutdown(SHUT_WR);
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, 7001), -EPIPE);
  const int other = BoundDatagramSocket(8021);
  Warm(other);
  std::atomic<int> calls{0};
  Behind(other)->SetCallback([&](Socket&, const Received&) {
    ++calls;
    return Verdict::kDrop;
  });
  SetReceiveTimeout(other, 100);
  EXPECT_EQ(SendTo(other, "12345", kTheirs, 7001), 5);
  char bytes[8];
  EXPECT_EQ(Receive(other, bytes, sizeof bytes), -EAGAIN);
  EXPECT_EQ(calls, 1);
  Close(other);
  Close(fd);
}

TEST_F(ShortWayTest, RestOfASegmentIsTheNextReceives) {
  const int listener = Listener(8023);
  const int theirs = TheirSocket(SOCK_STREAM | SOCK_NONBLOCK);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(8023)};
  inet_pton(AF_INET, kOurs, &to.sin_addr);
  connect(theirs, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  const int fd = Accept(listener, 0);
  ASSERT_GE(fd, 0);
  SetReceiveTimeout(fd, 1'000);
  EXPECT_EQ(Send(fd, "1", 1), 1);
  EXPECT_EQ(Send(fd, "2345", 4), 4);
  EXPECT_EQ(Behind(fd)->counters().sent_bytes, 5u);
  EXPECT_EQ(send(theirs, "abcdefgh", 8, 0), 8);
  LetArrive();
  char bytes[8];
  EXPECT_EQ(Receive(fd, bytes, 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "abc");
  EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 5);
  EXPECT_EQ(std::string(bytes, 5), "defgh");
  close(theirs);
  Close(fd);
  Close(listener);
}

TEST_F(ShortWayTest, CopyHasItsOwn) {
  const auto echo = TheirUdpEcho(7001);
  const int fd = BoundDatagramSocket(8020);
  Warm(fd);
  const int copy = Duplicate(fd);
  EXPECT_EQ(Faces::The().descriptors().WayTo(copy)->door(), nullptr);
  Warm(copy);
  Close(fd);
  EXPECT_EQ(Faces::The().descriptors().WayTo(fd)->door(), nullptr);
  Warm(copy);
  Close(copy);
}

}  // namespace
}  // namespace xtreme::faces
