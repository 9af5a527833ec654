// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/kernel_lines.h"

#include <net/if.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "fmt/format.h"
#include "samples/publisher/line_sockets.h"

namespace receiver {
namespace {

constexpr int kReceiveBufferBytes = 8 << 20;

std::string Failed(const std::string& action) {
  return fmt::format("{}: {}", action, strerror(errno));
}

bool TurnOn(int fd, int level, int option) {
  const int on = 1;
  return setsockopt(fd, level, option, &on, sizeof on) == 0;
}

// A burst has to fit. An ordinary user gets what net.core.rmem_max allows.
void WidenReceiveBuffer(int fd) {
  const int size = kReceiveBufferBytes;
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

}  // namespace

KernelLines::KernelLines()
    : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      bytes_(kBatch * (kLines + 1)),
      control_(bytes_.size()),
      vectors_(bytes_.size()),
      messages_(bytes_.size()) {
  fds_.fill(-1);
  datagrams_.reserve(bytes_.size());
  for (size_t i = 0; i < bytes_.size(); ++i) {
    vectors_[i] = {bytes_[i].data(), bytes_[i].size()};
    messages_[i].msg_hdr.msg_iov = &vectors_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
  }
}

KernelLines::~KernelLines() {
  for (int fd : fds_) {
    if (fd >= 0) close(fd);
  }
  close(epoll_fd_);
}

std::string KernelLines::Open(const std::string& interface,
                              const std::array<std::string, kLines>& lines,
                              const std::string& request_to) {
  for (size_t i = 0; i < kLines; ++i) {
    if (std::string wrong = OpenLine(i, interface, lines[i]); !wrong.empty()) return wrong;
  }
  if (request_to.empty()) return "";
  return OpenRequests(request_to);
}

std::string KernelLines::OpenLine(size_t number, const std::string& interface,
                                  const std::string& line) {
  const std::optional<sockaddr_in> group = publisher::ParseEndpoint(line);
  if (!group) return fmt::format("a line is GROUP:PORT, not '{}'", line);
  ip_mreqn membership = {};
  membership.imr_multiaddr = group->sin_addr;
  membership.imr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (membership.imr_ifindex == 0) return Failed("find interface " + interface);
  const int fd = fds_[number] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  WidenReceiveBuffer(fd);
  // Bound to the group, not to any address: the other line may use the same port.
  if (!TurnOn(fd, SOL_SOCKET, SO_REUSEADDR) || !TurnOn(fd, SOL_SOCKET, SO_TIMESTAMPNS) ||
      !TurnOn(fd, SOL_SOCKET, SO_RXQ_OVFL) ||
      bind(fd, reinterpret_cast<const sockaddr*>(&*group), sizeof *group) != 0) {
    return Failed("bind to " + line);
  }
  if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0) {
    return Failed("join " + line + " at " + interface);
  }
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = number}};
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0 ? "" : Failed("watch " + line);
}

std::string KernelLines::OpenRequests(const std::string& request_to) {
  const std::optional<sockaddr_in> server = publisher::ParseEndpoint(request_to);
  if (!server) return fmt::format("requests go to A.B.C.D:PORT, not '{}'", request_to);
  const int fd = fds_[kRequests] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kRequests}};
  if (!TurnOn(fd, SOL_SOCKET, SO_TIMESTAMPNS) || !TurnOn(fd, SOL_SOCKET, SO_RXQ_OVFL) ||
      connect(fd, reinterpret_cast<const sockaddr*>(&*server), sizeof *server) != 0 ||
      epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return Failed("connect to " + request_to);
  }
  return "";
}

std::span<const KernelLines::Datagram> KernelLines::Receive(int timeout_ms) {
  datagrams_.clear();
  std::array<epoll_event, kLines + 1> events;
  const int ready = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
  for (int i = 0; i < ready; ++i) ReceiveBatch(events[i].data.u64);
  return datagrams_;
}

bool KernelLines::Ask(std::span<const uint8_t> request) {
  return send(fds_[kRequests], request.data(), request.size(), 0) >= 0;
}

uint64_t KernelLines::drops() const {
  uint64_t all = 0;
  for (uint32_t drops : drops_) all += drops;
  return all;
}

void KernelLines::ReceiveBatch(size_t number) {
  const size_t first = number * kBatch;
  for (size_t i = first; i < first + kBatch; ++i) {
    messages_[i].msg_hdr.msg_control = control_[i].data();
    messages_[i].msg_hdr.msg_controllen = control_[i].size();
  }
  const int got = recvmmsg(fds_[number], &messages_[first], kBatch, MSG_DONTWAIT, nullptr);
  for (int i = 0; i < got; ++i) {
    mmsghdr& message = messages_[first + static_cast<size_t>(i)];
    const auto* start = static_cast<const uint8_t*>(message.msg_hdr.msg_iov->iov_base);
    Datagram datagram = {number, {start, message.msg_len}, 0};
    ReadControl(number, &message.msg_hdr, &datagram);
    datagrams_.push_back(datagram);
  }
}

void KernelLines::ReadControl(size_t number, msghdr* header, Datagram* datagram) {
  for (cmsghdr* each = CMSG_FIRSTHDR(header); each != nullptr; each = CMSG_NXTHDR(header, each)) {
    if (each->cmsg_level != SOL_SOCKET) continue;
    if (each->cmsg_type == SO_TIMESTAMPNS) {
      timespec time;
      memcpy(&time, CMSG_DATA(each), sizeof time);
      datagram->received_ns = time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
    }
    // So far, since the socket was opened; it comes only when there were any.
    if (each->cmsg_type == SO_RXQ_OVFL) {
      memcpy(&drops_[number], CMSG_DATA(each), sizeof drops_[number]);
    }
  }
}

}  // namespace receiver
