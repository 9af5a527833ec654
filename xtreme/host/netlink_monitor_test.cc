// SPDX-License-Identifier: Apache-2.0
// The monitor against a kernel whose tables the test changes, in network namespaces.

#include "xtreme/host/netlink_monitor.h"

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "stack/wire/address.h"
#include "tests/net/namespace.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::Ipv4Address;

constexpr Ipv4Address kPeer(10, 0, 0, 2);
constexpr Ipv4Address kGateway(10, 0, 0, 254);
constexpr Ipv4Address kFar(198, 51, 100, 7);

// eth0 10.0.0.1/24 here, joined to a second namespace.
class NetlinkMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = Take(Namespace::Create());
    peer_ = Take(Namespace::Create());
    ASSERT_TRUE(host_ && peer_);
    ASSERT_TRUE(ConnectByVeth(*host_, "eth0", *peer_, "eth1").ok());
    ASSERT_TRUE(host_->AddAddress("eth0", "10.0.0.1/24").ok());
    Open({});
  }

  template <typename T>
  static T Take(absl::StatusOr<T> value) {
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *std::move(value) : T{};
  }

  void Open(const NetlinkMonitor::Options& options) {
    const Namespace::Inside inside(*host_);
    monitor_ = Take(NetlinkMonitor::Open(options));
    ASSERT_NE(monitor_, nullptr);
  }

  void Ip(const std::string& arguments) {
    const Namespace::Inside inside(*host_);
    ASSERT_EQ(std::system(("ip " + arguments).c_str()), 0) << arguments;
  }

  // The kernel queues a notification before the call that caused it returns, so there is nothing to
  // wait for.
  std::shared_ptr<const Snapshot> Next() {
    const absl::Status status = monitor_->Process();
    EXPECT_TRUE(status.ok()) << status;
    return monitor_->Current();
  }

  bool Readable() const {
    pollfd polled{.fd = monitor_->fd(), .events = POLLIN};
    return ::poll(&polled, 1, 0) == 1;
  }

  // Sends what is too long for the way to `address` until the kernel has heard so.
  void ExpectTooLong(Ipv4Address address) {
    const Namespace::Inside inside(*host_);
    const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int never = IP_PMTUDISC_DO;
    ASSERT_EQ(::setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &never, sizeof(never)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(address.value());
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const std::array<char, 1'400> payload{};
    // EMSGSIZE, by what the answer to an earlier one said.
    while (::send(fd.get(), payload.data(), payload.size(), 0) >= 0 || errno != EMSGSIZE) {
      pollfd polled{.fd = fd.get(), .events = 0};
      ::poll(&polled, 1, 1);
    }
  }

  uint32_t Eth0() { return static_cast<uint32_t>(Take(host_->IndexOf("eth0"))); }

  std::unique_ptr<Namespace> host_;
  std::unique_ptr<Namespace> peer_;
  std::unique_ptr<NetlinkMonitor> monitor_;
};

TEST_F(NetlinkMonitorTest, FirstSnapshotHasWhatWasThereBefore) {
  const auto snapshot = monitor_->Current();
  const Interface* eth0 = snapshot->FindInterface("eth0");
  ASSERT_NE(eth0, nullptr);
  EXPECT_EQ(eth0->ifindex, Eth0());
  EXPECT_EQ(eth0->mac, wire::MacAddress(Take(host_->MacOf("eth0"))));
  EXPECT_EQ(eth0->mtu, 1'500u);
  EXPECT_EQ(eth0->kind, "veth");
  EXPECT_TRUE(eth0->up);
  EXPECT_TRUE(eth0->running);
  EXPECT_TRUE(snapshot->IsLocal(Ipv4Address(10, 0, 0, 1)));
  EXPECT_TRUE(snapshot->IsLocal(Ipv4Address(127, 1, 2, 3)));
  EXPECT_FALSE(snapshot->IsLocal(kPeer));
  EXPECT_EQ(snapshot->RouteTo(kPeer).ifindex, eth0->ifindex);
  EXPECT_EQ(snapshot->version(), monitor_->version().load());
  EXPECT_EQ(monitor_->counters().unreadable, 0u);
}

TEST_F(NetlinkMonitorTest, NothingChangedPublishesNothing) {
  const auto before = Next();
  EXPECT_EQ(Next(), before);
  EXPECT_FALSE(Readable());
}

TEST_F(NetlinkMonitorTest, AChangedMtuIsFollowed) {
  const auto before = Next();
  ASSERT_TRUE(host_->SetMtu("eth0", 1'300).ok());
  EXPECT_TRUE(Readable());
  const auto after = Next();
  EXPECT_GT(after->version(), before->version());
  EXPECT_EQ(after->RouteTo(kPeer).mtu, 1'300u);
  EXPECT_EQ(before->RouteTo(kPeer).mtu, 1'500u);  // An old snapshot never changes.
}

TEST_F(NetlinkMonitorTest, ANewRouteIsFollowedAndForgotten) {
  EXPECT_EQ(Next()->RouteTo(kFar).reason, UnreachableReason::kNoRoute);
  Ip("route add 198.51.100.0/24 via 10.0.0.254 mtu 1200");
  EXPECT_EQ(Next()->RouteTo(kFar), (RouteResult{.kind = RouteKind::kUnicast,
                                                .ifindex = Eth0(),
                                                .next_hop = kGateway,
                                                .via_gateway = true,
                                                .source = Ipv4Address(10, 0, 0, 1),
                                                .mtu = 1'200}));
  Ip("route del 198.51.100.0/24");
  EXPECT_EQ(Next()->RouteTo(kFar).reason, UnreachableReason::kNoRoute);
}

// A router towards kFar says that its next link carries less, and the kernel notes that for the
// destination.
TEST_F(NetlinkMonitorTest, WhatTheKernelLearnedOfOneDestinationIsNoRoute) {
  const auto far = Take(Namespace::Create());
  ASSERT_TRUE(ConnectByVeth(*peer_, "eth2", *far, "eth3").ok());
  ASSERT_TRUE(peer_->AddAddress("eth1", "10.0.0.254/24").ok());
  ASSERT_TRUE(peer_->AddAddress("eth2", "198.51.100.1/24").ok());
  ASSERT_TRUE(peer_->SetMtu("eth2", 1'000).ok());
  ASSERT_TRUE(peer_->SetSysctl("net.ipv4.ip_forward", "1").ok());
  Ip("route add default via 10.0.0.254");
  ExpectTooLong(kFar);
  Ip("route add 198.51.100.0/25 via 10.0.0.253");
  const RouteResult route = Next()->RouteTo(kFar);
  EXPECT_EQ(route.next_hop, Ipv4Address(10, 0, 0, 253));
  EXPECT_EQ(route.mtu, 1'500u);
}

TEST_F(NetlinkMonitorTest, RoutesThatTheKernelRemovesInSilenceAreForgotten) {
  Ip("route add default via 10.0.0.254");
  EXPECT_TRUE(Next()->RouteTo(kFar).reachable());
  ASSERT_TRUE(host_->SetUp("eth0", false).ok());
  EXPECT_EQ(Next()->RouteTo(kFar).reason, UnreachableReason::kNoRoute);
}

TEST_F(NetlinkMonitorTest, ARuleIsFollowed) {
  Ip("route add default via 10.0.0.254 table 77");
  EXPECT_FALSE(Next()->RouteTo(kFar).reachable());
  Ip("rule add to 198.51.100.0/24 table 77");
  EXPECT_EQ(Next()->RouteTo(kFar).next_hop, kGateway);
}

TEST_F(NetlinkMonitorTest, AddressesKeepTheKernelsOrder) {
  ASSERT_TRUE(host_->AddAddress("eth0", "10.0.0.3/24").ok());
  EXPECT_EQ(Next()->RouteTo(kPeer).source, Ipv4Address(10, 0, 0, 1));
  ASSERT_TRUE(host_->SetSysctl("net.ipv4.conf.eth0.promote_secondaries", "1").ok());
  ASSERT_TRUE(host_->RemoveAddress("eth0", "10.0.0.1/24").ok());
  EXPECT_EQ(Next()->RouteTo(kPeer).source, Ipv4Address(10, 0, 0, 3));
}

TEST_F(NetlinkMonitorTest, NeighboursAreFollowed) {
  EXPECT_EQ(Next()->FindNeighbour(Eth0(), kPeer), nullptr);
  Ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud reachable");
  const auto learned = Next();
  const Neighbour* peer = learned->FindNeighbour(Eth0(), kPeer);
  ASSERT_NE(peer, nullptr);
  EXPECT_TRUE(peer->usable());
  EXPECT_EQ(peer->mac, wire::MacAddress({0x02, 0, 0, 0, 0, 0x02}));
  Ip("neigh change 10.0.0.2 lladdr 02:00:00:00:00:03 dev eth0 nud permanent");
  EXPECT_EQ(Next()->FindNeighbour(Eth0(), kPeer)->mac, wire::MacAddress({0x02, 0, 0, 0, 0, 0x03}));
  Ip("neigh del 10.0.0.2 dev eth0");
  const auto after = Next();
  const Neighbour* gone = after->FindNeighbour(Eth0(), kPeer);
  EXPECT_TRUE(gone == nullptr || !gone->usable());
}

TEST_F(NetlinkMonitorTest, ANeighboursStateAloneIsNoNews) {
  Ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud reachable");
  const auto before = Next();
  Ip("neigh change 10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 nud stale");
  EXPECT_TRUE(Readable());
  EXPECT_EQ(Next(), before);
  Ip("neigh change 10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 nud reachable");
  EXPECT_EQ(Next(), before);
  Ip("neigh change 10.0.0.2 dev eth0 nud failed");
  const auto failed = Next();
  EXPECT_GT(failed->version(), before->version());
  EXPECT_FALSE(failed->FindNeighbour(Eth0(), kPeer)->usable());
}

TEST_F(NetlinkMonitorTest, ARemovedInterfaceIsForgotten) {
  const uint32_t ifindex = Eth0();
  ASSERT_TRUE(host_->RemoveInterface("eth0").ok());
  const auto snapshot = Next();
  EXPECT_EQ(snapshot->FindInterface(ifindex), nullptr);
  EXPECT_EQ(snapshot->FindInterfaceOf(Ipv4Address(10, 0, 0, 1)), nullptr);
  EXPECT_EQ(snapshot->RouteTo(kPeer, std::nullopt, ifindex).reason,
            UnreachableReason::kUnknownInterface);
}

TEST_F(NetlinkMonitorTest, LostNotificationsAreMadeUpForByReadingAllAnew) {
  Open({.receive_buffer_bytes = 4'096});
  std::string batch;
  for (int i = 1; i <= 200; ++i) {
    batch += "echo neigh add 10.0.0." + std::to_string(i + 1) +
             " lladdr 02:00:00:00:00:02 dev eth0 nud permanent;";
  }
  {
    const Namespace::Inside inside(*host_);
    ASSERT_EQ(std::system(("{ " + batch + " } | ip -batch -").c_str()), 0);
  }
  const auto snapshot = Next();
  EXPECT_EQ(monitor_->counters().overruns, 1u);
  EXPECT_EQ(snapshot->neighbours().size(), 200u);
}

TEST_F(NetlinkMonitorTest, OtherThreadsReadWhileItPublishes) {
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    uint64_t seen = 0;
    while (!stop) {
      if (monitor_->version().load(std::memory_order_relaxed) == seen) continue;
      const auto snapshot = monitor_->Current();
      EXPECT_GT(snapshot->version(), seen);
      seen = snapshot->version();
      EXPECT_EQ(snapshot->RouteTo(kPeer).kind, RouteKind::kUnicast);
    }
  });
  for (uint32_t mtu = 1'000; mtu < 1'050; ++mtu) {
    ASSERT_TRUE(host_->SetMtu("eth0", mtu).ok());
    EXPECT_EQ(Next()->FindInterface("eth0")->mtu, mtu);
  }
  stop = true;
  reader.join();
}

TEST_F(NetlinkMonitorTest, AReceiveBufferOutOfRangeIsRefused) {
  EXPECT_EQ(NetlinkMonitor::Open({.receive_buffer_bytes = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::host
