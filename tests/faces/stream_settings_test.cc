// SPDX-License-Identifier: Apache-2.0
//
// What the program sets of a socket, and before it the environment, is its connection's on a ring.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "stack/base/time.h"
#include "tests/faces/linked_faces.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_options.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kPort = 8'160;
constexpr uint16_t kTheirPort = 7'020;
constexpr uint32_t kMssOfEnvironment = 700;

// As the faces' calls do: the kernel's socket checks it first.
int Set(int fd, int level, int name, const void* value, socklen_t length) {
  if (setsockopt(fd, level, name, value, length) != 0) return -errno;
  return Behind(fd)->SetOption(level, name, value, length);
}
int SetInt(int fd, int level, int name, int value) {
  return Set(fd, level, name, &value, sizeof value);
}

// What its connection, or listener, is told.
engine::TcpSettings SettingsOf(int fd) {
  sockets::RingDoor* const ring = Behind(fd)->door();
  engine::TcpSettings settings;
  if (ring == nullptr) {
    ADD_FAILURE() << "on no ring: " << Behind(fd)->reason();
    return settings;
  }
  const sockets::RingDoor::Entry entry(ring);
  EXPECT_TRUE(ring->ring().tcp().GetSettings(Behind(fd)->handle(), &settings));
  return settings;
}

uint64_t SynsWithheld(int fd) {
  sockets::RingDoor* const ring = Behind(fd)->door();
  if (ring == nullptr) return 0;
  const sockets::RingDoor::Entry entry(ring);
  uint64_t syns = 0;
  ring->ring().tcp().VisitCounters(
      [&syns](std::string_view name, std::string_view /*help*/, uint64_t value) {
        if (name == "syns_withheld") syns = value;
      });
  return syns;
}

tcp_info InfoOf(int kernels) {
  tcp_info info{};
  socklen_t length = sizeof info;
  EXPECT_EQ(getsockopt(kernels, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
  return info;
}

class StreamSettingsTest : public LinkedFacesTest {
 protected:
  void SetUp() override {
    theirs_ = TheirSocket(SOCK_STREAM);
    const int on = 1;
    setsockopt(theirs_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(kTheirPort)};
    ASSERT_EQ(bind(theirs_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    ASSERT_EQ(listen(theirs_, 8), 0);
  }
  void TearDown() override { close(theirs_); }

  // Their end of it.
  int ConnectToThem(int fd) {
    const int connected = Connect(fd, kTheirs, kTheirPort);
    EXPECT_EQ(connected, 0);
    return connected == 0 ? accept(theirs_, nullptr, nullptr) : -1;
  }
  // How much a connection takes for a peer that does not read; its room is 0: as without a word.
  ssize_t TakenBy(int room) {
    const int fd = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
    if (room != 0) {
      EXPECT_EQ(SetInt(fd, SOL_SOCKET, SO_SNDBUF, room), 0);
    }
    EXPECT_EQ(Connect(fd, kTheirs, kTheirPort), -EINPROGRESS);
    const int accepted = accept(theirs_, nullptr, nullptr);
    pollfd writable{.fd = fd, .events = POLLOUT};
    EXPECT_EQ(Poll(&writable, 1, 10'000), 1);
    const std::string bytes(1'000, 'x');
    ssize_t total = 0;
    for (ssize_t sent = 0; (sent = Send(fd, bytes.data(), bytes.size())) > 0;) total += sent;
    close(accepted);
    pollfd reset{.fd = fd, .events = 0};
    EXPECT_EQ(Poll(&reset, 1, 10'000), 1) << "what it holds is free then";
    Close(fd);
    return total;
  }

  int theirs_ = -1;
};

TEST_F(StreamSettingsTest, ConnectionsAreAsTheEnvironmentSays) {
  const int fd = NewSocket(SOCK_STREAM);
  const int accepted = ConnectToThem(fd);
  const engine::TcpSettings settings = SettingsOf(fd);
  EXPECT_TRUE(settings.quick_ack);
  EXPECT_EQ(settings.congestion, engine::TcpCongestion::kNone);
  const tcp_info info = InfoOf(accepted);
  EXPECT_EQ(info.tcpi_snd_mss, kMssOfEnvironment);
  EXPECT_EQ(info.tcpi_options & TCPI_OPT_TIMESTAMPS, 0);
  close(accepted);
  Close(fd);
}

TEST_F(StreamSettingsTest, MulticastOfSocketsIsAsTheEnvironmentSays) {
  const int fd = NewSocket(SOCK_DGRAM);
  int loops = -1;
  socklen_t length = sizeof loops;
  ASSERT_EQ(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &loops, &length), 0);
  EXPECT_EQ(loops, 0);
  Close(fd);
}

TEST_F(StreamSettingsTest, TheProgramsWordGoesBeforeTheEnvironments) {
  const int fd = NewSocket(SOCK_STREAM);
  constexpr std::string_view kReno = "reno";
  ASSERT_EQ(Set(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size()), 0);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_QUICKACK, 0), 0);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_MAXSEG, 600), 0);
  const int accepted = ConnectToThem(fd);
  EXPECT_EQ(SettingsOf(fd).congestion, engine::TcpCongestion::kNewReno);
  EXPECT_FALSE(SettingsOf(fd).quick_ack);
  EXPECT_EQ(InfoOf(accepted).tcpi_snd_mss, 600u) << "theirs to us";
  close(accepted);
  Close(fd);
}

TEST_F(StreamSettingsTest, AcknowledgementsAreSwitchedWhileItIsOpen) {
  const int fd = NewSocket(SOCK_STREAM);
  const int accepted = ConnectToThem(fd);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_QUICKACK, 0), 0);
  EXPECT_FALSE(SettingsOf(fd).quick_ack);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_QUICKACK, 1), 0);
  EXPECT_TRUE(SettingsOf(fd).quick_ack);
  close(accepted);
  Close(fd);
}

TEST_F(StreamSettingsTest, ConnectIsGivenUpWhenTheKernelWould) {
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_SYNCNT, 2), 0);
  const int accepted = ConnectToThem(fd);
  EXPECT_EQ(SettingsOf(fd).connect_timeout, base::Seconds(7)) << "1, 2 and 4 s";
  close(accepted);
  Close(fd);
}

TEST_F(StreamSettingsTest, WhatServersSetOfConnectionsIsTheirs) {
  const int fd = NewSocket(SOCK_STREAM);
  const int accepted = ConnectToThem(fd);
  EXPECT_EQ(SettingsOf(fd).fin_wait_timeout, base::kNever);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 9'000), 0);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16'384), 0);
  ASSERT_EQ(SetInt(fd, IPPROTO_TCP, TCP_LINGER2, 7), 0);
  const engine::TcpSettings settings = SettingsOf(fd);
  EXPECT_EQ(settings.window_clamp_bytes, 9'000u);
  EXPECT_EQ(settings.unsent_low_water_bytes, 16'384u);
  EXPECT_EQ(settings.fin_wait_timeout, base::Seconds(7));
  EXPECT_EQ(SetInt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0), -EINVAL);
  close(accepted);
  Close(fd);
}

// What a ring cannot heed it is not to take without a word.
TEST_F(StreamSettingsTest, WhatOnlyTheKernelHeedsIsTheKernelsOrRefused) {
  const int early = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(early, IPPROTO_IP, IP_MINTTL, 255), 0);
  EXPECT_EQ(Behind(early)->path(), sockets::Path::kKernel);
  EXPECT_NE(Behind(early)->reason().find("IP_MINTTL"), std::string::npos);
  Close(early);
  const int datagrams = NewSocket(SOCK_DGRAM);
  ASSERT_EQ(SetInt(datagrams, IPPROTO_UDP, UDP_ENCAP, UDP_ENCAP_ESPINUDP), 0);
  EXPECT_EQ(Behind(datagrams)->path(), sockets::Path::kKernel);
  Close(datagrams);
  const int unchecked = NewSocket(SOCK_DGRAM);
  ASSERT_EQ(SetInt(unchecked, SOL_SOCKET, SO_NO_CHECK, 1), 0);
  EXPECT_EQ(Behind(unchecked)->path(), sockets::Path::kKernel);
  Close(unchecked);
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(fd, IPPROTO_IP, IP_MINTTL, 0), 0);
  const int accepted = ConnectToThem(fd);
  EXPECT_EQ(SetInt(fd, IPPROTO_IP, IP_MINTTL, 255), -EOPNOTSUPP);
  EXPECT_EQ(SetInt(fd, IPPROTO_TCP, TCP_TX_DELAY, 1'000), -EOPNOTSUPP);
  EXPECT_EQ(SetInt(fd, SOL_SOCKET, SO_DONTROUTE, 1), 0) << "it is told in the log";
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded);
  close(accepted);
  Close(fd);
}

// Kernels of before 2025 have none of them.
TEST_F(StreamSettingsTest, TimesThatNewKernelsHaveOptionsForAreTheConnections) {
  constexpr int kMostRto = 44;
  constexpr int kLeastRto = 45;
  constexpr int kLongestAckDelay = 46;
  const int fd = NewSocket(SOCK_STREAM);
  const int accepted = ConnectToThem(fd);
  const engine::TcpSettings before = SettingsOf(fd);
  const int least = SetInt(fd, IPPROTO_TCP, kLeastRto, 20'000);
  const int delay = SetInt(fd, IPPROTO_TCP, kLongestAckDelay, 8'000);
  const int most = SetInt(fd, IPPROTO_TCP, kMostRto, 5'000);
  const engine::TcpSettings after = SettingsOf(fd);
  EXPECT_EQ(after.min_rto,
            least == -ENOPROTOOPT ? before.min_rto : base::Nanoseconds(base::Milliseconds(20)));
  EXPECT_EQ(after.delayed_ack, delay == -ENOPROTOOPT
                                   ? before.delayed_ack
                                   : base::Nanoseconds(base::Milliseconds(8)));
  EXPECT_EQ(most, most == -ENOPROTOOPT ? most : -EOPNOTSUPP);
  close(accepted);
  Close(fd);
}

// Their times double from a second on.
TEST_F(StreamSettingsTest, DataIsWaitedForAsLongAsTheKernelWould) {
  const int listener = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30), 0);
  ASSERT_EQ(Bind(listener, kPort), 0);
  ASSERT_EQ(Listen(listener), 0);
  pollfd first{.fd = listener, .events = POLLIN};
  ASSERT_EQ(Poll(&first, 1, 0), 0) << "it is on a ring from then on";
  EXPECT_EQ(SettingsOf(listener).deferrals, 5) << "1, 2, 4, 8 and 16 s";
  ASSERT_EQ(SetInt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0), 0);
  EXPECT_EQ(SettingsOf(listener).deferrals, 0);
  Close(listener);
}

TEST_F(StreamSettingsTest, RoomForWhatIsSentIsWhatTheProgramSays) {
  EXPECT_LT(TakenBy(16'384), 64'000);
  EXPECT_GT(TakenBy(0), 300'000);
  EXPECT_GT(TakenBy(8 << 20), 300'000) << "no less than without a word, whatever the kernel grants";
}

// RFC 9293 section 3.8.6: the window is what the program has room for.
TEST_F(StreamSettingsTest, WindowOfAListenersConnectionsIsTheRoomThatTheProgramSays) {
  const int listener = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(listener, SOL_SOCKET, SO_RCVBUF, 16'384), 0);
  ASSERT_EQ(Bind(listener, kPort), 0);
  ASSERT_EQ(Listen(listener), 0);
  pollfd first{.fd = listener, .events = POLLIN};
  ASSERT_EQ(Poll(&first, 1, 0), 0) << "it is on a ring from then on";
  EXPECT_EQ(SettingsOf(listener).receive_window_bytes, 16'384u);
  Close(listener);
}

TEST_F(StreamSettingsTest, ListenerAnswersNoMoreSynsInASecondThanTheEnvironmentSays) {
  const int listener = NewSocket(SOCK_STREAM);
  ASSERT_EQ(Bind(listener, kPort), 0);
  ASSERT_EQ(Listen(listener), 0);
  pollfd first{.fd = listener, .events = POLLIN};
  ASSERT_EQ(Poll(&first, 1, 0), 0) << "it is on a ring from then on";
  std::vector<int> theirs;
  sockaddr_in ours{.sin_family = AF_INET, .sin_port = htons(kPort)};
  inet_pton(AF_INET, kOurs, &ours.sin_addr);
  for (int i = 0; i < 3; ++i) {
    theirs.push_back(TheirSocket(SOCK_STREAM | SOCK_NONBLOCK));
    connect(theirs.back(), reinterpret_cast<const sockaddr*>(&ours), sizeof ours);
  }
  EXPECT_TRUE(Eventually([listener] { return Poke(listener), SynsWithheld(listener) >= 1; }));
  EXPECT_EQ(Poll(&first, 1, 10'000), 1) << "one is answered";
  for (const int fd : theirs) close(fd);
  Close(listener);
}

// Windows below engine::kLeastReceiveWindow are no good.
TEST_F(StreamSettingsTest, WindowIsNoSmallerThanOneOfUse) {
  const int fd = NewSocket(SOCK_STREAM);
  ASSERT_EQ(SetInt(fd, SOL_SOCKET, SO_RCVBUF, 1), 0);
  const int accepted = ConnectToThem(fd);
  EXPECT_EQ(SettingsOf(fd).receive_window_bytes, engine::kLeastReceiveWindow);
  close(accepted);
  Close(fd);
}

}  // namespace
}  // namespace xtreme::faces
