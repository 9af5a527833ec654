// SPDX-License-Identifier: Apache-2.0
//
// Connections: options that they cannot have, and that would end them if the kernel had them, are
// refused, where Linux takes them; what is under way; and what a reset is to who sends.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/sockets/kernel_calls.h"
#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kPort = 8040;
constexpr uint16_t kHalfOpenPort = 8039;
constexpr uint16_t kBacklogPort = 8038;
constexpr uint16_t kSmallPort = 8037;

using ConnectionTest = LinkedFacesTest;

// In the kernel, on the other side, with little room.
int TheirListener(uint16_t port) {
  const int fd = TheirSocket(SOCK_STREAM);
  const int room = 8'192;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  const sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(port)};
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(listen(fd, 8), 0);
  return fd;
}

TEST_F(ConnectionTest, OptionsOfTheKernelsOwnAreRefusedByAConnectionWhichGoesOn) {
  const int listener = Listener(kPort);
  Threads threads;
  threads.Start([] { EXPECT_TRUE(TheirEcho(kPort, 1'000)); });
  int fd = -EAGAIN;
  ASSERT_TRUE(Eventually([&] { return (fd = Accept(listener, 0)) >= 0; }));
  const int on = 1;
  const int off = 0;
  sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, ~uint32_t{0})};
  const sock_fprog filter{.len = 1, .filter = all};
  sockets::Socket& socket = *Behind(fd);
  EXPECT_EQ(socket.SetOption(SOL_SOCKET, SO_ZEROCOPY, &off, sizeof off), 0);
  EXPECT_EQ(socket.SetOption(SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), -EOPNOTSUPP);
  EXPECT_EQ(socket.SetOption(SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), -EOPNOTSUPP);
  EXPECT_EQ(socket.path(), sockets::Path::kOffloaded);
  char bytes[4096];
  ssize_t got = 0;
  while ((got = Receive(fd, bytes, sizeof bytes)) > 0) {
    EXPECT_EQ(Send(fd, bytes, static_cast<size_t>(got)), got);
  }
  EXPECT_EQ(got, 0);
  Close(fd);
  threads.Join();
  Close(listener);
}

// A connection that a peer has begun with the kernel, whose last step would come to the ring: it is
// the peer's, who has heard of it, and goes on where it began.
TEST_F(ConnectionTest, AListenerThatHasOneHalfOpenIsTheKernels) {
  const int listener = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Bind(listener, kHalfOpenPort), 0);
  ASSERT_EQ(Listen(listener), 0);
  sock_filter no_acknowledgement[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x10, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF),
  };
  const sock_fprog filter{.len = 4, .filter = no_acknowledgement};
  ASSERT_EQ(setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
  const int client = TheirSocket(SOCK_STREAM);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kHalfOpenPort)};
  ASSERT_EQ(inet_pton(AF_INET, kOurs, &to.sin_addr), 1);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  pollfd readable{.fd = listener, .events = POLLIN};
  EXPECT_EQ(Poll(&readable, 1, 0), 0);
  EXPECT_TRUE(Behind(listener)->deferred()) << Behind(listener)->reason();
  EXPECT_EQ(Behind(listener)->door(), nullptr);
  ASSERT_EQ(setsockopt(listener, SOL_SOCKET, SO_DETACH_FILTER, &filter, sizeof filter), 0);
  ASSERT_EQ(send(client, "x", 1, 0), 1);
  int fd = -EAGAIN;
  EXPECT_TRUE(Eventually([&] { return (fd = Accept(listener, SOCK_NONBLOCK)) >= 0; }));
  char byte = 0;
  EXPECT_TRUE(Eventually([&] { return Receive(fd, &byte, 1) == 1; }));
  EXPECT_EQ(byte, 'x');
  Close(fd);
  close(client);
  Close(listener);
}

std::atomic<int> faster{0};
decltype(sockets::KernelCalls::accept4) accept_of_kernel = nullptr;

// As a thread, or a process, that has the listener too.
int AcceptAfterAnother(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (faster == 0) {
    close(accept_of_kernel(fd, nullptr, nullptr, 0));
    ++faster;
  }
  return accept_of_kernel(fd, address, length, flags);
}

TEST_F(ConnectionTest, WhoWaitsForOneThatAnotherAcceptsFirstWaitsForTheWireToo) {
  const int listener = Listener(kPort);
  auto& kernel = const_cast<sockets::KernelCalls&>(sockets::Kernel());
  accept_of_kernel = std::exchange(kernel.accept4, &AcceptAfterAnother);
  std::atomic<int> accepted{-1};
  Threads acceptor;
  acceptor.Start([&] { accepted = Accept(listener, 0); });
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort)};
  inet_pton(AF_INET, kOurs, &to.sin_addr);
  const auto* const address = reinterpret_cast<const sockaddr*>(&to);
  const int beside = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(beside, address, sizeof to), 0);
  EXPECT_TRUE(Eventually([] { return faster == 1; }));
  const int theirs = TheirSocket(SOCK_STREAM | SOCK_NONBLOCK);
  connect(theirs, address, sizeof to);
  EXPECT_TRUE(Eventually([&] { return accepted >= 0; }));
  // Else it sleeps in the kernel, until there is one.
  const int release = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (accepted < 0) connect(release, address, sizeof to);
  acceptor.Join();
  kernel.accept4 = accept_of_kernel;
  EXPECT_NE(Behind(accepted), nullptr);
  EXPECT_EQ(fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
  Close(accepted);
  for (const int fd : {beside, release, theirs}) close(fd);
  Close(listener);
}

std::atomic<bool> in_kernel{false};
std::atomic<bool> may_accept{false};

// As a thread that was put off the processor before it asked.
int AcceptLate(int fd, sockaddr* address, socklen_t* length, int flags) {
  in_kernel = true;
  EXPECT_TRUE(Eventually([] { return may_accept.load(); }));
  return accept_of_kernel(fd, address, length, flags);
}

TEST_F(ConnectionTest, AChildAcceptsThoughAThreadOfItsParentWasAboutTo) {
  const int listener = Listener(kPort);
  auto& kernel = const_cast<sockets::KernelCalls&>(sockets::Kernel());
  accept_of_kernel = std::exchange(kernel.accept4, &AcceptLate);
  Threads acceptor;
  acceptor.Start([&] { EXPECT_GE(Accept(listener, 0), 0); });
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort)};
  inet_pton(AF_INET, kOurs, &to.sin_addr);
  const int beside[2] = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                         socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  for (const int each : beside) {
    EXPECT_EQ(connect(each, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  EXPECT_TRUE(Eventually([] { return in_kernel.load(); }));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    kernel.accept4 = accept_of_kernel;
    _exit(Accept(listener, 0) >= 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  may_accept = true;
  acceptor.Join();
  kernel.accept4 = accept_of_kernel;
  for (const int each : beside) close(each);
  Close(listener);
}

uint64_t HandshakesOnRingOfNotFinished(int fd) {
  sockets::RingDoor* const door = Behind(fd)->door();
  const sockets::RingDoor::Entry entry(door);
  door->Progress();
  uint64_t count = 0;
  door->ring().tcp().VisitCounters(
      [&count](std::string_view name, std::string_view /*help*/, uint64_t value) {
        if (name == "backlog_full") count = value;
      });
  return count;
}

// On Linux one more wait to be accepted than the backlog says, which may be another one later.
TEST_F(ConnectionTest, AsManyWaitToBeAcceptedAsTheBacklogSays) {
  const int listener = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
  ASSERT_EQ(Bind(listener, kBacklogPort), 0);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kBacklogPort)};
  inet_pton(AF_INET, kOurs, &to.sin_addr);
  std::vector<int> theirs;
  std::vector<int> ours;
  for (const int backlog : {1, 3}) {
    ASSERT_EQ(Behind(listener)->Listen(backlog), 0);
    ASSERT_EQ(Accept(listener, 0), -EAGAIN);
    ASSERT_TRUE(Behind(listener)->listening()) << Behind(listener)->reason();
    const uint64_t before = HandshakesOnRingOfNotFinished(listener);
    for (int i = 0; i < 6; ++i) {
      theirs.push_back(TheirSocket(SOCK_STREAM | SOCK_NONBLOCK));
      connect(theirs.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
    const uint64_t too_many = 6u - static_cast<unsigned>(backlog) - 1;
    EXPECT_TRUE(Eventually(
        [&] { return HandshakesOnRingOfNotFinished(listener) - before >= too_many; }));
    int at_once = 0;
    for (int fd = 0; (fd = Accept(listener, 0)) >= 0; ++at_once) ours.push_back(fd);
    EXPECT_EQ(at_once, backlog + 1);
    // The others come when they are asked again.
    EXPECT_TRUE(Eventually([&] {
      const int fd = Accept(listener, 0);
      if (fd >= 0) ours.push_back(fd);
      return ours.size() == theirs.size();
    }));
  }
  for (const int each : theirs) close(each);
  for (const int each : ours) Close(each);
  Close(listener);
}

// The kernel's socket would say, for ever, that nothing waits.
TEST_F(ConnectionTest, PagesOfAConnectionAreNotToBeHad) {
  const int theirs = TheirListener(7007);
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Connect(fd, kTheirs, 7007), 0);
  tcp_zerocopy_receive pages{};
  socklen_t length = sizeof pages;
  int result = 0;
  ASSERT_TRUE(
      Behind(fd)->GetOption(IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &pages, &length, &result));
  EXPECT_EQ(result, -EOPNOTSUPP);
  Close(fd);
  close(theirs);
}

// SIOCOUTQ and SIOCOUTQNSD.
TEST_F(ConnectionTest, BytesUnderWayAreThoseThatThePeerHasNotAcknowledged) {
  const int theirs = TheirListener(7004);
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Connect(fd, kTheirs, 7004), 0);
  const int accepted = accept(theirs, nullptr, nullptr);
  sockets::Socket& socket = *Behind(fd);
  const std::string bytes(1'000, 'x');
  const iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  ssize_t total = 0;
  const auto send = [&] {
    const ssize_t sent = socket.Send({.from = {&part, 1}, .flags = MSG_DONTWAIT});
    if (sent > 0) total += sent;
    return sent;
  };
  // Before anything is heard of the peer, so that the first answer was about bytes under way, too.
  EXPECT_TRUE(Eventually([&] {
    Poke(fd);
    if (socket.UnacknowledgedBytes() != 0) return false;
    return send() == 1'000 && socket.UnsentBytes() == 0 && socket.UnacknowledgedBytes() == 1'000;
  }));
  // Its window closes: it does not read.
  EXPECT_TRUE(Eventually([&] { return send() == -EAGAIN; }));
  EXPECT_TRUE(Eventually([&] {
    Poke(fd);
    int there = 0;
    ioctl(accepted, FIONREAD, &there);
    const int unacknowledged = socket.UnacknowledgedBytes();
    return there + unacknowledged == total && socket.UnsentBytes() > 0 &&
           socket.UnsentBytes() <= unacknowledged;
  }));
  close(accepted);
  close(theirs);
  Close(fd);
}

// What a program without MSG_DONTWAIT relies on, which polls, and sends and receives by turns: it
// would wait for a peer that waits for it.
TEST_F(ConnectionTest, WhatIsWritableTakesMoreThanAFewBytesAndIsSoAgainWhenAThirdIsFree) {
  const int theirs = TheirListener(7005);
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Connect(fd, kTheirs, 7005), 0);
  const int accepted = accept(theirs, nullptr, nullptr);
  const std::string bytes(10'000, 'x');
  const iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  const auto send = [&] {
    return Behind(fd)->Send({.from = {&part, 1}, .flags = MSG_DONTWAIT});
  };
  pollfd writable{.fd = fd, .events = POLLOUT};
  ssize_t total = 0;
  while (Poll(&writable, 1, 300) == 1) {
    ASSERT_EQ(send(), 10'000) << total;
    total += 10'000;
  }
  EXPECT_GT(total, 600'000);
  // All the same there is room.
  ssize_t beyond = 0;
  for (ssize_t sent = 0; (sent = send()) > 0;) beyond += sent;
  EXPECT_GT(beyond, 300'000);
  EXPECT_EQ(Poll(&writable, 1, 0), 0);
  std::string taken(100'000, '-');
  ssize_t read = 0;
  while (read < total + beyond) {
    const ssize_t got = recv(accepted, taken.data(), taken.size(), 0);
    ASSERT_GT(got, 0);
    read += got;
    if (Poll(&writable, 1, 0) == 0) continue;
    EXPECT_GT(read, 300'000);
  }
  EXPECT_EQ(Poll(&writable, 1, 10'000), 1);
  close(accepted);
  close(theirs);
  Close(fd);
}

// Bytes wait at either end: what held them goes.
TEST_F(ConnectionTest, ConnectionToNobodyResetsItAndTheSocketConnectsAnew) {
  const int theirs = TheirListener(7006);
  const int fd = NewSocket(SOCK_STREAM);
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(Connect(fd, kTheirs, 7006), 0);
    const int accepted = accept(theirs, nullptr, nullptr);
    char byte = 0;
    EXPECT_EQ(send(accepted, "unread", 6, 0), 6);
    EXPECT_EQ(Send(fd, "x", 1), 1);
    EXPECT_EQ(recv(accepted, &byte, 1, 0), 1);
    EXPECT_EQ(Behind(fd)->Connect(&nobody, sizeof nobody), 0);
    EXPECT_EQ(recv(accepted, &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_EQ(Behind(fd)->path(), sockets::Path::kUndecided);
    int error = 0;
    socklen_t length = sizeof error;
    EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    EXPECT_EQ(error, ECONNRESET) << "of the kernel's socket, by which poll() tells it";
    close(accepted);
  }
  close(theirs);
  Close(fd);
}

// The connection has ended in the ring, and why it did is told once its port is given back.
TEST_F(ConnectionTest, WhoSendsToAPeerThatHasResetLearnsThatFirst) {
  const int theirs = TheirListener(7003);
  constexpr linger kReset{.l_onoff = 1, .l_linger = 0};
  for (int round = 0; round < 50; ++round) {
    const int fd = NewSocket(SOCK_STREAM);
    ASSERT_EQ(Bind(fd, static_cast<uint16_t>(kPort + 1 + round)), 0);
    ASSERT_EQ(Connect(fd, kTheirs, 7003), 0);
    const int accepted = accept(theirs, nullptr, nullptr);
    setsockopt(accepted, SOL_SOCKET, SO_LINGER, &kReset, sizeof kReset);
    close(accepted);
    ssize_t sent = 0;
    EXPECT_TRUE(Eventually([&] { return (sent = Send(fd, "x", 1)) != 1; }));
    EXPECT_EQ(sent, -ECONNRESET);
    EXPECT_EQ(Send(fd, "x", 1), -EPIPE);
    Close(fd);
  }
  close(theirs);
}

// A peer that sends little at a time to who does not read takes no more of the ring's buffers than
// one that sends much, and is told of no more room than there is.
TEST_F(ConnectionTest, WhatIsReadLateSharesBuffers) {
  constexpr int kBytes = 3'000, kAtOnce = 10;
  constexpr uint32_t kMostBuffers = 300;
  const int theirs = TheirListener(kSmallPort);
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Connect(fd, kTheirs, kSmallPort), 0);
  const int peer = accept(theirs, nullptr, nullptr);
  const int on = 1;
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const uint32_t before = FreeBuffers(fd);
  uint32_t least = before;
  std::string sent;
  for (int i = 0; i < kBytes; ++i) {
    sent += static_cast<char>('a' + i % 26 + i / 26 % 5);
    ASSERT_EQ(send(peer, &sent.back(), 1, 0), 1);
    if (sent.size() % kAtOnce != 0) continue;
    ASSERT_TRUE(Eventually([&] {
      Poke(fd);
      return Behind(fd)->ReadableBytes() == static_cast<int>(sent.size());
    })) << i;
    least = std::min(least, FreeBuffers(fd));
  }
  EXPECT_LT(before - least, kMostBuffers);
  std::string got(sent.size() + 1, 0);
  ASSERT_EQ(Receive(fd, got.data(), got.size()), kBytes);
  got.pop_back();
  EXPECT_EQ(got, sent);
  EXPECT_EQ(FreeBuffers(fd), before);
  Close(fd);
  close(peer);
  close(theirs);
}

}  // namespace
}  // namespace xtreme::faces
