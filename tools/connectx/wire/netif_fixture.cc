// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/netif_fixture.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace xtreme::connectx {
namespace {

sockaddr_in At(uint32_t ip, uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(ip);
  at.sin_port = htons(port);
  return at;
}

const sockaddr* Plain(const sockaddr_in& at) { return reinterpret_cast<const sockaddr*>(&at); }

}  // namespace

void NetifTest::SetUp() {
  for (auto* space : {&host_, &peer_}) {
    auto made = net::Namespace::Create();
    ASSERT_TRUE(made.ok()) << made.status();
    *space = std::move(*made);
  }
  ASSERT_EQ(net::ConnectByVeth(*host_, "nic", *peer_, "peer"), absl::OkStatus());
  ASSERT_EQ(host_->AddAddress("nic", "10.1.0.1/24"), absl::OkStatus());
  ASSERT_EQ(peer_->AddAddress("peer", "10.1.0.2/24"), absl::OkStatus());
  host_mac_ = *host_->MacOf("nic");
  peer_mac_ = *peer_->MacOf("peer");
  // No ARP: a test's first datagram is not to wait for one.
  ASSERT_EQ(host_->AddNeighbour("nic", "10.1.0.2", peer_mac_), absl::OkStatus());
  ASSERT_EQ(peer_->AddNeighbour("peer", "10.1.0.1", host_mac_), absl::OkStatus());
  peer_udp_ = Socket(*peer_, AF_INET, SOCK_DGRAM, 0);
  peer_raw_ = Socket(*peer_, AF_PACKET, SOCK_RAW, 0);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = *peer_->IndexOf("peer");
  ASSERT_EQ(bind(peer_raw_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

void NetifTest::TearDown() {
  for (const int socket : sockets_) close(socket);
}

std::unique_ptr<NetworkInterface> NetifTest::OpenWire(size_t ring_bytes) {
  net::Namespace::Inside inside(*host_);
  auto wire = NetworkInterface::Open({.interface = "nic", .ring_bytes = ring_bytes});
  if (wire.ok()) return std::move(*wire);
  ADD_FAILURE() << wire.status();
  return nullptr;
}

int NetifTest::Drain(Wire& wire) {
  int total = 0;
  while (const int n = wire.Receive(received_, 64, 0)) total += n;
  return total;
}

WireRule NetifTest::PortRule(uint16_t port) {
  return {.dst_ip = kHostIp, .dst_ip_mask = ~0u, .protocol = IPPROTO_UDP, .dst_port = port};
}

UdpFrame NetifTest::FrameToHost(uint16_t port) const {
  return {.dst_mac = host_mac_,
          .src_mac = peer_mac_,
          .src_ip = kPeerIp,
          .dst_ip = kHostIp,
          .src_port = 4000,
          .dst_port = port};
}

UdpFrame NetifTest::FrameToPeer(uint16_t port) const {
  return {.dst_mac = peer_mac_,
          .src_mac = host_mac_,
          .src_ip = kHostIp,
          .dst_ip = kPeerIp,
          .src_port = 4000,
          .dst_port = port};
}

int NetifTest::Socket(const net::Namespace& space, int domain, int type, int protocol) {
  net::Namespace::Inside inside(space);
  const int fd = socket(domain, type | SOCK_CLOEXEC, protocol);
  EXPECT_GE(fd, 0) << std::strerror(errno);
  sockets_.push_back(fd);
  return fd;
}

int NetifTest::BoundSocket(const net::Namespace& space, uint32_t ip, uint16_t port) {
  const int fd = Socket(space, AF_INET, SOCK_DGRAM, 0);
  const sockaddr_in at = At(ip, port);
  EXPECT_EQ(bind(fd, Plain(at), sizeof at), 0) << std::strerror(errno);
  return fd;
}

int NetifTest::HostSocket(uint16_t port) { return BoundSocket(*host_, kHostIp, port); }

int NetifTest::PeerSocket(uint16_t port) { return BoundSocket(*peer_, kPeerIp, port); }

int NetifTest::CountDatagrams(int socket) {
  uint8_t bytes[2048];
  int count = 0;
  while (recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) ++count;
  return count;
}

void NetifTest::CountNumbers(int socket, std::vector<int>& seen) {
  int number = 0;
  while (recv(socket, &number, sizeof number, MSG_DONTWAIT) == sizeof number) ++seen.at(number);
}

int NetifTest::DatagramNumber(std::span<const uint8_t> frame) {
  int number = 0;
  std::memcpy(&number, &frame[14 + 20 + 8], sizeof number);
  return number;
}

void NetifTest::SendFromPeer(uint16_t port, int number) {
  const sockaddr_in at = At(kHostIp, port);
  EXPECT_EQ(sendto(peer_udp_, &number, sizeof number, 0, Plain(at), sizeof at),
            static_cast<ssize_t>(sizeof number));
}

void NetifTest::SendSegmentedFromPeer(uint16_t port, uint16_t segment_bytes, size_t total_bytes) {
  const int fd = Socket(*peer_, AF_INET, SOCK_DGRAM, 0);
  const int segment = segment_bytes;
  ASSERT_EQ(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
  const std::vector<uint8_t> bytes(total_bytes, 0x5A);
  const sockaddr_in at = At(kHostIp, port);
  EXPECT_EQ(sendto(fd, bytes.data(), bytes.size(), 0, Plain(at), sizeof at),
            static_cast<ssize_t>(bytes.size()));
}

void NetifTest::SendRawFromPeer(const std::vector<uint8_t>& frame) {
  EXPECT_EQ(send(peer_raw_, frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()))
      << std::strerror(errno);
}

void NetifTest::TransferTcp(uint16_t port, size_t bytes) {
  const int listener = Socket(*host_, AF_INET, SOCK_STREAM, 0);
  const sockaddr_in at = At(kHostIp, port);
  ASSERT_EQ(bind(listener, Plain(at), sizeof at), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  const int sender = Socket(*peer_, AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(sender, Plain(at), sizeof at), 0);
  const int receiver = accept(listener, nullptr, nullptr);
  ASSERT_GE(receiver, 0);
  std::thread feeding([&] {
    const std::vector<uint8_t> block(100'000, 0x5A);
    for (size_t sent = 0; sent < bytes;) {
      const ssize_t n = send(sender, block.data(), std::min(block.size(), bytes - sent), 0);
      if (n <= 0) break;
      sent += n;
    }
    shutdown(sender, SHUT_WR);
  });
  std::vector<uint8_t> sink(1 << 20);
  size_t got = 0;
  for (ssize_t n; (n = recv(receiver, sink.data(), sink.size(), 0)) > 0;) got += n;
  feeding.join();
  close(receiver);
  EXPECT_EQ(got, bytes);
}

void NetifTest::SetMtu(uint32_t mtu_bytes) {
  ASSERT_EQ(host_->SetMtu("nic", mtu_bytes), absl::OkStatus());
  ASSERT_EQ(peer_->SetMtu("peer", mtu_bytes + uint32_t{kVlanTagBytes}), absl::OkStatus());
}

void NetifTest::SetHostUp(bool up) { ASSERT_EQ(host_->SetUp("nic", up), absl::OkStatus()); }

int64_t NetifTest::RealTimeNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace xtreme::connectx
