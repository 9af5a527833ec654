// SPDX-License-Identifier: Apache-2.0
//
// Connecting while the device's table of rules is full, or no port of the ring is free: the
// kernel's socket does it, and the program need not know.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "api/sockets/faces.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kTheirPort = 7'010;
constexpr uint16_t kNobodysPort = 7'011;
constexpr uint16_t kPort = 8'110;
constexpr const char* kReason = "connect: the device's table of rules is full";
constexpr const char* kNoPort = "connect: no port of the ring is free to its peer";
constexpr int kPorts = 64;  // XTREME_TCP_PORTS_LOG2 of the profile, 6.

// The first connects are those that have no ports of the ring yet, which its block of them has once
// its rule stands.
class FullTableTest : public LinkedFacesTest {
 protected:
  void SetUp() override {
    theirs_ = TheirSocket(SOCK_STREAM);
    const int on = 1;
    setsockopt(theirs_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(kTheirPort)};
    ASSERT_EQ(bind(theirs_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    ASSERT_EQ(listen(theirs_, kPorts + 8), 0);
    left_before_ = Left();
  }
  void TearDown() override { close(theirs_); }

  static uint64_t Left() { return sockets::Faces::The().left()[kReason]; }
  // It works, by the kernel, which was counted.
  void ExpectKernelConnects(int fd) {
    ASSERT_EQ(Behind(fd)->path(), sockets::Path::kKernel);
    EXPECT_EQ(Behind(fd)->reason(), kReason);
    EXPECT_EQ(Left(), left_before_ + 1);
    const int accepted = accept(theirs_, nullptr, nullptr);
    EXPECT_EQ(Send(fd, "to them", 7), 7);
    char bytes[16];
    EXPECT_EQ(recv(accepted, bytes, sizeof bytes, 0), 7);
    EXPECT_EQ(send(accepted, "to us", 5, 0), 5);
    EXPECT_EQ(Receive(fd, bytes, sizeof bytes), 5);
    close(accepted);
  }
  static int SocketError(int fd) {
    int error = -1;
    int result = 0;
    socklen_t length = sizeof error;
    if (!Behind(fd)->GetOption(SOL_SOCKET, SO_ERROR, &error, &length, &result)) {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    return error;
  }

  int theirs_ = -1;
  uint64_t left_before_ = 0;
};

TEST_F(FullTableTest, WhoWaitsInConnectIsConnectedByTheKernel) {
  const int fd = NewSocket(SOCK_STREAM);
  RefuseNextRule();
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), 0);
  ExpectKernelConnects(fd);
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  Close(fd);
}

TEST_F(FullTableTest, WhoPollsIsToldByTheKernelsSocket) {
  const int fd = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
  RefuseNextRule();
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), -EINPROGRESS);
  pollfd one{.fd = fd, .events = POLLIN | POLLOUT};
  ASSERT_EQ(Poll(&one, 1, 10'000), 1);
  EXPECT_EQ(one.revents, POLLOUT);
  EXPECT_EQ(SocketError(fd), 0);
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), 0) << "as of a call that was going on";
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), -EISCONN);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  ExpectKernelConnects(fd);
  Close(fd);
}

TEST_F(FullTableTest, WhoIsInAnEpollSetIsToldByIt) {
  const int fd = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
  const int set = NewSet();
  RefuseNextRule();
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), -EINPROGRESS);
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET), 0);
  epoll_event event{};
  ASSERT_EQ(WaitSet(set, &event, 1, 10'000), 1);
  EXPECT_EQ(event.events, static_cast<uint32_t>(EPOLLOUT));
  EXPECT_EQ(SocketError(fd), 0);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  ExpectKernelConnects(fd);
  Close(set);
  Close(fd);
}

TEST_F(FullTableTest, ARefusalIsThePeersAsEver) {
  const int fd = NewSocket(SOCK_STREAM);
  RefuseNextRule();
  EXPECT_EQ(Connect(fd, kTheirs, kNobodysPort), -ECONNREFUSED);
  Close(fd);
}

TEST_F(FullTableTest, ASocketThatIsBoundKeepsItsPort) {
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Bind(fd, kPort), 0);
  RefuseNextRule();
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), 0);
  EXPECT_EQ(PortOf(fd), kPort);
  ExpectKernelConnects(fd);
  Close(fd);
}

TEST_F(FullTableTest, WhenThereIsRoomAgainConnectionsAreTheRings) {
  const int fd = NewSocket(SOCK_STREAM);
  EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), 0);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded);
  EXPECT_EQ(Left(), left_before_);
  Close(fd);
}

TEST_F(FullTableTest, ConnectionsToOnePeerBeyondThePortsOfTheRingAreTheKernels) {
  std::vector<int> connected;
  for (int i = 0; i < kPorts; ++i) {
    connected.push_back(NewSocket(SOCK_STREAM));
    ASSERT_EQ(Connect(connected.back(), kTheirs, kTheirPort), 0) << i;
  }
  const int waits = NewSocket(SOCK_STREAM);
  EXPECT_EQ(Connect(waits, kTheirs, kTheirPort), 0);
  const int polls = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
  EXPECT_EQ(Connect(polls, kTheirs, kTheirPort), -EINPROGRESS);
  pollfd one{.fd = polls, .events = POLLOUT};
  EXPECT_EQ(Poll(&one, 1, 10'000), 1);
  EXPECT_EQ(one.revents, POLLOUT);
  EXPECT_EQ(SocketError(polls), 0);
  for (const int fd : {waits, polls}) {
    EXPECT_EQ(Behind(fd)->path(), sockets::Path::kKernel);
    EXPECT_EQ(Behind(fd)->reason(), kNoPort);
    Close(fd);
  }
  // The peer closes first: it is the one whose ports rest.
  for (int i = 0; i < kPorts + 2; ++i) close(accept(theirs_, nullptr, nullptr));
  for (const int fd : connected) {
    char byte;
    EXPECT_EQ(Receive(fd, &byte, 1), 0);
    Close(fd);
  }
}

}  // namespace
}  // namespace xtreme::faces
