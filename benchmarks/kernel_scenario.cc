// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/kernel_scenario.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "benchmarks/frames.h"
#include "benchmarks/veth_pair.h"

namespace xtreme::benchmarks {
namespace {

// A connected UDP socket of `space`; -1 and errno.
int OpenSocket(const net::Namespace& space, const Host& us, const Host& peer) {
  const int fd = OpenBoundSocket(space, SOCK_DGRAM, us.endpoint);
  if (fd < 0) return -1;
  const sockaddr_in remote = ToSockaddr(peer.endpoint);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&remote), sizeof(remote)) == 0) return fd;
  close(fd);
  return -1;
}

class EchoScenario : public Scenario {
 public:
  explicit EchoScenario(uint32_t operations) : operations_(operations) {}
  ~EchoScenario() override {
    close(client_);
    close(server_);
  }

  absl::Status Open() {
    auto hosts = VethPair::Create();
    if (!hosts.ok()) return hosts.status();
    hosts_ = *std::move(hosts);
    client_ = OpenSocket(*hosts_.a, HostA(), HostB());
    server_ = OpenSocket(*hosts_.b, HostB(), HostA());
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
  VethPair hosts_;
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
