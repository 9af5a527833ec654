// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/kernel_scenario.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "benchmarks/frames.h"
#include "tests/net/namespace.h"

namespace xtreme::benchmarks {
namespace {

sockaddr_in ToSockaddr(const wire::Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  address.sin_addr.s_addr = htonl(endpoint.address.value());
  return address;
}

// A connected UDP socket of `space`; -1 and errno.
int OpenSocket(const net::Namespace& space, const Host& us, const Host& peer) {
  const net::Namespace::Inside inside(space);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in local = ToSockaddr(us.endpoint);
  const sockaddr_in remote = ToSockaddr(peer.endpoint);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof(local)) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&remote), sizeof(remote)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

class EchoScenario : public Scenario {
 public:
  explicit EchoScenario(uint32_t operations) : operations_(operations) {}
  ~EchoScenario() override {
    close(client_);
    close(server_);
  }

  absl::Status Open() {
    auto a = net::Namespace::Create();
    if (!a.ok()) return a.status();
    auto b = net::Namespace::Create();
    if (!b.ok()) return b.status();
    a_ = *std::move(a);
    b_ = *std::move(b);
    absl::Status status = net::ConnectByVeth(*a_, "x0", *b_, "x1");
    status.Update(a_->AddAddress("x0", "10.0.0.1/24"));
    status.Update(b_->AddAddress("x1", "10.0.0.2/24"));
    if (!status.ok()) return status;
    client_ = OpenSocket(*a_, HostA(), HostB());
    server_ = OpenSocket(*b_, HostB(), HostA());
    if (client_ < 0 || server_ < 0) return absl::ErrnoToStatus(errno, "open kernel sockets");
    return absl::OkStatus();
  }

  uint32_t operations() const override { return operations_; }

  // A datagram over veth is delivered before the receive that waits for it returns.
  void Run() override {
    std::array<char, kPayloadBytes> bytes{};
    for (uint32_t i = 0; i < operations_; ++i) {
      if (send(client_, bytes.data(), bytes.size(), 0) < 0) return;
      if (recv(server_, bytes.data(), bytes.size(), 0) < 0) return;
      if (send(server_, bytes.data(), bytes.size(), 0) < 0) return;
      if (recv(client_, bytes.data(), bytes.size(), 0) < 0) return;
    }
  }

 private:
  const uint32_t operations_;
  std::unique_ptr<net::Namespace> a_;
  std::unique_ptr<net::Namespace> b_;
  int client_ = -1;
  int server_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> KernelEcho(uint32_t operations) {
  auto scenario = std::make_unique<EchoScenario>(operations);
  if (absl::Status opened = scenario->Open(); !opened.ok()) return opened;
  return scenario;
}

}  // namespace xtreme::benchmarks
