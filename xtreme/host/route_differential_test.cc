// SPDX-License-Identifier: Apache-2.0
// Snapshot::RouteTo against the kernel's own answers (RTM_GETROUTE) in one namespace.
//
// Seeded random routes, rules and addresses; what is compared is the kind or the error, the
// interface, the gateway, the source and the MTU. Multipath routes are left out: the kernel chooses
// by a hash with a secret.

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stack/wire/address.h"
#include "stack/wire/address_text.h"
#include "tests/net/namespace.h"
#include "xtreme/host/netlink_monitor.h"
#include "xtreme/host/netlink_parse.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::Ipv4Address;

struct Query {
  Ipv4Address destination;
  std::optional<Ipv4Address> source;
  std::optional<uint32_t> ifindex;
};

std::string ToText(const Query& query) {
  return "to " + wire::ToString(query.destination) +
         (query.source ? " from " + wire::ToString(*query.source) : "") +
         (query.ifindex ? " on " + std::to_string(*query.ifindex) : "");
}

// Asks the kernel as `ip route get` does.
class Kernel {
 public:
  Kernel() : socket_(nl_socket_alloc()) {
    nl_socket_disable_auto_ack(socket_);
    EXPECT_EQ(nl_connect(socket_, NETLINK_ROUTE), 0);
  }
  ~Kernel() { nl_socket_free(socket_); }

  // The answer as a route, or the kernel's errno.
  std::optional<Route> Ask(const Query& query, int& error) {
    nl_msg* request = nlmsg_alloc_simple(RTM_GETROUTE, NLM_F_REQUEST);
    rtmsg header{.rtm_family = AF_INET, .rtm_dst_len = 32};
    header.rtm_src_len = query.source ? 32 : 0;
    nlmsg_append(request, &header, sizeof(header), NLMSG_ALIGNTO);
    nla_put_u32(request, RTA_DST, htonl(query.destination.value()));
    if (query.source) nla_put_u32(request, RTA_SRC, htonl(query.source->value()));
    if (query.ifindex) nla_put_u32(request, RTA_OIF, *query.ifindex);
    EXPECT_GT(nl_send_auto(socket_, request), 0);
    nlmsg_free(request);
    alignas(nlmsghdr) char answer[4096];
    EXPECT_GT(::recv(nl_socket_get_fd(socket_), answer, sizeof(answer), 0), 0);
    const auto* message = reinterpret_cast<const nlmsghdr*>(answer);
    if (message->nlmsg_type != NLMSG_ERROR) return ParseRoute(*message);
    error = -*static_cast<const int*>(NLMSG_DATA(message));
    return std::nullopt;
  }

 private:
  nl_sock* socket_;
};

int ErrnoOf(UnreachableReason reason) {
  switch (reason) {
    case UnreachableReason::kInvalidSource:
    case UnreachableReason::kInvalidDestination:
    case UnreachableReason::kBlackholeRoute:
      return EINVAL;
    case UnreachableReason::kUnreachableRoute:
      return EHOSTUNREACH;
    case UnreachableReason::kProhibitRoute:
      return EACCES;
    case UnreachableReason::kUnknownInterface:
      return ENODEV;
    default:
      return ENETUNREACH;
  }
}

RouteKind KindOf(RouteType type) {
  switch (type) {
    case RouteType::kLocal:
      return RouteKind::kLocal;
    case RouteType::kBroadcast:
      return RouteKind::kBroadcast;
    case RouteType::kMulticast:
      return RouteKind::kMulticast;
    default:
      return RouteKind::kUnicast;
  }
}

class RouteDifferentialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto space = Namespace::Create();
    ASSERT_TRUE(space.ok()) << space.status();
    space_ = *std::move(space);
    ASSERT_TRUE(ConnectByVeth(*space_, "eth0", *space_, "eth1").ok());
    ASSERT_TRUE(ConnectByVeth(*space_, "eth2", *space_, "eth3").ok());
    Batch({"addr add 10.0.0.1/24 brd + dev eth0", "addr add 10.0.0.3/24 brd + dev eth0",
           "addr add 10.5.0.1/16 brd + dev eth0", "addr add 10.1.0.1/24 brd + dev eth1",
           "addr add 169.254.1.1/16 scope link dev eth1",
           "addr add 10.2.0.1 peer 10.2.9.9/32 dev eth2", "link set dev eth2 mtu 1400",
           "addr add 192.0.2.99/32 dev lo"});
  }

  // Each line to `ip -batch -force`: what the kernel refuses (a duplicate) is no fault of the test.
  void Batch(const std::vector<std::string>& lines) {
    const Namespace::Inside inside(*space_);
    FILE* ip = ::popen("ip -force -batch - 2>/dev/null", "w");
    ASSERT_NE(ip, nullptr);
    for (const std::string& line : lines) std::fprintf(ip, "%s\n", line.c_str());
    ::pclose(ip);
  }

  void OpenMonitor() {
    const Namespace::Inside inside(*space_);
    auto monitor = NetlinkMonitor::Open({});
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    monitor_ = *std::move(monitor);
    kernel_ = std::make_unique<Kernel>();
  }

  uint32_t IndexOf(const std::string& name) {
    return monitor_->Current()->FindInterface(name)->ifindex;
  }

  // What the kernel says, in the words of a snapshot.
  void ExpectSame(const Query& query) {
    const auto snapshot = monitor_->Current();
    const RouteResult ours = snapshot->RouteTo(query.destination, query.source, query.ifindex);
    int error = 0;
    const std::optional<Route> kernels = kernel_->Ask(query, error);
    ++(kernels ? reached_ : refused_);
    if (!kernels) {
      EXPECT_FALSE(ours.reachable()) << ToText(query) << ": the kernel says " << error;
      EXPECT_EQ(ErrnoOf(ours.reason), error) << ToText(query) << ": " << Describe(ours.reason);
      return;
    }
    ASSERT_EQ(kernels->next_hops.size(), 1u) << ToText(query);
    const NextHop& hop = kernels->next_hops[0];
    const Interface* out = snapshot->FindInterface(hop.ifindex);
    RouteResult expected{
        .kind = KindOf(kernels->type),
        .ifindex = hop.ifindex,
        .next_hop = hop.gateway.value_or(query.destination),
        .via_gateway = hop.gateway.has_value(),
        .source = kernels->preferred_source.value_or(query.source.value_or(Ipv4Address::Any())),
        .mtu = std::min(out->mtu, 65'535u)};
    if (kernels->mtu != 0) expected.mtu = std::min(expected.mtu, kernels->mtu);
    EXPECT_EQ(ours, expected) << ToText(query) << "\n ours: " << Describe(ours.reason) << " kind "
                              << int(ours.kind) << " on " << ours.ifindex << " next "
                              << wire::ToString(ours.next_hop) << " source "
                              << wire::ToString(ours.source) << " mtu " << ours.mtu
                              << "\n kernel: kind " << int(expected.kind) << " on "
                              << expected.ifindex << " next " << wire::ToString(expected.next_hop)
                              << " source " << wire::ToString(expected.source) << " mtu "
                              << expected.mtu;
  }

  // Every destination with every source and interface.
  void ExpectSameForAll(const std::vector<Ipv4Address>& destinations) {
    std::vector<std::optional<Ipv4Address>> sources = {std::nullopt,
                                                       Ipv4Address(10, 0, 0, 1),
                                                       Ipv4Address(10, 0, 0, 3),
                                                       Ipv4Address(10, 1, 0, 1),
                                                       Ipv4Address(192, 0, 2, 99),
                                                       Ipv4Address(127, 0, 0, 5),
                                                       Ipv4Address(10, 9, 9, 9),
                                                       Ipv4Address(239, 1, 1, 1)};
    std::vector<std::optional<uint32_t>> interfaces = {std::nullopt, 1u, 999u};
    for (const char* name : {"eth0", "eth1", "eth2", "eth3"}) interfaces.push_back(IndexOf(name));
    for (const Ipv4Address destination : destinations) {
      for (const auto& source : sources) {
        for (const auto& ifindex : interfaces) ExpectSame({destination, source, ifindex});
      }
    }
  }

  std::unique_ptr<Namespace> space_;
  std::unique_ptr<NetlinkMonitor> monitor_;
  std::unique_ptr<Kernel> kernel_;
  int reached_ = 0;
  int refused_ = 0;
};

const std::vector<Ipv4Address> kDestinations = {
    Ipv4Address(10, 0, 0, 2),      Ipv4Address(10, 0, 0, 1),        Ipv4Address(10, 0, 0, 255),
    Ipv4Address(10, 5, 1, 1),      Ipv4Address(10, 5, 255, 255),    Ipv4Address(10, 1, 0, 7),
    Ipv4Address(10, 2, 9, 9),      Ipv4Address(10, 2, 0, 1),        Ipv4Address(169, 254, 2, 2),
    Ipv4Address(127, 0, 0, 1),     Ipv4Address(127, 3, 4, 5),       Ipv4Address(192, 0, 2, 99),
    Ipv4Address(224, 0, 0, 1),     Ipv4Address(224, 0, 0, 251),     Ipv4Address(233, 54, 12, 111),
    Ipv4Address(239, 255, 0, 1),   Ipv4Address(255, 255, 255, 255), Ipv4Address(240, 0, 0, 1),
    Ipv4Address(8, 8, 8, 8),       Ipv4Address(198, 51, 100, 1),    Ipv4Address(203, 0, 113, 9),
    Ipv4Address(203, 0, 113, 130), Ipv4Address(172, 16, 5, 5),      Ipv4Address(0, 1, 2, 3)};

TEST_F(RouteDifferentialTest, WithConnectedNetworksOnly) {
  OpenMonitor();
  ExpectSameForAll(kDestinations);
  EXPECT_GT(reached_, 0);
  EXPECT_GT(refused_, 0);
}

TEST_F(RouteDifferentialTest, WithGatewaysGroupsAndRefusals) {
  Batch({"route add default via 10.0.0.254", "route add 224.0.0.0/4 dev eth1",
         "route add 239.255.0.0/16 via 10.0.0.254",
         "route add 198.51.100.0/24 via 10.1.0.254 mtu 1300",
         "route add 203.0.113.0/25 via 10.0.0.253 src 10.0.0.3",
         "route add unreachable 203.0.113.128/25", "route add blackhole 172.16.0.0/12",
         "route add prohibit 8.8.8.0/24", "route add 8.8.8.8/32 dev eth3 metric 7",
         "route add 8.8.8.8/32 dev eth2 metric 3"});
  OpenMonitor();
  ExpectSameForAll(kDestinations);
}

TEST_F(RouteDifferentialTest, WithTheDefaultRouteForGroups) {
  Batch({"route add default via 10.1.0.254 mtu 1200"});
  OpenMonitor();
  ExpectSameForAll(kDestinations);
}

TEST_F(RouteDifferentialTest, WithRules) {
  Batch({"route add default via 10.0.0.254", "route add default via 10.1.0.254 table 100",
         "route add throw 198.51.100.0/24 table 100", "route add unreachable default table 200",
         "rule add from 10.1.0.1 table 100 priority 10",
         "rule add to 203.0.113.0/24 table 200 priority 20",
         "rule add oif eth2 prohibit priority 30",
         "rule add not from all iif lo blackhole priority 40",
         "rule add fwmark 7 table 200 priority 50",
         "rule add table main suppress_prefixlength 0 priority 60",
         "rule add to 8.8.8.8 goto 90 priority 70", "rule add to 8.0.0.0/8 unreachable priority 80",
         "rule add to 8.8.8.8 table 100 priority 90"});
  OpenMonitor();
  ExpectSameForAll(kDestinations);
}

TEST_F(RouteDifferentialTest, WithAnInterfaceDown) {
  Batch({"route add default via 10.1.0.254", "link set dev eth2 down"});
  OpenMonitor();
  ExpectSameForAll(kDestinations);
}

// Routes under 10.64.0.0/10 of every length, so that they cover one another.
std::vector<std::string> RandomRoutes(std::mt19937& random) {
  const char* const targets[] = {"via 10.0.0.254", "via 10.1.0.254",       "dev eth2",
                                 "dev eth3",       "via 10.0.0.7 mtu 900", "dev eth1 src 10.1.0.1"};
  const char* const refusals[] = {"unreachable", "blackhole", "prohibit", "throw"};
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    const int length = 10 + static_cast<int>(random() % 23);
    const uint32_t mask = ~uint32_t{0} << (32 - length);
    const Ipv4Address network((0x0A400000u | (random() & 0x3F0F0Fu)) & mask);
    const std::string prefix = wire::ToString(network) + "/" + std::to_string(length);
    const std::string metric = " metric " + std::to_string(random() % 4);
    if (random() % 6 == 0) {
      lines.push_back("route append " + std::string(refusals[random() % 4]) + " " + prefix +
                      metric);
    } else {
      lines.push_back("route append " + prefix + " " + targets[random() % 6] + metric);
    }
  }
  return lines;
}

TEST_F(RouteDifferentialTest, WithRandomRoutes) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Batch({"route flush table main root 10.64.0.0/10"});
    Batch(RandomRoutes(random));
    OpenMonitor();
    ASSERT_GT(monitor_->Current()->fib().route_count(), 100u);
    for (int i = 0; i < 2'000; ++i) {
      Query query{.destination = Ipv4Address(0x0A400000u | (random() & 0x3F0F0Fu))};
      if (random() % 4 == 0) query.source = Ipv4Address(10, 1, 0, 1);
      if (random() % 4 == 0) query.ifindex = IndexOf("eth" + std::to_string(random() % 4));
      ExpectSame(query);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace xtreme::host
