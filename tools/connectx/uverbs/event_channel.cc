// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/event_channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

namespace xtreme::connectx {
namespace {

// Raw system calls: a preloaded socket library under test must not see our sockets.
long SendRecord(int fd, std::span<const std::byte> record) {
  return ::syscall(SYS_sendto, fd, record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                   nullptr, 0);
}

}  // namespace

std::shared_ptr<EventChannel> EventChannel::Create(size_t record_bytes) {
  std::array<int, 2> ends;
  // SEQPACKET keeps records whole, as the kernel's event files do.
  if (::syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return nullptr;
  }
  const int shadow = static_cast<int>(::syscall(SYS_fcntl, ends[1], F_DUPFD_CLOEXEC, 0));
  if (shadow < 0) {
    ::syscall(SYS_close, ends[0]);
    ::syscall(SYS_close, ends[1]);
    return nullptr;
  }
  return std::shared_ptr<EventChannel>(
      new EventChannel(record_bytes, ends[0], ends[1], shadow));
}

EventChannel::~EventChannel() {
  ::syscall(SYS_close, device_fd_);
  ::syscall(SYS_close, shadow_fd_);
}

bool EventChannel::Send(std::span<const std::byte> record) {
  const std::lock_guard lock(mutex_);
  return SendRecord(device_fd_, record) == static_cast<long>(record.size());
}

void EventChannel::HangUp() { ::syscall(SYS_shutdown, device_fd_, SHUT_RDWR); }

uint32_t EventChannel::Discard(uint64_t element) {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<std::byte>> others;
  uint32_t discarded = 0;
  std::vector<std::byte> record(record_bytes_);
  while (::syscall(SYS_recvfrom, shadow_fd_, record.data(), record.size(), MSG_DONTWAIT, nullptr,
                   nullptr) == static_cast<long>(record.size())) {
    uint64_t about;
    std::memcpy(&about, record.data(), sizeof(about));
    if (about == element) {
      ++discarded;
    } else {
      others.push_back(record);
    }
  }
  for (const std::vector<std::byte>& other : others) SendRecord(device_fd_, other);
  return discarded;
}

}  // namespace xtreme::connectx
