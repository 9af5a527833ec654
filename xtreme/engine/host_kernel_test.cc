// SPDX-License-Identifier: Apache-2.0
//
// The engine beside a real kernel, in network namespaces of its own; the NIC is in memory.

#include "xtreme/engine/host_kernel.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/arp.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ethernet.h"
#include "tests/net/kernel_state.h"
#include "tests/net/namespace.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/testing/two_hosts_testing.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

using net::Namespace;
using testing::MemoryNic;

class HostKernelTest : public testing::TwoHostsTest {
 protected:
  void SetUp() override {
    TwoHostsTest::SetUp();
    auto engine = testing::MakeEngineBesideKernel(&nic_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    OpenRing(Fragments::kKernel);
  }

  void OpenRing(Fragments fragments) {
    RingOptions ring_options;
    ring_options.rx_buffers = 2048;
    ring_options.fragments = fragments;
    ring_options.hugepages = Hugepages::kNever;
    ring_options.interface_name = "xt0";
    auto ring = Ring::Open(engine_.get(), ring_options);
    ASSERT_TRUE(ring.ok()) << ring.status();
    ring_ = *std::move(ring);
    ASSERT_TRUE(ring_->Start().ok());
  }

  void TearDown() override {
    ring_.reset();
    engine_.reset();
    TwoHostsTest::TearDown();
  }

  // Polls until there is a completion of `kind`.
  Completion Await(Kind kind) {
    Completion completion;
    for (;;) {
      engine_->control().RunAndWait([] {});
      while (ring_->Poll(&completion, 1, sizeof(completion)) == 1) {
        if (completion.kind == kind) return completion;
      }
    }
  }

  Handle Open(uint16_t port) {
    Handle handle = 0;
    EXPECT_TRUE(
        ring_->udp().Open({.local = {wire::Ipv4Address(10, 0, 0, 1), port}}, &handle).ok());
    EXPECT_EQ(Await(Kind::kOpDone).status, 0);
    return handle;
  }

  // Puts a frame on the wire of xt0. Its sender is the NIC in memory: the reply comes to us because
  // the address the peer answers to is xt0's own.
  bool Transmit(std::vector<uint8_t> frame) {
    const auto mac = ours_->MacOf("xt0");
    if (!mac.ok()) return false;
    std::copy(mac->begin(), mac->end(), frame.begin() + 6);
    std::copy(mac->begin(), mac->end(), frame.begin() + 22);
    return TransmitAsIs(frame);
  }
  bool TransmitAsIs(const std::vector<uint8_t>& frame) {
    return TransmitBy(*ours_->IndexOf("xt0"), frame);
  }
  static bool TransmitBy(uint32_t ifindex, const std::vector<uint8_t>& frame) {
    const int fd = socket(AF_PACKET, SOCK_RAW, 0);
    sockaddr_ll to{.sll_family = AF_PACKET, .sll_ifindex = static_cast<int>(ifindex)};
    const ssize_t sent = sendto(fd, frame.data(), frame.size(), 0,
                                reinterpret_cast<sockaddr*>(&to), sizeof(to));
    close(fd);
    return sent == static_cast<ssize_t>(frame.size());
  }

  // The peer says so often where 10.0.0.77 is.
  void Announce(uint32_t times) {
    const Namespace::Inside theirs(*theirs_);
    constexpr wire::MacAddress kMac{{2, 0, 0, 0, 0, 0x77}};
    constexpr wire::Ipv4Address kAddress(10, 0, 0, 77);
    std::vector<uint8_t> frame(64);
    const size_t header = wire::EthernetRepr{.destination = wire::MacAddress::Broadcast(),
                                             .source = kMac,
                                             .ether_type = wire::kEtherTypeArp}
                              .Emit(frame);
    wire::ArpRepr{.sender_mac = kMac, .sender = kAddress, .target = kAddress}.Emit(
        std::span(frame).subspan(header));
    for (; times > 0; --times) ASSERT_TRUE(TransmitBy(*theirs_->IndexOf("peer"), frame));
  }

  MemoryNic* nic_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Ring> ring_;
};

TEST_F(HostKernelTest, APortIsTheKernelsToo) {
  Open(7000);
  EXPECT_EQ(net::UdpBindError(7000), EADDRINUSE);
  EXPECT_EQ(net::UdpBindError(7001), 0);
  ring_.reset();
  engine_->control().RunAndWait([] {});
  EXPECT_EQ(net::UdpBindError(7000), 0);
}

TEST_F(HostKernelTest, AMembershipIsTheKernelsToo) {
  const Handle socket = Open(7000);
  const wire::Endpoint group{wire::Ipv4Address(239, 1, 2, 3), 0};
  EXPECT_FALSE(net::IsGroupMember("239.1.2.3"));
  ASSERT_TRUE(ring_->udp().Join(socket, group, std::nullopt, 0, 1).ok());
  EXPECT_EQ(Await(Kind::kOpDone).status, 0);
  EXPECT_TRUE(net::IsGroupMember("239.1.2.3"));
  ASSERT_TRUE(ring_->udp().Leave(socket, group, std::nullopt, 2).ok());
  EXPECT_EQ(Await(Kind::kOpDone).cookie, 2u);
  EXPECT_FALSE(net::IsGroupMember("239.1.2.3"));
}

TEST_F(HostKernelTest, WhatTheKernelReassembledComesBySlowPath) {
  const Handle socket = Open(7000);
  const std::string large(4'000, 'L');
  {
    const Namespace::Inside theirs(*theirs_);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, "10.0.0.1", &to.sin_addr);
    ASSERT_EQ(sendto(fd, large.data(), large.size(), 0, reinterpret_cast<sockaddr*>(&to),
                     sizeof(to)),
              4'000);
    close(fd);
  }
  const Completion packet = Await(Kind::kPacket);
  EXPECT_EQ(packet.socket, socket);
  EXPECT_EQ(packet.length, 4'000u);
  EXPECT_EQ(packet.flags, kSlowPath | kChained);
  EXPECT_EQ(packet.source_ip[15], 2);
  EXPECT_EQ(packet.destination_ip[15], 1);
  EXPECT_EQ(packet.destination_port, 7000);
  packet::BufferPool::ReleaseChain(packet.buffer);
}

TEST_F(HostKernelTest, GroupDatagramsInFragmentsComeBySlowPathAndWholeOnesDoNot) {
  Handle handle = 0;
  ASSERT_TRUE(ring_->udp().Open({.local = {{}, 7000}}, &handle).ok());
  EXPECT_EQ(Await(Kind::kOpDone).status, 0);
  const wire::Endpoint group{wire::Ipv4Address(239, 1, 2, 3), 0};
  ASSERT_TRUE(ring_->udp().Join(handle, group, std::nullopt, 0, 1).ok());
  EXPECT_EQ(Await(Kind::kOpDone).status, 0);
  ASSERT_TRUE(theirs_->AddRoute("224.0.0.0/4", "peer").ok());
  {
    const Namespace::Inside theirs(*theirs_);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, "239.1.2.3", &to.sin_addr);
    for (const size_t size : {size_t{100}, size_t{4'000}, size_t{200}, size_t{5'000}}) {
      const std::string payload(size, 'G');
      ASSERT_EQ(sendto(fd, payload.data(), size, 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
                static_cast<ssize_t>(size));
    }
    close(fd);
  }
  for (const uint32_t size : {4'000u, 5'000u}) {
    const Completion packet = Await(Kind::kPacket);
    EXPECT_EQ(packet.socket, handle);
    EXPECT_EQ(packet.length, size);
    EXPECT_EQ(packet.flags, kSlowPath | kChained | kMulticast);
    EXPECT_EQ(packet.destination_ip[12], 239);
    packet::BufferPool::ReleaseChain(packet.buffer);
  }
}

TEST_F(HostKernelTest, WhatTheKernelDropsAtTheSocketBehindAPortIsCounted) {
  Open(7000);
  std::promise<void> may_go_on;
  engine_->control().Start(MakeOperation([&] { may_go_on.get_future().wait(); }));
  {
    const Namespace::Inside theirs(*theirs_);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, "10.0.0.1", &to.sin_addr);
    const std::string payload(8'000, 'o');  // Far more than its buffer of 200 KB takes.
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(sendto(fd, payload.data(), payload.size(), 0, reinterpret_cast<sockaddr*>(&to),
                       sizeof(to)),
                8'000);
    }
    close(fd);
  }
  may_go_on.set_value();
  // The drops are looked for now and then: that may be before what the kernel kept is read.
  uint32_t packets = 0, dropped = 0;
  Completion completion;
  for (int i = 0; i < 10'000 && packets + dropped < 200; ++i) {
    engine_->control().RunAndWait([] {});
    while (ring_->Poll(&completion, 1, sizeof(completion)) == 1) {
      if (completion.kind == Kind::kRing) {
        ASSERT_EQ(completion.event, RingEvent::kDropped);
        dropped += completion.count;
        continue;
      }
      ++packets;
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
  }
  EXPECT_EQ(packets + dropped, 200u);
  EXPECT_NE(dropped, 0u);
  EXPECT_NE(packets, 0u);
}

// The peer has nobody at port 9 and says so; the NIC in memory has no wire, so the datagram is put
// on xt0 here.
TEST_F(HostKernelTest, IcmpErrorsAreToldWhoeverReassembles) {
  for (const Fragments fragments : {Fragments::kKernel, Fragments::kOwn}) {
    ring_.reset();
    OpenRing(fragments);
    const Handle socket = Open(7000);
    const wire::Endpoint nobody{wire::Ipv4Address(10, 0, 0, 2), 9};
    const wire::MacAddress peer(*theirs_->MacOf("peer"));
    ASSERT_TRUE(ours_->AddNeighbour("xt0", "10.0.0.2", peer.bytes()).ok());
    const uint8_t byte = 'x';
    Completion completion;
    while (ring_->udp().SendTo(ring_->udp().Find(socket), nobody, {.data = &byte, .length = 1},
                               {.flags = kNowOrFail}) != SendResult::kSent) {
      ring_->Poll(&completion, 1, sizeof(completion));
    }
    std::vector<uint8_t> frame = nic_->queue(nic_->queues() - 1)->sent().back().bytes;
    const std::span<uint8_t> ip = std::span(frame).subspan(wire::kEthernetHeaderBytes, 20);
    base::StoreBe16(&ip[10], wire::Checksum(ip));
    ASSERT_TRUE(TransmitAsIs(frame));
    const Completion error = Await(Kind::kError);
    EXPECT_EQ(error.socket, socket);
    EXPECT_EQ(error.status, ECONNREFUSED);
    EXPECT_EQ(error.destination_port, 9);
  }
}

TEST_F(HostKernelTest, AnInterfaceSetDownAndTakenAwayIsToldByTheKernel) {
  const auto await_ring = [this] {
    return Await(Kind::kRing).event;
  };
  ASSERT_TRUE(ours_->SetUp("xt0", false).ok());
  EXPECT_EQ(await_ring(), RingEvent::kLinkDown);
  ASSERT_TRUE(ours_->SetUp("xt0", true).ok());
  EXPECT_EQ(await_ring(), RingEvent::kLinkUp);
  ASSERT_TRUE(ours_->RemoveInterface("xt0").ok());
  RingEvent last = await_ring();
  while (last == RingEvent::kLinkDown) last = await_ring();
  EXPECT_EQ(last, RingEvent::kRemoved);
}

TEST_F(HostKernelTest, ANeighbourTheKernelLearnsIsUsedByOpenSockets) {
  const Handle socket = Open(7000);
  const wire::Endpoint stranger{wire::Ipv4Address(10, 0, 0, 77), 9};
  const uint8_t byte = 'x';
  const auto send = [&](uint32_t flags) {
    return ring_->udp().SendTo(ring_->udp().Find(socket), stranger, {.data = &byte, .length = 1},
                               {.flags = flags});
  };
  EXPECT_EQ(send(kNowOrFail), SendResult::kRefusedNeighbour);
  ASSERT_TRUE(ours_->AddNeighbour("xt0", "10.0.0.77", {2, 0, 0, 0, 0, 0x77}).ok());
  SendResult result;
  Completion completion;
  while ((result = send(kNowOrFail)) == SendResult::kRefusedNeighbour) {
    ring_->Poll(&completion, 1, sizeof(completion));
  }
  EXPECT_EQ(result, SendResult::kSent);
  EXPECT_EQ(nic_->queue(0)->sent().back().bytes[5], 0x77);
}

// What live rtnetlink changes under open sockets: the MAC that the next send goes to.
class ChangedRouteTest : public HostKernelTest {
 protected:
  static constexpr wire::Endpoint kFar{wire::Ipv4Address(192, 168, 9, 9), 9};

  void SetUp() override {
    HostKernelTest::SetUp();
    for (const uint8_t host : {0xA1, 0xA2}) {
      const std::string address = "10.0.0." + std::to_string(host);
      ASSERT_TRUE(ours_->AddNeighbour("xt0", address, {2, 0, 0, 0, 0, host}).ok());
    }
    ASSERT_TRUE(ours_->AddRoute("192.168.0.0/16", "xt0", "10.0.0.161").ok());
    socket_ = Open(7000);
    // Both a connected flow and one that is remembered.
    while (LastByte() != 0xA1) Follow();
    ASSERT_TRUE(ring_->udp().Connect(socket_, kFar, 1).ok());
    EXPECT_EQ(Await(Kind::kOpDone).status, 0);
  }

  void Follow() {
    Completion completion;
    engine_->control().RunAndWait([] {});
    ring_->Poll(&completion, 1, sizeof(completion));
  }
  SendResult SendFar(bool connected) {
    const uint8_t byte = 'x';
    const Payload payload{.data = &byte, .length = 1};
    UdpSocket* socket = ring_->udp().Find(socket_);
    const SendOptions now{.flags = kNowOrFail};
    return connected ? ring_->udp().Send(socket, payload, now)
                     : ring_->udp().SendTo(socket, kFar, payload, now);
  }
  // Of the MAC a send goes to, -1 when it is refused.
  int LastByte(bool connected = false) {
    if (SendFar(connected) != SendResult::kSent) return -1;
    return nic_->queue(0)->sent().back().bytes[5];
  }
  void ExpectBoth(int last_byte) {
    while (LastByte() != last_byte) Follow();
    EXPECT_EQ(LastByte(/*connected=*/true), last_byte);
  }

  Handle socket_ = 0;
};

TEST_F(ChangedRouteTest, AChangedGatewayTakesEffectOnOpenSockets) {
  ASSERT_TRUE(ours_->ReplaceRoute("192.168.0.0/16", "xt0", "10.0.0.162").ok());
  ExpectBoth(0xA2);
}

TEST_F(ChangedRouteTest, AMoreSpecificRouteTakesEffectOnOpenSockets) {
  ASSERT_TRUE(ours_->AddRoute("192.168.9.0/24", "xt0", "10.0.0.162").ok());
  ExpectBoth(0xA2);
  ASSERT_TRUE(ours_->RemoveRoute("192.168.9.0/24", "xt0").ok());
  ExpectBoth(0xA1);
}

TEST_F(ChangedRouteTest, ARouteThatIsGoneRefusesSendsOfOpenSockets) {
  ASSERT_TRUE(ours_->RemoveRoute("192.168.0.0/16", "xt0").ok());
  while (SendFar(false) != SendResult::kRefusedRoute) Follow();
  EXPECT_EQ(SendFar(true), SendResult::kRefusedRoute);
}

TEST_F(ChangedRouteTest, ARouteByAnotherInterfaceRefusesSendsOfOpenSockets) {
  ASSERT_TRUE(ConnectByVeth(*ours_, "xt1", *theirs_, "peer1").ok());
  ASSERT_TRUE(ours_->AddAddress("xt1", "10.1.0.1/24").ok());
  ASSERT_TRUE(ours_->ReplaceRoute("192.168.0.0/16", "xt1", "10.1.0.2").ok());
  while (SendFar(false) != SendResult::kRefusedRoute) Follow();
  EXPECT_EQ(SendFar(true), SendResult::kRefusedRoute);
}

TEST_F(ChangedRouteTest, AChangedNeighbourTakesEffectOnOpenSockets) {
  ASSERT_TRUE(ours_->AddNeighbour("xt0", "10.0.0.161", {2, 0, 0, 0, 0, 0xA9}).ok());
  ExpectBoth(0xA9);
}

// Whoever is on the link may send as many as it likes: what else the control thread has to do goes
// on between them.
TEST_F(HostKernelTest, AFloodOfAnnouncementsLeavesTheControlThreadToOthers) {
  constexpr uint32_t kAnnounced = 64;
  auto control = ControlThread::Create();
  ASSERT_TRUE(control.ok()) << control.status();
  auto kernel = HostKernel::Create();
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  uint32_t seen = 0;
  (*control)->RunAndWait([&] {
    KernelEvents events{.routes_changed = [] {},
                        .neighbour_seen = [&seen](auto...) { ++seen; },
                        .path_errors = [](auto...) {}};
    ASSERT_TRUE((*kernel)->Start(control->get(), std::move(events)).ok());
    ASSERT_TRUE((*kernel)->WatchNeighbours(*ours_->IndexOf("xt0")).ok());
  });
  std::promise<void> may_go_on;
  uint32_t seen_meanwhile = 0;
  // The second one runs behind the first turn of the fds that the first one holds up.
  (*control)->Start(MakeOperation([&] {
    may_go_on.get_future().wait();
    (*control)->StartNow(MakeOperation([&] { seen_meanwhile = seen; }));
  }));
  Announce(kAnnounced);
  may_go_on.set_value();
  for (uint32_t now = 0; now < kAnnounced;) {
    (*control)->RunAndWait([&] { now = seen; });
  }
  EXPECT_LT(seen_meanwhile, kAnnounced);
  (*control)->RunAndWait([&] { (*kernel)->Stop(); });
}

TEST_F(HostKernelTest, AnAnswerToOurOwnArpRequestIsSeen) {
  const Handle socket = Open(7000);
  const wire::Endpoint peer{wire::Ipv4Address(10, 0, 0, 2), 9};
  const uint8_t byte = 'x';
  ASSERT_EQ(ring_->udp().SendTo(ring_->udp().Find(socket), peer, {.data = &byte, .length = 1}, {}),
            SendResult::kQueued);
  // Our request left by the NIC in memory; carry it to the peer, whose kernel answers.
  const std::vector<uint8_t> request = nic_->queue(0)->sent().at(0).bytes;
  ASSERT_TRUE(Transmit(request));
  Completion completion;
  while (nic_->queue(0)->sent().size() < 2) {
    engine_->control().RunAndWait([] {});
    ring_->Poll(&completion, 1, sizeof(completion));
  }
  const auto mac = theirs_->MacOf("peer");
  ASSERT_TRUE(mac.ok());
  const std::vector<uint8_t>& sent = nic_->queue(0)->sent()[1].bytes;
  EXPECT_TRUE(std::equal(mac->begin(), mac->end(), sent.begin()));
}

}  // namespace
}  // namespace xtreme::engine
