// SPDX-License-Identifier: Apache-2.0

#include "tests/faces/linked_faces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "api/sockets/data_calls.h"
#include "api/sockets/descriptor_calls.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/poll.h"
#include "stack/packet/buffer_pool.h"
#include "tests/net/namespace.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/netif.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"

namespace xtreme::faces {
namespace {

using sockets::Faces;
using sockets::kAskKernel;

// What the faces stand on, in the order in which it is made.
struct Ground {
  void Clear() {
    connectx.reset();
    wire.reset();
    inside.reset();
    there.reset();
    here.reset();
  }

  std::unique_ptr<net::Namespace> here;
  std::unique_ptr<net::Namespace> there;
  std::unique_ptr<net::Namespace::Inside> inside;
  std::unique_ptr<connectx::NetworkInterface> wire;
  std::unique_ptr<connectx::SoftwareConnectX> connectx;
};

Ground& The() {
  static Ground ground;
  return ground;
}

sockaddr_in Address(const char* text, uint16_t port) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

template <typename T>
T Result(T result) {
  return result >= 0 ? result : static_cast<T>(-errno);
}

char ByteAt(size_t index) { return static_cast<char>(index * 2'654'435'761u >> 13); }

// Sends and receives what can be; false: it ended otherwise than with all `size` bytes.
bool Exchange(int fd, size_t size) {
  size_t sent = 0;
  size_t got = 0;
  char bytes[4096];
  for (;;) {
    pollfd one{.fd = fd, .events = static_cast<short>(sent < size ? POLLIN | POLLOUT : POLLIN)};
    if (poll(&one, 1, 15'000) != 1) return false;
    if (sent < size && (one.revents & POLLOUT) != 0) {
      const size_t most = std::min(sizeof bytes, size - sent);
      for (size_t i = 0; i < most; ++i) bytes[i] = ByteAt(sent + i);
      const ssize_t done = send(fd, bytes, most, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (done > 0) sent += static_cast<size_t>(done);
      if (sent == size) shutdown(fd, SHUT_WR);
    }
    if ((one.revents & POLLIN) == 0) continue;
    const ssize_t part = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (part <= 0) return part == 0 && got == size;
    for (ssize_t i = 0; i < part; ++i) {
      if (bytes[i] != ByteAt(got++)) return false;
    }
  }
}

}  // namespace

void LinkedFacesTest::SetUpTestSuite() {
  Ground& ground = The();
  if (ground.connectx != nullptr) return;
  auto here = net::Namespace::Create();
  auto there = net::Namespace::Create();
  ASSERT_TRUE(here.ok() && there.ok()) << here.status() << there.status();
  ground.here = *std::move(here);
  ground.there = *std::move(there);
  ASSERT_TRUE(net::ConnectByVeth(*ground.here, "ours", *ground.there, "theirs").ok());
  ASSERT_TRUE(ground.here->AddAddress("ours", std::string(kOurs) + "/24").ok());
  ASSERT_TRUE(ground.there->AddAddress("theirs", std::string(kTheirs) + "/24").ok());
  ground.inside = std::make_unique<net::Namespace::Inside>(*ground.here);
  auto wire = connectx::NetworkInterface::Open({.interface = "ours"});
  ASSERT_TRUE(wire.ok()) << wire.status();
  ground.wire = *std::move(wire);
  const auto mac = ground.here->MacOf("ours");
  ASSERT_TRUE(mac.ok()) << mac.status();
  auto connectx = connectx::SoftwareConnectX::Create(
      {.ports = {{.device = {.name = "mlx5_0", .mac = *mac},
                  .interface = "ours",
                  .wire = ground.wire.get()}}});
  ASSERT_TRUE(connectx.ok()) << connectx.status();
  ground.connectx = *std::move(connectx);
  ASSERT_TRUE(Faces::The().enabled());
}

void LinkedFacesTest::TearDownTestSuite() {
  Faces::The().End();
  The().Clear();
}

std::shared_ptr<sockets::Socket> Behind(int fd) {
  return Faces::The().descriptors().FindSocket(fd);
}

int NewSocket(int type) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const bool nonblocking = (type & SOCK_NONBLOCK) != 0;
  if (fd >= 0) sockets::AddSocket(Faces::The(), fd, type & ~SOCK_NONBLOCK, nonblocking);
  return fd;
}

int Bind(int fd, uint16_t port) {
  const sockaddr_in local = Address(kOurs, port);
  const auto socket = Behind(fd);
  return socket == nullptr ? -EBADF : socket->Bind(local);
}

int Connect(int fd, const char* address, uint16_t port) {
  const sockaddr_in peer = Address(address, port);
  const auto socket = Behind(fd);
  return socket == nullptr
             ? -EBADF
             : socket->Connect(reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
}

int Listen(int fd) {
  const auto socket = Behind(fd);
  return socket == nullptr ? -EBADF : socket->Listen(64);
}

int Accept(int fd, int flags) {
  const auto socket = Behind(fd);
  if (socket == nullptr) return -EBADF;
  if (socket->path() == sockets::Path::kUndecided) socket->Decide();
  return sockets::Accept(Faces::The(), socket, fd, nullptr, nullptr, flags);
}

ssize_t Receive(int fd, char* bytes, size_t size) {
  const ssize_t got = sockets::ReceiveOurs(fd, bytes, size, 0);
  return got != kAskKernel ? got : Result(recv(fd, bytes, size, 0));
}

ssize_t Send(int fd, const char* bytes, size_t size) {
  const ssize_t sent = sockets::SendOurs(fd, bytes, size, MSG_NOSIGNAL);
  return sent != kAskKernel ? sent : Result(send(fd, bytes, size, MSG_NOSIGNAL));
}

ssize_t SendTo(int fd, std::string_view bytes, const char* address, uint16_t port) {
  const sockaddr_in to = Address(address, port);
  const auto* const there = reinterpret_cast<const sockaddr*>(&to);
  const ssize_t sent = sockets::SendOurs(fd, bytes.data(), bytes.size(), 0, there, sizeof to);
  return sent != kAskKernel ? sent
                            : Result(sendto(fd, bytes.data(), bytes.size(), 0, there, sizeof to));
}

int Close(int fd) {
  BeginClose(fd);
  return close(fd);
}

void BeginClose(int fd) { sockets::Forget(Faces::The(), fd); }

int Duplicate(int fd) { return sockets::Share(Faces::The(), fd, dup(fd)); }

void SetReceiveTimeout(int fd, int milliseconds) {
  const timeval time{.tv_sec = milliseconds / 1'000, .tv_usec = milliseconds % 1'000 * 1'000};
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
  EXPECT_EQ(Behind(fd)->SetOption(SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
}

int PortOf(int fd) {
  sockaddr_in name{};
  socklen_t length = sizeof name;
  const auto socket = Behind(fd);
  if (socket == nullptr) return -1;
  if (socket->Name(reinterpret_cast<sockaddr*>(&name), &length) != 0) return -1;
  return ntohs(name.sin_port);
}

int Poll(pollfd* fds, nfds_t count, int milliseconds) {
  return sockets::Poll(Faces::The(), {fds, count}, base::Milliseconds(milliseconds), nullptr);
}

int NewSet() {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  sockets::AddSet(Faces::The(), set);
  return set;
}

int ControlSet(int set, int operation, int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  const auto ours = Faces::The().descriptors().FindEpoll(set);
  if (ours == nullptr) return -EBADF;
  return ours->Control(operation, fd, &event,
                       sockets::Target(Faces::The(), fd, operation != EPOLL_CTL_DEL));
}

int WaitSet(int set, epoll_event* events, int most, int milliseconds) {
  const auto ours = Faces::The().descriptors().FindEpoll(set);
  if (ours == nullptr) return -EBADF;
  return ours->Wait(events, most,
                    milliseconds < 0 ? base::kNever : base::Milliseconds(milliseconds), nullptr);
}

int BoundDatagramSocket(uint16_t port) {
  const int fd = NewSocket(SOCK_DGRAM);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  EXPECT_EQ(Bind(fd, port), 0) << port;
  const auto socket = Behind(fd);
  EXPECT_EQ(socket->path(), sockets::Path::kOffloaded) << socket->reason();
  return fd;
}

int Listener(uint16_t port, int type_flags) {
  const int fd = NewSocket(SOCK_STREAM | type_flags);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  EXPECT_EQ(Bind(fd, port), 0);
  EXPECT_EQ(Listen(fd), 0);
  pollfd one{.fd = fd, .events = POLLIN};
  EXPECT_EQ(Poll(&one, 1, 0), 0);
  EXPECT_TRUE(Behind(fd)->listening()) << Behind(fd)->reason();
  return fd;
}

void AskAboutAll(int fd) {
  const auto socket = Behind(fd);
  if (socket == nullptr) return;
  sockaddr_in name{};
  socklen_t length = sizeof name;
  socket->Name(reinterpret_cast<sockaddr*>(&name), &length);
  length = sizeof name;
  socket->PeerName(reinterpret_cast<sockaddr*>(&name), &length);
  socket->ReadableBytes();
  tcp_info told{};
  int result = 0;
  length = sizeof told;
  socket->GetOption(IPPROTO_TCP, TCP_INFO, &told, &length, &result);
  length = sizeof result;
  int error = 0;
  socket->GetOption(SOL_SOCKET, SO_ERROR, &error, &length, &result);
  const int on = 1;
  socket->SetOption(IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  pollfd one{.fd = fd, .events = POLLIN | POLLOUT};
  Poll(&one, 1, 0);
}

void Poke(int fd) {
  const auto socket = Behind(fd);
  sockets::RingDoor* const door = socket == nullptr ? nullptr : socket->door();
  if (door == nullptr) return;
  const sockets::RingDoor::Entry entry(door);
  door->Progress();
}

uint32_t FreeBuffers(int fd) {
  sockets::RingDoor* const door = Behind(fd)->door();
  const sockets::RingDoor::Entry entry(door);
  door->Progress();
  const engine::RingDevice& device = door->ring().core().device;
  device.pool->DrainReturns();
  return device.pool->free_count() + device.queue->posted();
}

int TheirSocket(int type) {
  const net::Namespace::Inside inside(*The().there);
  return socket(AF_INET, type | SOCK_CLOEXEC, 0);
}

void RefuseNextRule() { EXPECT_TRUE(The().connectx->FailNext("CREATE_FLOW", ENOSPC)); }

bool TheirEcho(uint16_t port, size_t size) {
  const int fd = TheirSocket(SOCK_STREAM);
  const sockaddr_in to = Address(kOurs, port);
  bool equal = false;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    ADD_FAILURE() << "connect to port " << port << ": " << strerror(errno);
  } else {
    equal = Exchange(fd, size);
  }
  close(fd);
  return equal;
}

void Threads::Join() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (running_ > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (running_ > 0) {
    fprintf(stderr, "%d threads do not end\n", running_.load());
    abort();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

UdpEcho::UdpEcho(uint16_t port) : fd_(TheirSocket(SOCK_DGRAM)) {
  const sockaddr_in local = Address(kTheirs, port);
  EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local), 0);
  thread_ = std::thread([this] {
    char bytes[2048];
    while (!over_) {
      pollfd one{.fd = fd_, .events = POLLIN};
      if (poll(&one, 1, 20) != 1) continue;
      sockaddr_in from{};
      socklen_t length = sizeof from;
      auto* const address = reinterpret_cast<sockaddr*>(&from);
      const ssize_t got = recvfrom(fd_, bytes, sizeof bytes, MSG_DONTWAIT, address, &length);
      if (got >= 0) sendto(fd_, bytes, static_cast<size_t>(got), 0, address, length);
    }
  });
}

UdpEcho::~UdpEcho() {
  over_ = true;
  thread_.join();
  close(fd_);
}

}  // namespace xtreme::faces
