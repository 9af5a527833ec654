// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/kernel_tcp_scenario.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "benchmarks/frames.h"
#include "benchmarks/veth_pair.h"

namespace xtreme::benchmarks {
namespace {

constexpr size_t kMessage = 64;
constexpr size_t kSegment = 1460;
constexpr size_t kWrite = 65'536;

// A socket of `space`, listening at `us` or connected from there to `peer`; -1 and errno.
int OpenSocket(const net::Namespace& space, const Host& us, const Host* peer) {
  const int fd = OpenBoundSocket(space, SOCK_STREAM, us.endpoint);
  if (fd < 0) return -1;
  if (peer == nullptr && listen(fd, 1) == 0) return fd;
  if (peer != nullptr) {
    const sockaddr_in remote = ToSockaddr(peer->endpoint);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&remote), sizeof(remote)) == 0) return fd;
  }
  close(fd);
  return -1;
}

bool ReceiveAll(int fd, std::vector<char>& bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    const ssize_t count = recv(fd, bytes.data(), std::min(length - done, bytes.size()), 0);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

class StreamScenario : public Scenario {
 public:
  explicit StreamScenario(uint32_t operations) : operations_(operations), bytes_(kWrite) {}
  ~StreamScenario() override {
    close(client_);
    close(server_);
  }

  absl::Status Open() {
    auto hosts = VethPair::Create();
    if (!hosts.ok()) return hosts.status();
    hosts_ = *std::move(hosts);
    const Host us = HostA(), peer = HostB();
    const int listener = OpenSocket(*hosts_.b, peer, nullptr);
    client_ = listener < 0 ? -1 : OpenSocket(*hosts_.a, us, &peer);
    server_ = client_ < 0 ? -1 : accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int error = errno;
    close(listener);
    if (server_ < 0) return absl::ErrnoToStatus(error, "open kernel sockets");
    for (const int fd : {client_, server_}) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    return absl::OkStatus();
  }

  uint32_t operations() const override { return operations_; }

 protected:
  const uint32_t operations_;
  std::vector<char> bytes_;
  VethPair hosts_;
  int client_ = -1;
  int server_ = -1;
};

class PingPongScenario : public StreamScenario {
 public:
  using StreamScenario::StreamScenario;
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      if (send(client_, bytes_.data(), kMessage, 0) < 0) return;
      if (!ReceiveAll(server_, bytes_, kMessage)) return;
      if (send(server_, bytes_.data(), kMessage, 0) < 0) return;
      if (!ReceiveAll(client_, bytes_, kMessage)) return;
    }
  }
};

class BulkScenario : public StreamScenario {
 public:
  using StreamScenario::StreamScenario;
  void Run() override {
    for (size_t left = operations_ * kSegment; left > 0;) {
      const ssize_t sent = send(client_, bytes_.data(), std::min(left, kWrite), MSG_DONTWAIT);
      if (sent <= 0 || !ReceiveAll(server_, bytes_, static_cast<size_t>(sent))) return;
      left -= static_cast<size_t>(sent);
    }
  }
};

template <typename Made>
absl::StatusOr<std::unique_ptr<Scenario>> OverVeth(uint32_t operations) {
  auto scenario = std::make_unique<Made>(operations);
  if (absl::Status opened = scenario->Open(); !opened.ok()) return opened;
  return scenario;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> KernelTcpPingPong(uint32_t operations) {
  return OverVeth<PingPongScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> KernelTcpBulk(uint32_t operations) {
  return OverVeth<BulkScenario>(operations);
}

}  // namespace xtreme::benchmarks
