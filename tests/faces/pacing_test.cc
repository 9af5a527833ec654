// SPDX-License-Identifier: Apache-2.0
//
// SO_MAX_PACING_RATE through the socket faces: the device holds a socket to it, whenever it was
// set, in the kernel's form and in VMA's. And what else a connection begins with of its listener's
// that may have to wait.
//
// A time is a lower bound: it holds however slow the host is.

#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kPort = 8030;
constexpr uint32_t kRate = 1'000'000;  // Bytes a second.
constexpr uint32_t kPackets = 400;
constexpr uint32_t kBytes = 1'000;
// What a device may send above the rate, at first: a generous one.
constexpr double kBurst = 100'000;

int SetRate(int fd, const void* value, socklen_t length) {
  return Behind(fd)->SetOption(SOL_SOCKET, SO_MAX_PACING_RATE, value, length);
}

class PacingTest : public LinkedFacesTest {
 protected:
  // Seconds in which the other side got all.
  double SecondsOf(int fd) {
    const auto echo = TheirUdpEcho(7001);
    SetReceiveTimeout(fd, 10'000);
    const std::string bytes(kBytes, 'x');
    char answer[kBytes];
    // The neighbour is known then.
    EXPECT_EQ(SendTo(fd, bytes, kTheirs, 7001), kBytes);
    EXPECT_EQ(Receive(fd, answer, sizeof answer), kBytes);
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t sent = 0; sent < kPackets; ++sent) {
      EXPECT_EQ(SendTo(fd, bytes, kTheirs, 7001), kBytes);
      if (sent % 10 == 9) {
        for (int i = 0; i < 10; ++i) EXPECT_EQ(Receive(fd, answer, sizeof answer), kBytes);
      }
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // Somebody connects to `listener` while another thread has the setup lock: its end, and ours.
  // Who takes a connection is inside the listener's door, of which a close may wait with that lock.
  static std::pair<int, int> ConnectWhileLocked(int listener) {
    const int theirs = TheirSocket(SOCK_STREAM | SOCK_NONBLOCK);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    std::atomic<bool> held{false};
    std::atomic<bool> accepted{false};
    Threads holder;
    holder.Start([&] {
      const std::lock_guard lock(sockets::Faces::The().setup());
      held = true;
      EXPECT_TRUE(Eventually([&] { return accepted.load(); }));
    });
    EXPECT_TRUE(Eventually([&] { return held.load(); }));
    connect(theirs, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    EXPECT_TRUE(Eventually([&] {
      Poke(listener);
      return (Behind(listener)->mask() & EPOLLIN) != 0;
    }));
    accepted = true;
    holder.Join();
    return {theirs, Accept(listener, 0)};
  }
  const double least_ = (kPackets * kBytes - kBurst) / kRate;
};

TEST_F(PacingTest, DatagramsKeepToARateThatWasSetOnABoundSocket) {
  const int fd = BoundDatagramSocket(kPort);
  ASSERT_EQ(SetRate(fd, &kRate, sizeof kRate), 0);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded) << Behind(fd)->reason();
  EXPECT_GE(SecondsOf(fd), least_);
  Close(fd);
}

TEST_F(PacingTest, RateThatWasSetBeforeBindHoldsInVmasForm) {
  const int fd = NewSocket(SOCK_DGRAM);
  const vma_rate_limit_t limit{.rate = kRate / 125, .max_burst_sz = 3'000, .typical_pkt_sz = 1'042};
  static_assert(sizeof limit == sockets::kVmaRateBytes);
  ASSERT_EQ(SetRate(fd, &limit, sizeof limit), 0);
  ASSERT_EQ(Bind(fd, kPort), 0);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded) << Behind(fd)->reason();
  vma_rate_limit_t told{};
  socklen_t length = sizeof told;
  int result = -1;
  EXPECT_TRUE(Behind(fd)->GetOption(SOL_SOCKET, SO_MAX_PACING_RATE, &told, &length, &result));
  EXPECT_EQ(result, 0);
  EXPECT_EQ(told.rate, limit.rate);
  EXPECT_EQ(told.max_burst_sz, limit.max_burst_sz);
  EXPECT_EQ(told.typical_pkt_sz, limit.typical_pkt_sz);
  EXPECT_GE(SecondsOf(fd), least_);
  Close(fd);
}

TEST_F(PacingTest, UncorkedDatagramThatFindsNoRoomOvertakesByTheKernel) {
  const int fd = BoundDatagramSocket(kPort);
  const int theirs = TheirSocket(SOCK_DGRAM);
  sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(7002)};
  ASSERT_EQ(bind(theirs, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(Connect(fd, kTheirs, 7002), 0);
  constexpr uint32_t kSlow = 10'000;  // Minutes for a queue of them.
  ASSERT_EQ(SetRate(fd, &kSlow, sizeof kSlow), 0);
  const std::string bytes(kBytes, 'x');
  const auto send = [&](const std::string& text) {
    const iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    return Behind(fd)->Send({.from = {&part, 1}, .flags = MSG_DONTWAIT});
  };
  ASSERT_TRUE(Eventually([&] { return send(bytes) == -EAGAIN; }));
  const int on = 1;
  const int off = 0;
  ASSERT_EQ(Behind(fd)->SetOption(IPPROTO_UDP, UDP_CORK, &on, sizeof on), 0);
  EXPECT_EQ(send("the whole"), 9);
  EXPECT_EQ(send(" of it"), 6);
  EXPECT_EQ(Behind(fd)->SetOption(IPPROTO_UDP, UDP_CORK, &off, sizeof off), 0);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded);
  char got[kBytes];
  EXPECT_TRUE(Eventually([&] {
    const ssize_t length = recv(theirs, got, sizeof got, MSG_DONTWAIT);
    return length > 0 && std::string(got, static_cast<size_t>(length)) == "the whole of it";
  }));
  close(theirs);
  Close(fd);
}

TEST_F(PacingTest, ConnectionGetsItsListenersRateWhileAnotherThreadHasTheSetupLock) {
  const int listener = Listener(kPort);
  ASSERT_EQ(SetRate(listener, &kRate, sizeof kRate), 0);
  const auto [theirs, fd] = ConnectWhileLocked(listener);
  ASSERT_GE(fd, 0);
  vma_rate_limit_t told{};
  socklen_t length = sizeof told;
  int result = -1;
  EXPECT_TRUE(Behind(fd)->GetOption(SOL_SOCKET, SO_MAX_PACING_RATE, &told, &length, &result));
  EXPECT_EQ(told.rate, kRate / 125);
  close(theirs);
  Close(fd);
  Close(listener);
}

TEST_F(PacingTest, ConnectionGetsItsListenersDeviceWhileAnotherThreadHasTheSetupLock) {
  const int listener = Listener(kPort);
  const std::string device = Behind(listener)->door()->interface();
  const auto length = static_cast<socklen_t>(device.size());
  ASSERT_EQ(setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, device.data(), length), 0);
  ASSERT_EQ(Behind(listener)->SetOption(SOL_SOCKET, SO_BINDTODEVICE, device.data(), length), 0);
  const auto [theirs, fd] = ConnectWhileLocked(listener);
  ASSERT_GE(fd, 0);
  std::array<char, IFNAMSIZ> told{};
  socklen_t size = told.size();
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, told.data(), &size), 0);
  EXPECT_EQ(std::string(told.data()), device);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded);
  close(theirs);
  Close(fd);
  Close(listener);
}

TEST_F(PacingTest, RateThatNoDeviceHasIsRefusedOrTheKernels) {
  const int fd = BoundDatagramSocket(kPort);
  constexpr uint64_t kTooMuch = ~uint64_t{0} / 16;
  EXPECT_EQ(SetRate(fd, &kTooMuch, sizeof kTooMuch), 0);
  EXPECT_EQ(Behind(fd)->path(), sockets::Path::kKernel);
  EXPECT_NE(Behind(fd)->reason(), "");
  Close(fd);
}

}  // namespace
}  // namespace xtreme::faces
