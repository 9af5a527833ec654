// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/neighbour_probe.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/wire/arp.h"
#include "tests/net/namespace.h"

namespace xtreme::host {
namespace {

using net::Namespace;
using wire::ArpOperation;
using wire::ArpRepr;
using wire::Ipv4Address;
using wire::MacAddress;

constexpr MacAddress kMac({0x02, 0, 0, 0, 0, 0x22});
constexpr MacAddress kOurs({0x02, 0, 0, 0, 0, 0x11});
constexpr Ipv4Address kPeer(10, 0, 0, 2);
constexpr Ipv4Address kOwn(10, 0, 0, 1);
constexpr int kGenerousMs = 20'000;

std::array<uint8_t, wire::kArpBytes> Bytes(const ArpRepr& arp) {
  std::array<uint8_t, wire::kArpBytes> bytes{};
  EXPECT_EQ(arp.Emit(bytes), bytes.size());
  return bytes;
}

constexpr ArpRepr kReply{ArpOperation::kReply, kMac, kPeer, kOurs, kOwn};
constexpr ArpRepr kRequest{ArpOperation::kRequest, kMac, kPeer, MacAddress(), kOwn};
constexpr ArpRepr kAnnouncement{ArpOperation::kRequest, kMac, kPeer, MacAddress(), kPeer};

TEST(ParseSightingTest, TellsWhatASenderClaims) {
  struct Row {
    std::string name;
    ArpRepr arp;
    std::optional<NeighbourSighting> expected;
  };
  const NeighbourSighting seen{7, kPeer, kMac, false};
  const NeighbourSighting announced{7, kPeer, kMac, true};
  ArpRepr gratuitous_reply = kReply;
  gratuitous_reply.target = kPeer;
  ArpRepr from_group = kReply;
  from_group.sender_mac = MacAddress::Broadcast();
  ArpRepr from_nobody = kReply;
  from_nobody.sender_mac = MacAddress();
  ArpRepr of_group = kReply;
  of_group.sender = Ipv4Address(239, 1, 1, 1);
  ArpRepr conflict_probe = kRequest;
  conflict_probe.sender = Ipv4Address::Any();
  ArpRepr of_nobody = kAnnouncement;
  of_nobody.sender = of_nobody.target = Ipv4Address::Any();
  const Row rows[] = {
      {"reply", kReply, seen},
      {"request", kRequest, std::nullopt},
      {"announcement by request", kAnnouncement, announced},
      {"announcement by reply", gratuitous_reply, announced},
      {"MAC of a group", from_group, std::nullopt},
      {"no MAC", from_nobody, std::nullopt},
      {"address of a group", of_group, std::nullopt},
      {"conflict probe", conflict_probe, std::nullopt},
      {"announcement of no address", of_nobody, std::nullopt},
  };
  for (const Row& row : rows) EXPECT_EQ(ParseSighting(7, Bytes(row.arp)), row.expected) << row.name;
}

TEST(ParseSightingTest, EveryTruncationIsRefused) {
  const auto bytes = Bytes(kReply);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(ParseSighting(7, cut)) << length;
  }
}

class NeighbourProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = Namespace::Create();
    auto peer = Namespace::Create();
    ASSERT_TRUE(host.ok() && peer.ok()) << host.status() << peer.status();
    host_ = *std::move(host);
    peer_ = *std::move(peer);
    ASSERT_TRUE(ConnectByVeth(*host_, "eth0", *peer_, "eth1").ok());
    eth0_ = static_cast<uint32_t>(*host_->IndexOf("eth0"));
    const Namespace::Inside inside(*host_);
    auto probe = NeighbourProbe::Open(eth0_);
    ASSERT_TRUE(probe.ok()) << probe.status();
    probe_ = std::make_unique<NeighbourProbe>(*std::move(probe));
  }

  // Puts an ARP packet on the wire towards eth0.
  void Send(const ArpRepr& arp) {
    const Namespace::Inside inside(*peer_);
    const FileDescriptor fd(::socket(AF_PACKET, SOCK_DGRAM, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(ETH_P_ARP);
    to.sll_ifindex = *peer_->IndexOf("eth1");
    to.sll_halen = 6;
    MacAddress::Broadcast().Store(to.sll_addr);
    const auto bytes = Bytes(arp);
    ASSERT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(bytes.size()));
  }

  std::vector<NeighbourSighting> Wait() {
    pollfd polled{.fd = probe_->fd(), .events = POLLIN};
    EXPECT_EQ(::poll(&polled, 1, kGenerousMs), 1);
    std::array<NeighbourSighting, 8> sightings;
    const size_t count = probe_->Poll(sightings);
    return {sightings.begin(), sightings.begin() + static_cast<ptrdiff_t>(count)};
  }

  std::unique_ptr<Namespace> host_;
  std::unique_ptr<Namespace> peer_;
  uint32_t eth0_ = 0;
  std::unique_ptr<NeighbourProbe> probe_;
};

TEST_F(NeighbourProbeTest, AReplyIsSeen) {
  Send(kReply);
  EXPECT_EQ(Wait(), (std::vector<NeighbourSighting>{{eth0_, kPeer, kMac, false}}));
  EXPECT_EQ(probe_->counters().sightings, 1u);
}

TEST_F(NeighbourProbeTest, AnAnnouncementIsSeen) {
  Send(kAnnouncement);
  EXPECT_EQ(Wait(), (std::vector<NeighbourSighting>{{eth0_, kPeer, kMac, true}}));
}

TEST_F(NeighbourProbeTest, RequestsWakeNobody) {
  Send(kRequest);
  Send(kReply);
  EXPECT_EQ(Wait().size(), 1u);
  EXPECT_EQ(probe_->counters().ignored, 0u);  // The filter took it, not the parser.
}

TEST_F(NeighbourProbeTest, WhatDoesNotFitIsLeftForTheNextPoll) {
  for (int i = 0; i < 3; ++i) Send(kReply);
  std::array<NeighbourSighting, 2> two;
  EXPECT_EQ(probe_->Poll(two), 2u);
  EXPECT_EQ(probe_->Poll(two), 1u);
  EXPECT_EQ(probe_->Poll(two), 0u);
}

TEST_F(NeighbourProbeTest, AnInterfaceThatGoesDownYieldsNothing) {
  ASSERT_TRUE(host_->SetUp("eth0", false).ok());
  std::array<NeighbourSighting, 2> two;
  EXPECT_EQ(probe_->Poll(two), 0u);
}

TEST_F(NeighbourProbeTest, AnInterfaceThatIsNotThereIsRefused) {
  EXPECT_EQ(NeighbourProbe::Open(0).status().code(), absl::StatusCode::kInvalidArgument);
  const Namespace::Inside inside(*host_);
  const absl::Status status = NeighbourProbe::Open(999).status();
  EXPECT_EQ(status.message(), "watch ARP on interface 999: No such device (errno 19)");
}

// Capabilities belong to a thread: one that drops CAP_NET_RAW and ends harms nobody.
void DropNetRaw() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3};
  __user_cap_data_struct sets[2];
  ASSERT_EQ(::syscall(SYS_capget, &header, sets), 0);
  sets[0].effective &= ~(1u << CAP_NET_RAW);
  ASSERT_EQ(::syscall(SYS_capset, &header, sets), 0);
}

TEST_F(NeighbourProbeTest, TheMissingPrivilegeIsNamed) {
  absl::Status status;
  std::thread([&] {
    const Namespace::Inside inside(*host_);
    DropNetRaw();
    status = NeighbourProbe::Open(eth0_).status();
  }).join();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("needs CAP_NET_RAW"), std::string::npos) << status;
}

}  // namespace
}  // namespace xtreme::host
