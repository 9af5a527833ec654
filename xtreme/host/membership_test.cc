// SPDX-License-Identifier: Apache-2.0
// Membership as the kernel shows it (/proc/net/igmp and mcfilter), and as a querier on the wire
// sees it.

#include "xtreme/host/membership.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "stack/wire/checksum.h"
#include "tests/net/namespace.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::Ipv4Address;

constexpr Ipv4Address kGroup(239, 1, 1, 1);
constexpr Ipv4Address kA(192, 0, 2, 1);
constexpr Ipv4Address kB(192, 0, 2, 2);
constexpr Ipv4Address kC(192, 0, 2, 3);
constexpr int kGenerousMs = 20'000;

SourceFilter Only(std::vector<Ipv4Address> sources) {
  return {FilterMode::kInclude, std::move(sources)};
}
SourceFilter AllBut(std::vector<Ipv4Address> sources) {
  return {FilterMode::kExclude, std::move(sources)};
}

TEST(MergeFiltersTest, LetsThroughWhatAnyHolderWants) {
  struct Row {
    std::string name;
    std::vector<SourceFilter> filters;
    SourceFilter expected;
  };
  const Row rows[] = {
      {"nobody", {}, Only({})},
      {"one who takes all", {AllBut({})}, AllBut({})},
      {"sorted and without repetitions", {Only({kB, kA, kB})}, Only({kA, kB})},
      {"two lists wanted", {Only({kA}), Only({kB})}, Only({kA, kB})},
      {"two lists unwanted", {AllBut({kA, kB}), AllBut({kB, kC})}, AllBut({kB})},
      {"unwanted by one, wanted by another", {AllBut({kA, kB}), Only({kB, kC})}, AllBut({kA})},
      {"all beside a list wanted", {Only({kA}), AllBut({})}, AllBut({})},
      {"all beside a list unwanted", {AllBut({kA}), AllBut({})}, AllBut({})},
      {"nothing beside a list", {Only({}), Only({kC})}, Only({kC})},
  };
  for (const Row& row : rows) EXPECT_EQ(MergeFilters(row.filters), row.expected) << row.name;
}

class MembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = Namespace::Create();
    auto peer = Namespace::Create();
    ASSERT_TRUE(host.ok() && peer.ok()) << host.status() << peer.status();
    host_ = *std::move(host);
    peer_ = *std::move(peer);
    ASSERT_TRUE(ConnectByVeth(*host_, "eth0", *peer_, "eth1").ok());
    ASSERT_TRUE(host_->AddAddress("eth0", "10.0.0.1/24").ok());
    ASSERT_TRUE(peer_->AddAddress("eth1", "10.0.0.2/24").ok());
    eth0_ = static_cast<uint32_t>(*host_->IndexOf("eth0"));
    inside_ = std::make_unique<Namespace::Inside>(*host_);
    mirror_ = MembershipMirror::Create();
  }

  MembershipMirror::Id Join(Ipv4Address group, const SourceFilter& filter = {}) {
    const auto id = mirror_->Join(eth0_, group, filter);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }

  // The groups of 239/8 that the kernel holds on eth0. The file has them as the number in memory.
  std::set<Ipv4Address> KernelGroups() {
    std::ifstream file("/proc/thread-self/net/igmp");
    std::set<Ipv4Address> groups;
    uint32_t ifindex = 0;
    for (std::string line; std::getline(file, line);) {
      if (line[0] >= '0' && line[0] <= '9') ifindex = static_cast<uint32_t>(std::stoul(line));
      if (line[0] != '\t' || ifindex != eth0_) continue;
      const Ipv4Address group(
          ntohl(static_cast<uint32_t>(std::stoul(line.substr(1), nullptr, 16))));
      if (group.value() >> 24 == 239) groups.insert(group);
    }
    return groups;
  }

  // {source, sockets that include it, sockets that exclude it} of kGroup on eth0.
  using FilterRow = std::tuple<Ipv4Address, int, int>;
  std::set<FilterRow> KernelFilter() {
    std::ifstream file("/proc/thread-self/net/mcfilter");
    std::set<FilterRow> rows;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      uint32_t ifindex;
      std::string device, group, source;
      int including, excluding;
      fields >> ifindex >> device >> group >> source >> including >> excluding;
      if (ifindex != eth0_ || std::stoul(group, nullptr, 16) != kGroup.value()) continue;
      const auto address = static_cast<uint32_t>(std::stoul(source, nullptr, 16));
      rows.emplace(Ipv4Address(address), including, excluding);
    }
    return rows;
  }

  std::unique_ptr<Namespace> host_;
  std::unique_ptr<Namespace> peer_;
  uint32_t eth0_ = 0;
  std::unique_ptr<Namespace::Inside> inside_;
  std::unique_ptr<MembershipMirror> mirror_;
};

TEST_F(MembershipTest, HundredsOfGroupsUseSeveralSockets) {
  std::vector<MembershipMirror::Id> ids;
  std::set<Ipv4Address> groups;
  for (uint32_t i = 0; i < 300; ++i) {
    const Ipv4Address group(0xEF010000u + i);
    groups.insert(group);
    ids.push_back(Join(group));
  }
  EXPECT_EQ(mirror_->group_count(), 300u);
  EXPECT_EQ(mirror_->socket_count(), 300u / 20u);  // The kernel's default of a new namespace.
  EXPECT_EQ(KernelGroups(), groups);
  for (const MembershipMirror::Id id : ids) mirror_->Leave(id);
  EXPECT_EQ(mirror_->socket_count(), 0u);
  EXPECT_TRUE(KernelGroups().empty());
}

TEST_F(MembershipTest, LeavingReturnsTheSlot) {
  std::vector<MembershipMirror::Id> ids;
  for (uint32_t i = 0; i < 40; ++i) ids.push_back(Join(Ipv4Address(0xEF010000u + i)));
  mirror_->Leave(ids[3]);
  Join(Ipv4Address(239, 2, 2, 2));
  EXPECT_EQ(mirror_->socket_count(), 2u);
}

TEST_F(MembershipTest, ALimitThatWasLoweredOpensMoreSockets) {
  ASSERT_TRUE(host_->SetSysctl("net.ipv4.igmp_max_memberships", "2").ok());
  for (uint32_t i = 0; i < 7; ++i) Join(Ipv4Address(0xEF010000u + i));
  EXPECT_EQ(KernelGroups().size(), 7u);
  EXPECT_EQ(mirror_->socket_count(), 4u);
}

TEST_F(MembershipTest, TheLastHolderLeavesTheGroup) {
  const auto first = Join(kGroup);
  const auto second = Join(kGroup);
  EXPECT_EQ(mirror_->group_count(), 1u);
  mirror_->Leave(first);
  mirror_->Leave(first);
  EXPECT_EQ(KernelGroups().count(kGroup), 1u);
  mirror_->Leave(second);
  EXPECT_EQ(KernelGroups().count(kGroup), 0u);
}

TEST_F(MembershipTest, TheKernelFiltersTheSourcesThatWereAskedFor) {
  Join(kGroup, Only({kA, kB}));
  EXPECT_EQ(KernelFilter(), (std::set<FilterRow>{{kA, 1, 0}, {kB, 1, 0}}));
}

TEST_F(MembershipTest, TheKernelBlocksTheSourcesThatAreNotWanted) {
  Join(kGroup, AllBut({kC}));
  EXPECT_EQ(KernelFilter(), (std::set<FilterRow>{{kC, 0, 1}}));
}

TEST_F(MembershipTest, HoldersOfOneGroupAreMerged) {
  const auto all = Join(kGroup, AllBut({kA, kB}));
  Join(kGroup, Only({kB}));
  EXPECT_EQ(KernelFilter(), (std::set<FilterRow>{{kA, 0, 1}}));
  mirror_->Leave(all);
  EXPECT_EQ(KernelFilter(), (std::set<FilterRow>{{kB, 1, 0}}));
  EXPECT_EQ(mirror_->socket_count(), 1u);
}

TEST_F(MembershipTest, AChangedFilterReplacesTheOldOne) {
  const auto id = Join(kGroup, Only({kA}));
  ASSERT_TRUE(mirror_->Change(id, AllBut({kB})).ok());
  EXPECT_EQ(KernelFilter(), (std::set<FilterRow>{{kB, 0, 1}}));
  ASSERT_TRUE(mirror_->Change(id, Only({})).ok());
  EXPECT_TRUE(KernelGroups().empty());
  ASSERT_TRUE(mirror_->Change(id, AllBut({})).ok());
  EXPECT_EQ(KernelGroups().count(kGroup), 1u);
}

TEST_F(MembershipTest, MoreSourcesThanOneSocketTakesAreSplit) {
  std::vector<Ipv4Address> sources;
  for (uint32_t i = 1; i <= 25; ++i) sources.push_back(Ipv4Address(0xC6336400u + i));
  const auto id = Join(kGroup, Only(sources));
  EXPECT_EQ(mirror_->socket_count(), 3u);  // 10 sources each, the kernel's default.
  EXPECT_EQ(KernelFilter().size(), 25u);
  sources.resize(5);
  ASSERT_TRUE(mirror_->Change(id, Only(sources)).ok());
  EXPECT_EQ(KernelFilter().size(), 5u);
  EXPECT_EQ(mirror_->socket_count(), 1u);
}

TEST_F(MembershipTest, MoreBlockedSourcesThanTheKernelTakesAreLeftToUs) {
  std::vector<Ipv4Address> sources;
  for (uint32_t i = 1; i <= 11; ++i) sources.push_back(Ipv4Address(0xC6336400u + i));
  Join(kGroup, AllBut(sources));
  EXPECT_EQ(KernelGroups().count(kGroup), 1u);
  EXPECT_TRUE(KernelFilter().empty());
}

TEST_F(MembershipTest, WhatIsNoGroupOrNoInterfaceIsRefused) {
  EXPECT_EQ(mirror_->Join(eth0_, Ipv4Address(10, 0, 0, 1), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(mirror_->Join(0, kGroup, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto missing = mirror_->Join(999, kGroup, {});
  EXPECT_EQ(missing.status().message(),
            "join 239.1.1.1 on interface 999 but from 0 sources: No such device (errno 19)");
  EXPECT_EQ(mirror_->group_count(), 0u);
  EXPECT_EQ(mirror_->socket_count(), 0u);
  EXPECT_EQ(mirror_->Change(77, {}).code(), absl::StatusCode::kNotFound);
}

TEST_F(MembershipTest, AGroupOfAnInterfaceThatIsGoneCanBeLeft) {
  const auto id = Join(kGroup);
  ASSERT_TRUE(host_->RemoveInterface("eth0").ok());
  mirror_->Leave(id);
  EXPECT_EQ(mirror_->group_count(), 0u);
  EXPECT_EQ(mirror_->socket_count(), 0u);
}

// A socket of this namespace that is closed at the end of the scope.
struct Socket {
  explicit Socket(int socket_fd) : fd(socket_fd) { EXPECT_GE(fd.get(), 0); }
  bool WaitReadable() const {
    pollfd polled{.fd = fd.get(), .events = POLLIN};
    return ::poll(&polled, 1, kGenerousMs) == 1;
  }
  FileDescriptor fd;
};

sockaddr_in Ipv4(Ipv4Address address, uint16_t port) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(address.value());
  ipv4.sin_port = htons(port);
  return ipv4;
}

TEST_F(MembershipTest, NoDatagramPilesUpOnTheSockets) {
  Join(kGroup);
  const Socket witness(::socket(AF_INET, SOCK_DGRAM, 0));
  const sockaddr_in any = Ipv4(Ipv4Address::Any(), 5'000);
  ASSERT_EQ(::bind(witness.fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
  {
    const Namespace::Inside inside(*peer_);
    const Socket sender(::socket(AF_INET, SOCK_DGRAM, 0));
    const ip_mreqn out{.imr_ifindex = *peer_->IndexOf("eth1")};
    ASSERT_EQ(::setsockopt(sender.fd.get(), IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)), 0);
    const sockaddr_in to = Ipv4(kGroup, 5'000);
    ASSERT_EQ(
        ::sendto(sender.fd.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
        1);
  }
  ASSERT_TRUE(witness.WaitReadable());  // It has arrived, for all sockets of the namespace.
  for (const int fd : mirror_->SocketFds()) {
    int waiting = -1;
    EXPECT_EQ(::ioctl(fd, FIONREAD, &waiting), 0);
    EXPECT_EQ(waiting, 0);
    char byte;
    EXPECT_EQ(::recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

// What only a query is answered with, and what only a join, a leave or a new filter causes.
const std::set<uint8_t> kCurrentState = {1, 2};
const std::set<uint8_t> kChange = {3, 4};

// The querier of the other namespace. RFC 3376 section 4.
class Querier {
 public:
  Querier(Namespace& space, int ifindex) : socket_(OpenIn(space)) {
    address_.sll_family = AF_PACKET;
    address_.sll_protocol = htons(ETH_P_IP);
    address_.sll_ifindex = ifindex;
    EXPECT_EQ(::bind(socket_.fd.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)),
              0);
  }

  // A general query that is to be answered within 0.1 s, with Router Alert (section 4: MUST).
  void Query() {
    std::array<uint8_t, 36> packet = {0x46, 0xC0, 0, 36, 0,   0, 0, 0, 1,    2,   0, 0,
                                      10,   0,    0, 2,  224, 0, 0, 1, 0x94, 4,   0, 0,
                                      0x11, 1,    0, 0,  0,   0, 0, 0, 2,    125, 0, 0};
    base::StoreBe16(&packet[10], Checksum(std::span(packet).first(24)));
    base::StoreBe16(&packet[26], Checksum(std::span(packet).subspan(24)));
    sockaddr_ll to = address_;
    to.sll_halen = 6;
    const uint8_t all_hosts[] = {0x01, 0x00, 0x5E, 0, 0, 1};
    std::copy(std::begin(all_hosts), std::end(all_hosts), to.sll_addr);
    EXPECT_EQ(::sendto(socket_.fd.get(), packet.data(), packet.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(packet.size()));
  }

  // Waits for a record of `group` of one of `types` (section 4.2.12).
  bool SeesReportOf(Ipv4Address group, const std::set<uint8_t>& types) {
    while (socket_.WaitReadable()) {
      std::array<uint8_t, 2'048> packet;
      const ssize_t length = ::recv(socket_.fd.get(), packet.data(), packet.size(), 0);
      if (length > 0 &&
          Reports(std::span(packet).first(static_cast<size_t>(length)), group, types)) {
        return true;
      }
    }
    return false;
  }

  void ForgetWhatCame() {
    char byte;
    while (::recv(socket_.fd.get(), &byte, 1, MSG_DONTWAIT) >= 0) continue;
  }

 private:
  static int OpenIn(Namespace& space) {
    const Namespace::Inside inside(space);
    return ::socket(AF_PACKET, SOCK_DGRAM, 0);
  }

  static uint16_t Checksum(std::span<const uint8_t> bytes) {
    uint32_t sum = 0;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += base::LoadBe16(&bytes[i]);
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
  }

  static bool Reports(std::span<const uint8_t> packet, Ipv4Address group,
                      const std::set<uint8_t>& types) {
    const size_t header = (packet[0] & 0x0Fu) * 4u;
    if (packet[9] != IPPROTO_IGMP || packet[header] != 0x22) return false;
    size_t at = header + 8;
    for (uint16_t left = base::LoadBe16(&packet[header + 6]); left > 0; --left) {
      if (types.count(packet[at]) == 1 && Ipv4Address::Load(&packet[at + 4]) == group) return true;
      at += 8u + 4u * base::LoadBe16(&packet[at + 2]);
    }
    return false;
  }

  Socket socket_;
  sockaddr_ll address_{};
};

TEST_F(MembershipTest, TheKernelAnswersEachQuerySoThatSwitchesDoNotPrune) {
  Join(kGroup, Only({kA}));
  Querier querier(*peer_, *peer_->IndexOf("eth1"));
  for (int interval = 0; interval < 3; ++interval) {
    querier.Query();
    EXPECT_TRUE(querier.SeesReportOf(kGroup, kCurrentState)) << interval;
  }
}

TEST_F(MembershipTest, TheKernelReportsAgainWhenTheLinkComesBack) {
  ASSERT_TRUE(host_->SetSysctl("net.ipv4.conf.eth0.igmpv3_unsolicited_report_interval", "20").ok());
  Querier querier(*peer_, *peer_->IndexOf("eth1"));
  Join(kGroup);
  EXPECT_TRUE(querier.SeesReportOf(kGroup, kChange));
  ASSERT_TRUE(host_->SetUp("eth0", false).ok());
  querier.ForgetWhatCame();
  ASSERT_TRUE(host_->SetUp("eth0", true).ok());
  EXPECT_TRUE(querier.SeesReportOf(kGroup, kChange));
}

}  // namespace
}  // namespace xtreme::host
