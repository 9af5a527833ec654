// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/netif.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tools/connectx/wire/netif_fixture.h"

namespace xtreme::connectx {
namespace {

TEST_F(NetifTest, FramesThatMatchAreTheDevicesAndTheRestTheKernels) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  const int kernel_5000 = HostSocket(5000);
  const int kernel_5001 = HostSocket(5001);
  for (int i = 0; i < 20; ++i) {
    SendFromPeer(5000);
    SendFromPeer(5001);
  }
  EXPECT_EQ(Drain(*wire), 20);
  EXPECT_EQ(CountDatagrams(kernel_5000), 0);
  EXPECT_EQ(CountDatagrams(kernel_5001), 20);
  for (const auto& entry : received_.entries) {
    const auto facts = Inspect(entry.bytes);
    ASSERT_TRUE(facts.has_value());
    EXPECT_EQ(facts->dst_port, 5000);
    EXPECT_TRUE(facts->l4_checksum_right) << "the sender's kernel left it to its card";
  }
}

TEST_F(NetifTest, RuleIsInForceWhenAddReturnsAndGoneWhenRemoveReturns) {
  auto wire = OpenWire();
  const int kernel = HostSocket(5000);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
    SendFromPeer(5000);
    EXPECT_EQ(Drain(*wire), 1);
    ASSERT_EQ(wire->RemoveRule(PortRule(5000)), absl::OkStatus());
    SendFromPeer(5000);
    EXPECT_EQ(Drain(*wire), 0);
    EXPECT_EQ(CountDatagrams(kernel), 1);
  }
  EXPECT_EQ(wire->RemoveRule(PortRule(5000)).code(), absl::StatusCode::kNotFound);
}

TEST_F(NetifTest, EqualRulesNestAndDeliverOneCopy) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  WireRule wider = PortRule(5000);
  wider.dst_port.reset();
  ASSERT_EQ(wire->AddRule(wider), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*wire), 1) << "three rules match, two of them equal";
  ASSERT_EQ(wire->RemoveRule(wider), absl::OkStatus());
  ASSERT_EQ(wire->RemoveRule(PortRule(5000)), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*wire), 1) << "one of the two equal rules is still there";
}

TEST_F(NetifTest, DontTrapGivesTheKernelItsCopyUnlessAnotherRuleTakesIt) {
  auto wire = OpenWire();
  const int kernel = HostSocket(5000);
  WireRule both = PortRule(5000);
  both.dont_trap = true;
  ASSERT_EQ(wire->AddRule(both), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*wire), 1);
  EXPECT_EQ(CountDatagrams(kernel), 1);

  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*wire), 1);
  EXPECT_EQ(CountDatagrams(kernel), 0);
}

TEST_F(NetifTest, FragmentsMatchNoRuleWithPortsNotEvenTheFirst) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  UdpFrame frame = FrameToHost(5000);
  frame.fragment = 0x2000;
  SendRawFromPeer(Encode(frame));
  frame.fragment = 0x0003;
  SendRawFromPeer(Encode(frame));
  EXPECT_EQ(Drain(*wire), 0);
  frame.fragment = 0x4000;  // Don't fragment: a whole datagram.
  SendRawFromPeer(Encode(frame));
  EXPECT_EQ(Drain(*wire), 1);

  WireRule without_ports = PortRule(5000);
  without_ports.dst_port.reset();
  ASSERT_EQ(wire->AddRule(without_ports), absl::OkStatus());
  frame.fragment = 0x2000;
  SendRawFromPeer(Encode(frame));
  EXPECT_EQ(Drain(*wire), 1);
}

// UDP over IPv6 without checksum, from 4000; the address ends in `last`.
std::vector<uint8_t> Ipv6Datagram(const UdpFrame& ends, uint8_t last) {
  constexpr uint8_t kUdpBytes = 8;
  std::vector<uint8_t> frame(ends.dst_mac.begin(), ends.dst_mac.end());
  frame.insert(frame.end(), ends.src_mac.begin(), ends.src_mac.end());
  frame.insert(frame.end(), {0x86, 0xdd, 0x60, 0, 0, 0, 0, kUdpBytes, IPPROTO_UDP, 64});
  frame.insert(frame.end(), {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9});
  frame.insert(frame.end(), {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last});
  const uint8_t low = ends.dst_port & 0xff;
  const uint8_t high = ends.dst_port >> 8;
  frame.insert(frame.end(), {4000 >> 8, 4000 & 0xff, high, low, 0, kUdpBytes, 0, 0});
  return frame;
}

TEST_F(NetifTest, RulesMatchIpv6AddressesAndTheirPorts) {
  auto wire = OpenWire();
  WireRule rule{.ethertype = 0x86dd, .protocol = IPPROTO_UDP, .dst_port = 5000};
  rule.ipv6.dst = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  rule.ipv6.dst_mask.fill(0xff);
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5000), 1));
  EXPECT_EQ(Drain(*wire), 1);
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5000), 2));
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5001), 1));
  SendRawFromPeer(Encode(FrameToHost(5000)));
  EXPECT_EQ(Drain(*wire), 0);
  ASSERT_EQ(wire->RemoveRule(rule), absl::OkStatus());
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5000), 1));
  EXPECT_EQ(Drain(*wire), 0);

  rule.src_port = 4001;
  rule.src_port_mask = 0xfffe;
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  std::vector<uint8_t> wrong_length = Ipv6Datagram(FrameToHost(5000), 1);
  wrong_length[18] = 0xff;
  SendRawFromPeer(wrong_length);
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5002), 1));
  EXPECT_EQ(Drain(*wire), 1) << "ports are where they are, whatever IP says of its length";

  WireRule network{.ethertype = 0x86dd};
  network.ipv6.src = {0xfd};
  network.ipv6.src_mask = {0xff};
  ASSERT_EQ(wire->AddRule(network), absl::OkStatus());
  SendRawFromPeer(Ipv6Datagram(FrameToHost(5001), 2));
  EXPECT_EQ(Drain(*wire), 1);
}

TEST_F(NetifTest, Ipv6AddressesUnderAnotherEtherTypeAreInvalid) {
  auto wire = OpenWire();
  WireRule rule{.ethertype = 0x0800};
  rule.ipv6.dst_mask.fill(0xff);
  EXPECT_EQ(wire->AddRule(rule).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NetifTest, MaskedPortTakesAnAlignedBlock) {
  auto wire = OpenWire();
  WireRule block = PortRule(5003);
  block.dst_port_mask = 0xfffc;
  ASSERT_EQ(wire->AddRule(block), absl::OkStatus());
  for (const uint16_t port : {4999, 5000, 5003, 5004}) SendRawFromPeer(Encode(FrameToHost(port)));
  EXPECT_EQ(Drain(*wire), 2);
  ASSERT_EQ(wire->RemoveRule(block), absl::OkStatus());
  SendRawFromPeer(Encode(FrameToHost(5000)));
  EXPECT_EQ(Drain(*wire), 0);
}

TEST_F(NetifTest, FiveMegabytesOfKernelTcpArriveAsFramesOfTheMtuWithRightChecksums) {
  auto wire = OpenWire(/*ring_bytes=*/64 << 20);
  WireRule tcp{.dont_trap = true, .protocol = IPPROTO_TCP, .dst_port = 6000};
  ASSERT_EQ(wire->AddRule(tcp), absl::OkStatus());
  constexpr size_t kBytes = 5'000'000;
  TransferTcp(6000, kBytes);
  Drain(*wire);
  size_t payload = 0;
  size_t full = 0;
  for (const auto& entry : received_.entries) {
    const auto facts = Inspect(entry.bytes);
    ASSERT_TRUE(facts.has_value());
    EXPECT_TRUE(facts->ip_checksum_right && facts->l4_checksum_right);
    EXPECT_LE(facts->ip_bytes, 1500u);
    EXPECT_EQ(entry.bytes.size(), 14 + facts->ip_bytes);
    payload += facts->payload_bytes;
    full += facts->ip_bytes == 1500;
  }
  EXPECT_GE(payload, kBytes) << "every byte was seen, some perhaps again";
  EXPECT_GE(full, kBytes / 1448 / 2) << "super-frames were cut at the MSS";
  EXPECT_EQ(CountOf(*wire, "rx_dropped_ring"), 0u);
  EXPECT_EQ(CountOf(*wire, "rx_dropped_length"), 0u);
}

TEST_F(NetifTest, UdpSuperFrameIsCutIntoDatagrams) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  SendSegmentedFromPeer(5000, /*segment_bytes=*/1000, /*total_bytes=*/10500);
  ASSERT_EQ(Drain(*wire), 11);
  for (size_t i = 0; i < 11; ++i) {
    const auto facts = Inspect(received_.entries[i].bytes);
    ASSERT_TRUE(facts.has_value());
    EXPECT_EQ(facts->payload_bytes, i < 10 ? 1000u : 500u);
    EXPECT_TRUE(facts->ip_checksum_right && facts->l4_checksum_right);
  }
}

TEST_F(NetifTest, WrongChecksumArrivesWrong) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  UdpFrame frame = FrameToHost(5000);
  frame.spoil_checksum = true;
  SendRawFromPeer(Encode(frame));
  ASSERT_EQ(Drain(*wire), 1);
  EXPECT_EQ(received_.entries[0].bytes, Encode(frame));
  EXPECT_FALSE(Inspect(received_.entries[0].bytes)->l4_checksum_right);
}

TEST_F(NetifTest, VlanTagArrivesInPlaceAndRulesTellTaggedFromUntagged) {
  auto wire = OpenWire();
  WireRule rule = PortRule(5000);
  UdpFrame untagged = FrameToHost(5000);
  UdpFrame tagged = untagged;
  tagged.vlan = 7;
  const auto send_both_and_drain = [&] {
    received_.entries.clear();
    SendRawFromPeer(Encode(untagged));
    SendRawFromPeer(Encode(tagged));
    return Drain(*wire);
  };

  rule.vlan = 7;
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  ASSERT_EQ(send_both_and_drain(), 1);
  EXPECT_EQ(received_.entries[0].bytes, Encode(tagged));
  ASSERT_EQ(wire->RemoveRule(rule), absl::OkStatus());

  rule.vlan = 8;
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  EXPECT_EQ(send_both_and_drain(), 0);
  ASSERT_EQ(wire->RemoveRule(rule), absl::OkStatus());

  rule.vlan = 0;
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  ASSERT_EQ(send_both_and_drain(), 1);
  EXPECT_EQ(received_.entries[0].bytes, Encode(untagged));
  ASSERT_EQ(wire->RemoveRule(rule), absl::OkStatus());

  rule.vlan.reset();
  ASSERT_EQ(wire->AddRule(rule), absl::OkStatus());
  EXPECT_EQ(send_both_and_drain(), 2);
}

// Every kind of rule, against a frame that it must take and one that differs in just that field.
TEST_F(NetifTest, EveryFieldOfARuleIsCompared) {
  auto wire = OpenWire();
  const UdpFrame good = FrameToHost(5000);
  MacAddress multicast{0x01, 0, 0x5e, 1, 2, 3};
  UdpFrame to_group = good;
  to_group.dst_mac = multicast;
  UdpFrame other_mac = good;
  other_mac.dst_mac[5] ^= 0x10;
  UdpFrame other_src_mac = good;
  other_src_mac.src_mac[5] ^= 0x10;
  UdpFrame other_dst_ip = good;
  other_dst_ip.dst_ip ^= 0x100;
  UdpFrame other_src_ip = good;
  other_src_ip.src_ip ^= 0x100;
  UdpFrame other_src_port = good;
  other_src_port.src_port ^= 1;
  constexpr MacAddress kWhole{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  constexpr MacAddress kFirstFive{0xff, 0xff, 0xff, 0xff, 0xff, 0};

  struct Row {
    const char* name;
    WireRule rule;
    UdpFrame match;
    std::optional<UdpFrame> other;
  };
  const Row rows[] = {
      {"everything", {.everything = true}, other_mac, std::nullopt},
      {"no field set", {}, other_mac, std::nullopt},
      {"all multicast", {.all_multicast = true}, to_group, good},
      {"dst MAC", {.dst_mac = good.dst_mac, .dst_mac_mask = kWhole}, good, other_mac},
      {"dst MAC masked",
       {.dst_mac = good.dst_mac, .dst_mac_mask = kFirstFive},
       other_mac,
       to_group},
      {"src MAC", {.src_mac = good.src_mac, .src_mac_mask = kWhole}, good, other_src_mac},
      {"both MACs masked",
       {.dst_mac = good.dst_mac,
        .dst_mac_mask = kFirstFive,
        .src_mac = good.src_mac,
        .src_mac_mask = kFirstFive},
       other_src_mac,
       to_group},
      {"EtherType", {.ethertype = 0x0800}, good, std::nullopt},
      {"dst IP", {.dst_ip = good.dst_ip, .dst_ip_mask = ~0u}, good, other_dst_ip},
      {"src IP", {.src_ip = good.src_ip, .src_ip_mask = ~0u}, good, other_src_ip},
      {"IPs masked",
       {.src_ip = good.src_ip,
        .src_ip_mask = 0xffff0000,
        .dst_ip = good.dst_ip,
        .dst_ip_mask = 0xffffff00},
       other_src_ip,
       other_dst_ip},
      {"5-tuple",
       {.src_ip = good.src_ip,
        .src_ip_mask = ~0u,
        .dst_ip = good.dst_ip,
        .dst_ip_mask = ~0u,
        .protocol = IPPROTO_UDP,
        .src_port = good.src_port,
        .dst_port = good.dst_port},
       good,
       other_src_port},
      {"protocol", {.protocol = IPPROTO_UDP}, good, std::nullopt},
      {"EtherType, VLAN and MAC",
       {.dst_mac = good.dst_mac, .dst_mac_mask = kWhole, .ethertype = 0x0800, .vlan = 0},
       good,
       other_mac},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ASSERT_EQ(wire->AddRule(row.rule), absl::OkStatus());
    SendRawFromPeer(Encode(row.match));
    EXPECT_EQ(Drain(*wire), 1);
    if (row.other) SendRawFromPeer(Encode(*row.other));
    EXPECT_EQ(Drain(*wire), 0);
    ASSERT_EQ(wire->RemoveRule(row.rule), absl::OkStatus());
  }
}

TEST_F(NetifTest, ImpossibleRulesAreRefusedByName) {
  auto wire = OpenWire();
  const WireRule ports_of_nothing{.dst_port = 1};
  const WireRule ipv4_in_arp{.ethertype = 0x0806, .dst_ip = 1, .dst_ip_mask = ~0u};
  const WireRule vlan_above{.vlan = 4096};
  for (const WireRule& rule : {ports_of_nothing, ipv4_in_arp, vlan_above}) {
    EXPECT_EQ(wire->AddRule(rule).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(wire->RemoveRule(rule).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(NetifTest, RulesChangedUnderLoadLoseAndDoubleNothing) {
  auto wire = OpenWire(/*ring_bytes=*/64 << 20);
  const int kernel = HostSocket(5000);
  constexpr int kSent = 20000;
  std::vector<int> seen(kSent);
  std::atomic<bool> sending{true};
  std::thread sender([&] {
    for (int i = 0; i < kSent; ++i) {
      SendFromPeer(5000, i);
      // As often as the smallest socket buffer needs: the kernel is to lose nothing either.
      if (i % 64 == 0) CountNumbers(kernel, seen);
    }
    CountNumbers(kernel, seen);
    sending = false;
  });
  int changes = 0;
  for (; sending; ++changes) {
    EXPECT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
    EXPECT_EQ(wire->RemoveRule(PortRule(5000)), absl::OkStatus());
  }
  sender.join();
  const int by_device = Drain(*wire);
  for (const auto& entry : received_.entries) ++seen[DatagramNumber(entry.bytes)];
  for (int i = 0; i < kSent; ++i) ASSERT_EQ(seen[i], 1) << "datagram " << i;
  EXPECT_GT(changes, 1);
  EXPECT_GT(by_device, 0);
  EXPECT_LT(by_device, kSent);
}

TEST_F(NetifTest, JumboFramesPassAtTheGreatestMtuOfACard) {
  SetMtu(9978);
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  UdpFrame frame = FrameToHost(5000);
  frame.payload_bytes = 9978 - 28;
  SendRawFromPeer(Encode(frame));
  frame.vlan = 7;
  SendRawFromPeer(Encode(frame));
  ASSERT_EQ(Drain(*wire), 2);
  EXPECT_EQ(received_.entries[0].bytes.size(), 9992u);
  EXPECT_EQ(received_.entries[1].bytes, Encode(frame));
}

TEST_F(NetifTest, FramesAboveTheMtuAreDroppedAndCounted) {
  auto wire = OpenWire();
  SetMtu(1500);
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  UdpFrame frame = FrameToHost(5000);
  for (const size_t payload : {1500 - 28, 1500 - 28 + 1, 1500 - 28 + 4}) {
    frame.payload_bytes = payload;
    SendRawFromPeer(Encode(frame));
  }
  EXPECT_EQ(Drain(*wire), 1);
  EXPECT_EQ(CountOf(*wire, "rx_dropped_length"), 2u);
}

TEST_F(NetifTest, MtuIsTheInterfacesAsItIsNow) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  EXPECT_EQ(wire->mtu(), 1500u);
  SetMtu(9000);
  EXPECT_EQ(wire->mtu(), 9000u);
  UdpFrame frame = FrameToHost(5000);
  for (const size_t payload : {9000 - 28, 100, 9000 - 28 + 1, 9000 - 28, 4000}) {
    frame.payload_bytes = payload;
    frame.src_port = static_cast<uint16_t>(4000 + payload);
    SendRawFromPeer(Encode(frame));
  }
  ASSERT_EQ(Drain(*wire), 4);
  EXPECT_EQ(CountOf(*wire, "rx_dropped_length"), 1u);
  EXPECT_EQ(received_.entries[0].bytes.size(), 9014u);
  EXPECT_EQ(received_.entries[1].bytes.size(), 142u);
  EXPECT_EQ(received_.entries[2].bytes.size(), 9014u);
  EXPECT_EQ(received_.entries[3].bytes, Encode(frame));
  EXPECT_TRUE(wire->Arm());
  pollfd p{.fd = wire->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  SetMtu(1000);
  EXPECT_EQ(wire->mtu(), 1000u);
  for (const size_t payload : {1000 - 28, 1000 - 28 + 1}) {
    frame.payload_bytes = payload;
    SendRawFromPeer(Encode(frame));
  }
  EXPECT_EQ(Drain(*wire), 1);
  EXPECT_EQ(CountOf(*wire, "rx_dropped_length"), 2u);
  SetMtu(20'000);
  EXPECT_EQ(wire->mtu(), kMaxMtu);
}

TEST_F(NetifTest, LongFramesThatFindNoRoomAreCounted) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  SetMtu(9000);
  EXPECT_EQ(wire->mtu(), 9000u);
  UdpFrame frame = FrameToHost(5000);
  frame.payload_bytes = 8000;
  constexpr int kSent = 2000;
  for (int i = 0; i < kSent; ++i) SendRawFromPeer(Encode(frame));
  const int delivered = Drain(*wire);
  EXPECT_GT(delivered, 10);
  EXPECT_EQ(delivered + CountOf(*wire, "rx_dropped_ring"), kSent + 0u);
  SendRawFromPeer(Encode(frame));
  EXPECT_EQ(Drain(*wire), 1);
}

TEST_F(NetifTest, FullRingIsCountedAndTheRestDelivered) {
  auto wire = OpenWire(/*ring_bytes=*/256 << 10);
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  constexpr int kSent = 1000;
  for (int i = 0; i < kSent; ++i) SendFromPeer(5000, i);
  const int delivered = Drain(*wire);
  EXPECT_GT(delivered, 100);
  EXPECT_EQ(delivered + CountOf(*wire, "rx_dropped_ring"), kSent + 0u);
  EXPECT_EQ(delivered + CountOf(*wire, "rx_dropped_ring"), kSent + 0u)
      << "asked twice, same answer";
  SendFromPeer(5000);
  EXPECT_EQ(Drain(*wire), 1);
}

TEST_F(NetifTest, DescriptorIsReadableWhileFramesWait) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  pollfd p{.fd = wire->fd(), .events = POLLIN, .revents = 0};
  EXPECT_TRUE(wire->Arm());
  EXPECT_EQ(poll(&p, 1, 0), 0);
  SendFromPeer(5000);
  EXPECT_EQ(poll(&p, 1, 0), 1);
  EXPECT_FALSE(wire->Arm());
  Drain(*wire);
  EXPECT_TRUE(wire->Arm());
  EXPECT_EQ(poll(&p, 1, 0), 0);
}

TEST_F(NetifTest, ArrivalIsStampedByTheKernelInRealTime) {
  auto wire = OpenWire();
  ASSERT_EQ(wire->AddRule(PortRule(5000)), absl::OkStatus());
  const int64_t before = RealTimeNs();
  SendFromPeer(5000);
  const int64_t after = RealTimeNs();
  ASSERT_EQ(Drain(*wire), 1);
  EXPECT_GE(received_.entries[0].time_ns, before);
  EXPECT_LE(received_.entries[0].time_ns, after);
}

TEST_F(NetifTest, TransmittedFramesReachThePeersKernelInOrder) {
  auto wire = OpenWire();
  const int peer = PeerSocket(5000);
  UdpFrame frame = FrameToPeer(5000);
  for (int i = 0; i < 100; ++i) {
    frame.payload_bytes = i;
    EXPECT_TRUE(wire->Transmit(Encode(frame), 0));
  }
  wire->Flush();
  uint8_t bytes[200];
  for (int i = 0; i < 100; ++i) EXPECT_EQ(recv(peer, bytes, sizeof bytes, MSG_DONTWAIT), i);
  EXPECT_EQ(CountOf(*wire, "tx_frames"), 100u);
}

TEST_F(NetifTest, TransmitCountsWhatTheInterfaceRefusesAndSendsTheRest) {
  auto wire = OpenWire();
  const int peer = PeerSocket(5000);
  UdpFrame frame = FrameToPeer(5000);
  UdpFrame long_frame = frame;
  long_frame.payload_bytes = 3000;
  EXPECT_FALSE(wire->Transmit(std::vector<uint8_t>(10), 0));
  wire->Transmit(Encode(frame), 0);
  wire->Transmit(Encode(long_frame), 0);
  wire->Transmit(Encode(frame), 0);
  wire->Flush();
  EXPECT_EQ(CountDatagrams(peer), 2);
  EXPECT_EQ(CountOf(*wire, "tx_dropped_length"), 2u);

  EXPECT_TRUE(wire->up());
  SetHostUp(false);
  EXPECT_FALSE(wire->up());
  wire->Transmit(Encode(frame), 0);
  wire->Flush();
  EXPECT_EQ(CountOf(*wire, "tx_dropped_down"), 1u);
}

TEST_F(NetifTest, OpenNamesAnInterfaceThatIsNotThere) {
  net::Namespace::Inside inside(*host_);
  const auto wire = NetworkInterface::Open({.interface = "nowhere"});
  EXPECT_EQ(wire.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(wire.status().message()).find("nowhere"), std::string::npos);
  EXPECT_EQ(NetworkInterface::Open({.interface = "a\"b"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::connectx
