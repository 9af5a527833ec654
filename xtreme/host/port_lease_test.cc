// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/port_lease.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::Endpoint;
using wire::Ipv4Address;

constexpr Ipv4Address kLoopback(127, 0, 0, 1);
constexpr int kGenerousMs = 20'000;

class PortLeaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto space = Namespace::Create();
    ASSERT_TRUE(space.ok()) << space.status();
    space_ = *std::move(space);
    inside_ = std::make_unique<Namespace::Inside>(*space_);
  }

  static PortLease Lease(const PortRequest& request) {
    auto lease = PortLease::Acquire(request);
    EXPECT_TRUE(lease.ok()) << lease.status();
    return *std::move(lease);
  }

  static absl::Status Refusal(const PortRequest& request) {
    return PortLease::Acquire(request).status();
  }

  // 0, or the errno of a plain program that binds.
  static int KernelBind(int type, Endpoint local) {
    const FileDescriptor fd(::socket(AF_INET, type, 0));
    const sockaddr_in address = Address(local);
    return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
               ? 0
               : errno;
  }

  static sockaddr_in Address(Endpoint endpoint) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(endpoint.address.value());
    address.sin_port = htons(endpoint.port);
    return address;
  }

  std::unique_ptr<Namespace> space_;
  std::unique_ptr<Namespace::Inside> inside_;
};

TEST_F(PortLeaseTest, AdoptedPortIsTheSocketsAndStaysTakenAfterItIsClosed) {
  const FileDescriptor bound(::socket(AF_INET, SOCK_DGRAM, 0));
  const sockaddr_in address = Address({kLoopback, 7100});
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  {
    const auto lease = PortLease::Adopt(bound.get());
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->local(), (Endpoint{kLoopback, 7100}));
    EXPECT_NE(lease->fd(), bound.get());
  }
  EXPECT_EQ(KernelBind(SOCK_DGRAM, {kLoopback, 7100}), EADDRINUSE);
}

TEST_F(PortLeaseTest, AdoptedListenerEndsWithItsOwnersAndThePortStaysTaken) {
  for (const bool owned : {true, false}) {
    FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = Address({kLoopback, 7101});
    const auto* const local = reinterpret_cast<const sockaddr*>(&address);
    ASSERT_EQ(::bind(listener.get(), local, sizeof(address)), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    auto lease = PortLease::Adopt(listener.get());
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (!owned) listener = FileDescriptor();
    EXPECT_EQ(lease->EndListening(), !owned);
    const FileDescriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(client.get(), local, sizeof(address)), owned ? 0 : -1);
    EXPECT_EQ(KernelBind(SOCK_STREAM, {kLoopback, 7101}), EADDRINUSE);
  }
}

TEST_F(PortLeaseTest, WhatNeverListenedKeepsItsSocket) {
  PortLease lease = Lease({.protocol = PortProtocol::kTcp, .local = {kLoopback, 7102}});
  const auto inode = [&lease] {
    struct stat info{};
    EXPECT_EQ(::fstat(lease.fd(), &info), 0);
    return info.st_ino;
  };
  const ino_t before = inode();
  EXPECT_TRUE(lease.EndListening());
  EXPECT_EQ(inode(), before);
}

TEST_F(PortLeaseTest, WhatIsNoSocketIsNotAdopted) { EXPECT_FALSE(PortLease::Adopt(-1).ok()); }

TEST_F(PortLeaseTest, ALeasedPortIsNobodyElsesUntilReleased) {
  for (const auto& [protocol, type] : {std::pair{PortProtocol::kUdp, int{SOCK_DGRAM}},
                                       std::pair{PortProtocol::kTcp, int{SOCK_STREAM}}}) {
    const Endpoint local{kLoopback, 5'000};
    {
      const PortLease lease = Lease({.protocol = protocol, .local = local});
      EXPECT_EQ(lease.local(), local);
      EXPECT_EQ(KernelBind(type, local), EADDRINUSE);
    }
    EXPECT_EQ(KernelBind(type, local), 0);
  }
}

TEST_F(PortLeaseTest, UdpAndTcpPortsAreApart) {
  const PortLease udp = Lease({.protocol = PortProtocol::kUdp, .local = {kLoopback, 5'000}});
  const PortLease tcp = Lease({.protocol = PortProtocol::kTcp, .local = {kLoopback, 5'000}});
  EXPECT_EQ(udp.local(), tcp.local());
}

TEST_F(PortLeaseTest, APortInUseIsSaidClearly) {
  const PortLease lease = Lease({.local = {Ipv4Address::Any(), 5'000}});
  const absl::Status status = Refusal({.local = {kLoopback, 5'000}, .reuse_port = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(status.message(),
            "lease UDP 127.0.0.1:5000 with SO_REUSEPORT: Address already in use (errno 98)");
}

TEST_F(PortLeaseTest, SharingIsAllowedWhenBothSidesAsk) {
  const PortRequest by_port{.local = {kLoopback, 5'000}, .reuse_port = true};
  const PortLease first = Lease(by_port);
  const PortLease second = Lease(by_port);
  const PortRequest by_address{.local = {kLoopback, 5'001}, .reuse_address = true};
  const PortLease third = Lease(by_address);
  const PortLease fourth = Lease(by_address);
  EXPECT_EQ(second.local().port, 5'000);
  EXPECT_EQ(fourth.local().port, 5'001);
}

TEST_F(PortLeaseTest, PortZeroIsChosenByTheKernel) {
  const PortLease lease = Lease({.local = {kLoopback, 0}});
  EXPECT_NE(lease.local().port, 0);
  EXPECT_EQ(KernelBind(SOCK_DGRAM, lease.local()), EADDRINUSE);
}

TEST_F(PortLeaseTest, AnAddressOfAnotherHostIsRefused) {
  const absl::Status status = Refusal({.local = {Ipv4Address(192, 0, 2, 1), 5'000}});
  EXPECT_NE(status.message().find("(errno 99)"), std::string::npos) << status;
}

TEST_F(PortLeaseTest, ASlowPathIsOfferedForUdpOnly) {
  EXPECT_EQ(
      Refusal({.protocol = PortProtocol::kTcp, .local = {kLoopback, 1}, .deliver = true}).code(),
      absl::StatusCode::kInvalidArgument);
}

// One datagram to a lease and then to a witness: when the witness has its, the lease would too.
bool LeaseReceived(const PortLease& lease, const PortLease& witness) {
  const FileDescriptor sender(::socket(AF_INET, SOCK_DGRAM, 0));
  for (const PortLease* to : {&lease, &witness}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(kLoopback.value());
    address.sin_port = htons(to->local().port);
    EXPECT_EQ(::sendto(sender.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&address),
                       sizeof(address)),
              1);
  }
  pollfd polled{.fd = witness.fd(), .events = POLLIN};
  EXPECT_EQ(::poll(&polled, 1, kGenerousMs), 1);
  char byte;
  return ::recv(lease.fd(), &byte, 1, MSG_DONTWAIT) == 1;
}

TEST_F(PortLeaseTest, DatagramsAreDroppedUnlessASlowPathIsAskedFor) {
  const PortLease witness = Lease({.local = {kLoopback, 5'001}, .deliver = true});
  const PortLease dropping = Lease({.local = {kLoopback, 5'002}});
  const PortLease delivering =
      Lease({.local = {kLoopback, 5'003}, .deliver = true, .receive_buffer_bytes = 65'536});
  EXPECT_FALSE(LeaseReceived(dropping, witness));
  EXPECT_TRUE(LeaseReceived(delivering, witness));
}

TEST_F(PortLeaseTest, TheKernelRefusesConnectionsToALeasedTcpPort) {
  const PortLease lease = Lease({.protocol = PortProtocol::kTcp, .local = {kLoopback, 5'000}});
  const FileDescriptor client(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Address(lease.local());
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(PortLeaseTest, ABlockIsAlignedAndInTheRange) {
  ASSERT_TRUE(space_->SetSysctl("net.ipv4.ip_local_port_range", "40001 40100").ok());
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const auto block = PortBlock::Acquire({.address = kLoopback, .count_log2 = 4, .seed = seed});
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ(block->first_port() % 16, 0);
    EXPECT_GE(block->first_port(), 40'001);
    EXPECT_LE(block->first_port() + 15, 40'100);
  }
}

TEST_F(PortLeaseTest, ABlockPassesOverPortsInUse) {
  ASSERT_TRUE(space_->SetSysctl("net.ipv4.ip_local_port_range", "40000 40031").ok());
  const PortLease taken = Lease({.protocol = PortProtocol::kTcp, .local = {kLoopback, 40'007}});
  const PortBlock::Options options{.address = kLoopback, .count_log2 = 4, .seed = 0};
  const auto block = PortBlock::Acquire(options);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->first_port(), 40'016);
  const auto second = PortBlock::Acquire(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  // What a failed search had bound on its way is free again.
  EXPECT_EQ(KernelBind(SOCK_STREAM, {kLoopback, 40'000}), 0);
}

TEST_F(PortLeaseTest, ABlockHandsOutEachPortOnceAndTheOldestReturnFirst) {
  auto block = PortBlock::Acquire({.address = kLoopback, .count_log2 = 2});
  ASSERT_TRUE(block.ok()) << block.status();
  std::set<uint16_t> ports;
  for (int i = 0; i < 4; ++i) ports.insert(block->Take().value_or(0));
  EXPECT_EQ(ports.size(), 4u);
  EXPECT_EQ(*ports.begin(), block->first_port());
  EXPECT_FALSE(block->Take());
  block->Return(static_cast<uint16_t>(block->first_port() + 2));
  block->Return(block->first_port());
  EXPECT_EQ(block->available(), 2u);
  EXPECT_EQ(block->Take(), block->first_port() + 2);
  EXPECT_EQ(block->Take(), block->first_port());
}

TEST_F(PortLeaseTest, ABlockLargerThanOfferedIsRefused) {
  EXPECT_EQ(PortBlock::Acquire({.address = kLoopback, .count_log2 = 13}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::host
