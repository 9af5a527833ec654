// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/kernel_connections.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::Endpoint;
using wire::Ipv4Address;

constexpr Ipv4Address kLoopback(127, 0, 0, 1);
constexpr Ipv4Address kAlso(127, 0, 0, 2);

class KernelConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto space = Namespace::Create();
    ASSERT_TRUE(space.ok()) << space.status();
    space_ = *std::move(space);
    inside_ = std::make_unique<Namespace::Inside>(*space_);
  }

  // On a port that the kernel chooses, at every address.
  void Listen(int family) {
    listener_ = FileDescriptor(::socket(family, SOCK_STREAM, 0));
    if (family == AF_INET6) {
      const sockaddr_in6 any{.sin6_family = AF_INET6};
      ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    }
    ASSERT_EQ(::listen(listener_.get(), 16), 0);
    sockaddr_in6 name{};
    socklen_t length = sizeof name;
    ASSERT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
    port_ = ntohs(name.sin6_port);  // As sin_port.
  }

  // From now on nothing but SYNs comes to it.
  void LoseAcknowledgements() const {
    constexpr uint32_t kFlagsAt = 13, kAck = 0x10;
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlagsAt),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kAck, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xFFFF),
    };
    const sock_fprog attached{.len = 4, .filter = program};
    ASSERT_EQ(::setsockopt(listener_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &attached,
                           sizeof attached),
              0);
  }

  FileDescriptor Connect(Ipv4Address address) const {
    FileDescriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in to{.sin_family = AF_INET,
                         .sin_port = htons(port_),
                         .sin_addr = {.s_addr = htonl(address.value())}};
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return client;
  }

  // What has come to it, at once; and looks until that has come, which the kernel leaves to another
  // thread when it has much to do.
  uint32_t CountOnceAcknowledged(const FileDescriptor& client) const {
    constexpr int kTries = 100'000;
    const int on = 1;
    EXPECT_EQ(::setsockopt(client.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on), 0);
    uint32_t count = CountAt(kLoopback);
    for (int tries = 0; tries < kTries && count != 0; ++tries) {
      ::sched_yield();
      count = CountAt(kLoopback);
    }
    return count;
  }

  FileDescriptor Accept() const {
    FileDescriptor accepted(::accept(listener_.get(), nullptr, nullptr));
    EXPECT_TRUE(accepted.valid());
    return accepted;
  }

  uint32_t CountAt(Ipv4Address address) const { return CountAt({address, port_}); }
  static uint32_t CountAt(const Endpoint& local, std::span<const Ipv4Address> own = {}) {
    const auto count = CountConnections(local, own);
    EXPECT_TRUE(count.ok()) << count.status();
    return count.value_or(~0u);
  }

  std::unique_ptr<Namespace> space_;
  std::unique_ptr<Namespace::Inside> inside_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
};

TEST_F(KernelConnectionsTest, CountsThoseThatAreBegunAtTheAddress) {
  Listen(AF_INET);
  const FileDescriptor whole = Connect(kLoopback);
  EXPECT_EQ(CountAt(kLoopback), 0u) << "it waits to be accepted";
  LoseAcknowledgements();
  const FileDescriptor first = Connect(kLoopback);
  const FileDescriptor second = Connect(kLoopback);
  const FileDescriptor elsewhere = Connect(kAlso);
  EXPECT_EQ(CountAt(kLoopback), 2u);
  EXPECT_EQ(CountAt(kAlso), 1u);
  EXPECT_EQ(CountAt({kLoopback, static_cast<uint16_t>(port_ ^ 1)}), 0u);
}

TEST_F(KernelConnectionsTest, CountsThoseThatAProcessHasUntilItClosesThem) {
  Listen(AF_INET);
  const FileDescriptor client = Connect(kLoopback);
  FileDescriptor accepted = Accept();
  EXPECT_EQ(CountAt(kLoopback), 1u);
  EXPECT_EQ(CountAt(kAlso), 0u);
  EXPECT_EQ(CountAt({kLoopback, port_}, {{kAlso}}), 1u);
  EXPECT_EQ(CountAt({kLoopback, port_}, {{kAlso, kLoopback}}), 0u) << "its peer is in this host";
  ::shutdown(accepted.get(), SHUT_WR);
  EXPECT_EQ(CountAt(kLoopback), 1u);
  accepted = FileDescriptor();
  EXPECT_EQ(CountOnceAcknowledged(client), 0u);
}

TEST_F(KernelConnectionsTest, CountsWhatAProcessClosedUntilThePeerHasAllThatWasSent) {
  Listen(AF_INET);
  const FileDescriptor client = Connect(kLoopback);
  FileDescriptor accepted = Accept();
  std::vector<char> bytes(1 << 16);
  while (::send(accepted.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  accepted = FileDescriptor();
  EXPECT_EQ(CountAt(kLoopback), 1u);
  while (::recv(client.get(), bytes.data(), bytes.size(), 0) > 0) {
  }
  EXPECT_EQ(CountOnceAcknowledged(client), 0u);
}

TEST_F(KernelConnectionsTest, CountsPeersOfIpv4ThatAnIpv6SocketHas) {
  Listen(AF_INET6);
  LoseAcknowledgements();
  const FileDescriptor client = Connect(kLoopback);
  EXPECT_EQ(CountAt(kLoopback), 1u);
  EXPECT_EQ(CountAt(kAlso), 0u);
}

}  // namespace
}  // namespace xtreme::host
