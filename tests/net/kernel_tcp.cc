// SPDX-License-Identifier: Apache-2.0

#include "tests/net/kernel_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace xtreme::net {
namespace {

constexpr int kPatienceMs = 10'000;

sockaddr_in EndpointOf(const std::string& address, uint16_t port) {
  sockaddr_in endpoint = {};
  endpoint.sin_family = AF_INET;
  endpoint.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &endpoint.sin_addr), 1) << address;
  return endpoint;
}

int OpenSocket(const std::string& congestion) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  EXPECT_GE(fd, 0) << strerror(errno);
  if (congestion.empty()) return fd;
  const int set = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                             static_cast<socklen_t>(congestion.size()));
  EXPECT_EQ(set, 0) << congestion << ": " << strerror(errno);
  return fd;
}

}  // namespace

KernelTcp::KernelTcp(KernelTcp&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

KernelTcp& KernelTcp::operator=(KernelTcp&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

KernelTcp::~KernelTcp() { Close(); }

KernelTcp KernelTcp::Listen(const std::string& address, uint16_t port,
                            const std::string& congestion) {
  KernelTcp listener(OpenSocket(congestion));
  listener.SetOption(SOL_SOCKET, SO_REUSEADDR, 1);
  const sockaddr_in local = EndpointOf(address, port);
  EXPECT_EQ(bind(listener.fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local), 0)
      << strerror(errno);
  EXPECT_EQ(listen(listener.fd_, 1024), 0) << strerror(errno);
  return listener;
}

KernelTcp KernelTcp::Connect(const std::string& address, uint16_t port,
                             const std::string& congestion) {
  KernelTcp connection(OpenSocket(congestion));
  const sockaddr_in peer = EndpointOf(address, port);
  const int code =
      connect(connection.fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  EXPECT_TRUE(code == 0 || errno == EINPROGRESS) << strerror(errno);
  return connection;
}

KernelTcp KernelTcp::Accept() const {
  if (!Await(POLLIN)) return KernelTcp();
  return KernelTcp(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void KernelTcp::SetOption(int level, int option, int value) {
  EXPECT_EQ(setsockopt(fd_, level, option, &value, sizeof value), 0) << strerror(errno);
}

bool KernelTcp::Await(short events) const {
  pollfd waiting = {.fd = fd_, .events = events, .revents = 0};
  return poll(&waiting, 1, kPatienceMs) == 1;
}

void KernelTcp::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    ASSERT_TRUE(Await(POLLOUT)) << sent << " of " << bytes.size() << " bytes sent";
    const ssize_t code = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    ASSERT_GE(code, 0) << strerror(errno);
    sent += static_cast<size_t>(code);
  }
}

std::string KernelTcp::Receive(size_t count) {
  std::string bytes(count, 0);
  size_t received = 0;
  while (received < count && Await(POLLIN)) {
    const ssize_t code = recv(fd_, bytes.data() + received, count - received, 0);
    if (code <= 0) break;
    received += static_cast<size_t>(code);
  }
  bytes.resize(received);
  return bytes;
}

std::string KernelTcp::ReceiveEnd() {
  if (!Await(POLLIN)) return "nothing came";
  char byte;
  const ssize_t code = recv(fd_, &byte, 1, 0);
  if (code < 0) return strerror(errno);
  return code == 0 ? "" : std::string("the byte ") + byte;
}

// POLLHUP needs not be asked for.
bool KernelTcp::AwaitHangUp() const { return Await(0); }

void KernelTcp::ShutDown() { EXPECT_EQ(shutdown(fd_, SHUT_WR), 0) << strerror(errno); }

void KernelTcp::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  Close();
}

void KernelTcp::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace xtreme::net
