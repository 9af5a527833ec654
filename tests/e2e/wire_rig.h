// SPDX-License-Identifier: Apache-2.0
//
// A program on the C API, on a software ConnectX whose wire is a network interface, and a kernel at
// the other end of its cable.
//
// Addresses: the ring's side is xt0, 10.0.0.1/24; the other is "peer", 10.0.0.2/24.
// Threads: the test's; the device and the library have their own.

#ifndef XTREME_TESTS_E2E_WIRE_RIG_H_
#define XTREME_TESTS_E2E_WIRE_RIG_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/xtreme.h"
#include "gtest/gtest.h"
#include "tests/net/namespace.h"

namespace xtreme::connectx {
class NetworkInterface;
class SoftwareConnectX;
}  // namespace xtreme::connectx

namespace xtreme::e2e {

inline constexpr int kPatienceMs = 10'000;  // What takes longer will not come.

// A UDP socket of the kernel, in the calling thread's namespace.
class KernelSocket {
 public:
  // `outgoing`: address of the interface that groups are sent by.
  KernelSocket(const char* outgoing, uint16_t port)
      : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in local = Endpoint("0.0.0.0", port);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local), 0);
    const in_addr by = Endpoint(outgoing, 0).sin_addr;
    EXPECT_EQ(setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by), 0);
  }
  ~KernelSocket() { close(fd_); }
  KernelSocket(const KernelSocket&) = delete;
  KernelSocket& operator=(const KernelSocket&) = delete;

  static sockaddr_in Endpoint(const char* address, uint16_t port) {
    sockaddr_in endpoint{.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &endpoint.sin_addr);
    return endpoint;
  }
  void SendTo(const char* address, uint16_t port, std::string_view payload) {
    const sockaddr_in to = Endpoint(address, port);
    EXPECT_EQ(sendto(fd_, payload.data(), payload.size(), 0,
                     reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(payload.size()));
  }
  // The next datagram; "" when none comes.
  std::string Receive() {
    pollfd waiting{.fd = fd_, .events = POLLIN};
    if (poll(&waiting, 1, kPatienceMs) != 1) return "";
    std::string payload(65'536, 0);
    payload.resize(static_cast<size_t>(recv(fd_, payload.data(), payload.size(), 0)));
    return payload;
  }

 private:
  const int fd_;
};

// The device behind xt0 of the calling thread's namespace.
class WireDevice {
 public:
  explicit WireDevice(const net::MacAddress& mac, uint32_t mtu = 1'500);
  ~WireDevice();

 private:
  std::unique_ptr<connectx::NetworkInterface> wire_;
  std::unique_ptr<connectx::SoftwareConnectX> connectx_;
};

// A ring on xt0 that sleeps when it waits, and what a program does with it.
class WireRing {
 public:
  explicit WireRing(const char* counters_directory = "") {
    xtreme_ring_options options;
    EXPECT_EQ(xtreme_ring_options_init(&options, sizeof options, "dev"), 0);
    options.interface_name = "xt0";
    options.rx_buffers = 2'048;
    options.counters_directory = counters_directory;
    EXPECT_EQ(xtreme_ring_open(&options, &ring_), 0) << xtreme_error();
  }
  ~WireRing() { xtreme_ring_close(ring_); }
  WireRing(const WireRing&) = delete;
  WireRing& operator=(const WireRing&) = delete;

  xtreme_ring ring() const { return ring_; }
  void Start() { EXPECT_EQ(xtreme_ring_start(ring_), 0) << xtreme_error(); }

  static xtreme_address Address(const std::string& text) {
    xtreme_address address = {};
    EXPECT_EQ(xtreme_address_parse(text.c_str(), &address), 0) << text;
    return address;
  }
  xtreme_socket OpenSocket(const char* local) {
    xtreme_udp_options options = {};
    options.size = sizeof options;
    options.local = Address(local);
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_udp_open(ring_, &options, &socket), 0) << xtreme_error();
    EXPECT_EQ(Await(XTREME_OP_DONE).status, 0);
    return socket;
  }
  void Join(xtreme_socket socket, const char* group) {
    const xtreme_address address = Address(group);
    EXPECT_EQ(xtreme_join(socket, &address, nullptr, 0, 1), 0) << xtreme_error();
    EXPECT_EQ(Await(XTREME_OP_DONE).status, 0);
  }
  int SendTo(xtreme_socket socket, const char* peer, std::string_view payload) {
    const xtreme_address to = Address(peer);
    return xtreme_send_to(socket, &to, payload.data(), payload.size(), nullptr);
  }

  // The next completion of this kind, those before it released; one of kind NONE if none comes.
  xtreme_completion Await(int kind, int patience_ms = kPatienceMs) {
    const int64_t end_ns = xtreme_ring_now(ring_) + int64_t{patience_ms} * 1'000'000;
    for (int64_t left_ns; (left_ns = end_ns - xtreme_ring_now(ring_)) > 0;) {
      xtreme_completion completion = {};
      if (xtreme_ring_wait(ring_, &completion, 1, sizeof completion, left_ns) < 1) continue;
      if (completion.kind == kind) return completion;
      xtreme_release(&completion, 1, sizeof completion);
    }
    return {};
  }
  // The next datagram, released; "" when none comes. `flags`: of its completion.
  std::string Receive(int patience_ms = kPatienceMs, uint16_t* flags = nullptr) {
    const xtreme_completion packet = Await(XTREME_PACKET, patience_ms);
    if (packet.kind == XTREME_NONE) return "";
    std::string payload(packet.length, 0);
    payload.resize(xtreme_copy_out(&packet, payload.data(), payload.size()));
    if (flags != nullptr) *flags = packet.flags;
    xtreme_release(&packet, 1, sizeof packet);
    return payload;
  }

 private:
  xtreme_ring ring_ = {};
};

class WireTest : public ::testing::Test {
 protected:
  static constexpr net::MacAddress kOurMac = {2, 0, 0, 0, 0, 1};
  static constexpr net::MacAddress kTheirMac = {2, 0, 0, 0, 0, 2};

  explicit WireTest(uint32_t mtu = 1'500) : mtu_(mtu) {}

  void SetUp() override {
    for (auto* space : {&ours_, &theirs_}) {
      auto made = net::Namespace::Create();
      ASSERT_TRUE(made.ok()) << made.status();
      *space = *std::move(made);
    }
    ASSERT_TRUE(net::ConnectByVeth(*ours_, "xt0", *theirs_, "peer").ok());
    ASSERT_TRUE(ours_->SetMac("xt0", kOurMac).ok());
    ASSERT_TRUE(theirs_->SetMac("peer", kTheirMac).ok());
    ASSERT_TRUE(ours_->SetMtu("xt0", mtu_).ok());
    ASSERT_TRUE(theirs_->SetMtu("peer", mtu_).ok());
    ASSERT_TRUE(ours_->AddAddress("xt0", "10.0.0.1/24").ok());
    ASSERT_TRUE(theirs_->AddAddress("peer", "10.0.0.2/24").ok());
    ASSERT_TRUE(ours_->AddNeighbour("xt0", "10.0.0.2", kTheirMac).ok());
    ASSERT_TRUE(ours_->AddRoute("224.0.0.0/4", "xt0").ok());
    inside_ = std::make_unique<net::Namespace::Inside>(*ours_);
  }
  void TearDown() override { inside_.reset(); }

  // A kernel socket at the other end.
  std::unique_ptr<KernelSocket> OpenPeer(uint16_t port = 0) {
    const net::Namespace::Inside theirs(*theirs_);
    return std::make_unique<KernelSocket>("10.0.0.2", port);
  }

  const uint32_t mtu_;
  std::unique_ptr<net::Namespace> ours_;
  std::unique_ptr<net::Namespace> theirs_;
  std::unique_ptr<net::Namespace::Inside> inside_;
};

}  // namespace xtreme::e2e

#endif  // XTREME_TESTS_E2E_WIRE_RIG_H_
