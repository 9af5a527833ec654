// SPDX-License-Identifier: Apache-2.0
//
// The socket faces linked into a test, on a software ConnectX that is the interface `ours`, and the
// kernel's sockets in another namespace, joined by a veth pair. The calls are those that the
// preloaded library makes of a program's, with -errno for results.
//
// The faces are one to a process, and so is this. Threads: any; those that a test starts are in the
// namespace of the faces.

#ifndef XTREME_TESTS_FACES_LINKED_FACES_H_
#define XTREME_TESTS_FACES_LINKED_FACES_H_

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/sockets/socket.h"
#include "gtest/gtest.h"

namespace xtreme::faces {

inline constexpr const char* kOurs = "10.9.0.1";
inline constexpr const char* kTheirs = "10.9.0.2";

// --- A program's calls ---

int NewSocket(int type);
int Bind(int fd, uint16_t port);
int Connect(int fd, const char* address, uint16_t port);
int Listen(int fd);
int Accept(int fd, int flags);
ssize_t Receive(int fd, char* bytes, size_t size);
ssize_t Send(int fd, const char* bytes, size_t size);
ssize_t SendTo(int fd, std::string_view bytes, const char* address, uint16_t port);
int Close(int fd);
// What close() does before it asks the kernel.
void BeginClose(int fd);
int Duplicate(int fd);
void SetReceiveTimeout(int fd, int milliseconds);
int PortOf(int fd);
int Poll(pollfd* fds, nfds_t count, int milliseconds);
int NewSet();
int ControlSet(int set, int operation, int fd, uint32_t events);
int WaitSet(int set, epoll_event* events, int most, int milliseconds);

// --- Several of them ---

// On kOurs; offloaded, else the test fails.
int BoundDatagramSocket(uint16_t port);
int Listener(uint16_t port, int type_flags = 0);
// Names, options, what waits: each call that only asks.
void AskAboutAll(int fd);
// Lets the ring of `fd` make progress.
void Poke(int fd);
// Buffers of the ring of `fd` that nobody has, those that the device is to fill among them.
uint32_t FreeBuffers(int fd);
// What stands behind it.
std::shared_ptr<sockets::Socket> Behind(int fd);

// --- The kernel, on the other side ---

// Sends `size` bytes to kOurs, and whether exactly they came back before the end of the stream.
bool TheirEcho(uint16_t port, size_t size);
// A socket there.
int TheirSocket(int type);

// The device has no room for the next rule.
void RefuseNextRule();

// Echoes datagrams that reach kTheirs.
class UdpEcho {
 public:
  explicit UdpEcho(uint16_t port);
  ~UdpEcho();

 private:
  const int fd_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};
inline std::unique_ptr<UdpEcho> TheirUdpEcho(uint16_t port) {
  return std::make_unique<UdpEcho>(port);
}

// False: not within ten seconds.
template <typename Predicate>
bool Eventually(Predicate holds) {
  for (int tries = 0; tries < 10'000; ++tries) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Threads that end within a minute: else what they wait for does not come, and the test with them.
class Threads {
 public:
  ~Threads() { Join(); }
  void Start(std::function<void()> body) {
    ++running_;
    threads_.emplace_back([this, body = std::move(body)] {
      body();
      --running_;
    });
  }
  void Join();

 private:
  std::atomic<int> running_{0};
  std::vector<std::thread> threads_;
};

class LinkedFacesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
};

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_LINKED_FACES_H_
