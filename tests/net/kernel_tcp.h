// SPDX-License-Identifier: Apache-2.0
//
// KernelTcp: a TCP socket of the kernel, for a test to talk with; closes it.
//
// Calls that fail are failures of the test. Units: bytes. Threads: any, one at a time.

#ifndef XTREME_TESTS_NET_KERNEL_TCP_H_
#define XTREME_TESTS_NET_KERNEL_TCP_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace xtreme::net {

class KernelTcp {
 public:
  KernelTcp() = default;
  KernelTcp(KernelTcp&& other) noexcept;
  KernelTcp& operator=(KernelTcp&& other) noexcept;
  ~KernelTcp();

  // In the calling thread's namespace. `congestion`: "cubic", "reno"; empty: the system's.
  static KernelTcp Listen(const std::string& address, uint16_t port,
                          const std::string& congestion = "");
  // Not connected yet: the result of connect() is not waited for.
  static KernelTcp Connect(const std::string& address, uint16_t port,
                           const std::string& congestion = "");
  // The next connection; one that is not open when none comes for ten seconds.
  KernelTcp Accept() const;

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void SetOption(int level, int option, int value);

  // Each waits for at most ten seconds. All of it, or a failure.
  void Send(const std::string& bytes);
  // `count` bytes, or fewer when the stream ends or breaks.
  std::string Receive(size_t count);
  // "" at the end of the stream, else what came or the errno's text.
  std::string ReceiveEnd();
  // Whether the connection is over in both directions.
  bool AwaitHangUp() const;
  void ShutDown();
  // Closes with a reset.
  void Reset();
  void Close();

 private:
  explicit KernelTcp(int fd) : fd_(fd) {}
  bool Await(short events) const;

  int fd_ = -1;
};

}  // namespace xtreme::net

#endif  // XTREME_TESTS_NET_KERNEL_TCP_H_
