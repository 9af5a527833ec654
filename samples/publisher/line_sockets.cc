// SPDX-License-Identifier: Apache-2.0

#include "samples/publisher/line_sockets.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "fmt/format.h"

namespace publisher {
namespace {

constexpr int kSendTries = 100;
constexpr int kSendBufferBytes = 4 << 20;

int OpenBound(const std::string& address, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &local.sin_addr);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

std::optional<sockaddr_in> ParseEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  sockaddr_in endpoint = {};
  endpoint.sin_family = AF_INET;
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  const bool address = inet_pton(AF_INET, text.substr(0, colon).c_str(), &endpoint.sin_addr) == 1;
  if (!address || error != std::errc() || stop != end || port == 0) return std::nullopt;
  endpoint.sin_port = htons(port);
  return endpoint;
}

LineSockets::~LineSockets() {
  if (send_fd_ >= 0) close(send_fd_);
  if (request_fd_ >= 0) close(request_fd_);
}

std::string LineSockets::Open(const std::string& address, uint16_t port) {
  in_addr interface;
  if (inet_pton(AF_INET, address.c_str(), &interface) != 1) {
    return fmt::format("'{}' is not an IPv4 address", address);
  }
  send_fd_ = OpenBound(address, 0);
  if (send_fd_ < 0) return fmt::format("bind to {}: {}", address, strerror(errno));
  const uint8_t ttl = 1;
  if (setsockopt(send_fd_, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) != 0 ||
      setsockopt(send_fd_, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl) != 0) {
    return fmt::format("multicast from {}: {}", address, strerror(errno));
  }
  if (port == 0) return "";
  request_fd_ = OpenBound(address, port);
  return request_fd_ >= 0 ? "" : fmt::format("bind to {}:{}: {}", address, port, strerror(errno));
}

bool LineSockets::Send(const sockaddr_in& to, std::span<const uint8_t> datagram) {
  return SendFrom(send_fd_, to, datagram);
}

bool LineSockets::Answer(const sockaddr_in& to, std::span<const uint8_t> datagram) {
  return SendFrom(request_fd_, to, datagram);
}

bool LineSockets::SendFrom(int fd, const sockaddr_in& to, std::span<const uint8_t> datagram) {
  for (int i = 0; i < kSendTries; ++i) {
    const ssize_t sent = sendto(fd, datagram.data(), datagram.size(), 0,
                                reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (sent >= 0) {
      ++counters_.datagrams;
      return true;
    }
    // A full device queue (ENOBUFS) or socket buffer drains; an ICMP error of an earlier answer
    // (ECONNREFUSED) says nothing about this one.
    ++counters_.retried_sends;
    const timespec wait = {.tv_sec = 0, .tv_nsec = 100'000};
    nanosleep(&wait, nullptr);
  }
  ++counters_.failed_sends;
  return false;
}

std::optional<LineSockets::Asked> LineSockets::Receive(std::span<uint8_t> into) {
  if (request_fd_ < 0) return std::nullopt;
  Asked asked = {};
  socklen_t length = sizeof asked.from;
  const ssize_t got = recvfrom(request_fd_, into.data(), into.size(), 0,
                               reinterpret_cast<sockaddr*>(&asked.from), &length);
  if (got < 0) return std::nullopt;
  asked.length = static_cast<size_t>(got);
  return asked;
}

}  // namespace publisher
