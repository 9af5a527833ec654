// SPDX-License-Identifier: Apache-2.0
//
// The kernel's way to receive a feed: a UDP socket a line, joined to its group, one to ask on, all
// on one epoll; many datagrams a system call.
//
// Invariant: a datagram handed out is a copy in this object's memory, good until the next Receive.
// Threads: one.

#ifndef XTREME_SAMPLES_RECEIVER_KERNEL_LINES_H_
#define XTREME_SAMPLES_RECEIVER_KERNEL_LINES_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace receiver {

class KernelLines {
 public:
  static constexpr size_t kLines = 2;
  static constexpr size_t kRequests = kLines;  // The number of the socket that asks.

  struct Datagram {
    size_t line = 0;  // Or kRequests.
    std::span<const uint8_t> bytes;
    int64_t received_ns = 0;  // The kernel's receive time, real-time clock; 0: it did not say.
  };

  KernelLines();
  KernelLines(const KernelLines&) = delete;
  KernelLines& operator=(const KernelLines&) = delete;
  ~KernelLines();

  // Joins both lines ("group:port") at `interface`, and connects the third socket to `request_to`
  // unless that is empty. "" or what failed.
  std::string Open(const std::string& interface, const std::array<std::string, kLines>& lines,
                   const std::string& request_to);

  // What arrives within `timeout_ms` (-1: no limit), at most one batch a socket.
  std::span<const Datagram> Receive(int timeout_ms);
  // Sends on the third socket; false: the kernel refused.
  bool Ask(std::span<const uint8_t> request);

  // Datagrams that the kernel dropped because a socket's buffer was full.
  uint64_t drops() const;

 private:
  static constexpr unsigned kBatch = 32;
  static constexpr size_t kMostBytes = 2048;
  static constexpr size_t kControlBytes = 128;

  std::string OpenLine(size_t number, const std::string& interface, const std::string& line);
  std::string OpenRequests(const std::string& request_to);
  void ReceiveBatch(size_t number);
  void ReadControl(size_t number, msghdr* header, Datagram* datagram);

  int epoll_fd_;
  std::array<int, kLines + 1> fds_;
  std::array<uint32_t, kLines + 1> drops_{};
  std::vector<std::array<uint8_t, kMostBytes>> bytes_;
  std::vector<std::array<uint8_t, kControlBytes>> control_;
  std::vector<iovec> vectors_;
  std::vector<mmsghdr> messages_;
  std::vector<Datagram> datagrams_;
};

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_KERNEL_LINES_H_
