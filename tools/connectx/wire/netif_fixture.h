// SPDX-License-Identifier: Apache-2.0
//
// Two network namespaces for tests of the network interface: `host_` has the interface "nic" that a
// wire opens, `peer_` has the other end of its cable and a kernel that sends.
//
// Delivery over veth is synchronous: when a send returned, the frame is where it belongs.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_NETIF_FIXTURE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_NETIF_FIXTURE_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/net/namespace.h"
#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/ip_frame.h"
#include "tools/connectx/wire/netif.h"

namespace xtreme::connectx {

class NetifTest : public testing::Test {
 protected:
  static constexpr uint32_t kHostIp = 0x0a010001;  // 10.1.0.1
  static constexpr uint32_t kPeerIp = 0x0a010002;

  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<NetworkInterface> OpenWire(size_t ring_bytes = 4 << 20);
  // Receives all that waits, into received_ too; returns how many frames.
  int Drain(Wire& wire);

  // UDP datagrams to a port of the host, from any port.
  static WireRule PortRule(uint16_t port);
  UdpFrame FrameToHost(uint16_t port) const;
  UdpFrame FrameToPeer(uint16_t port) const;

  // A kernel socket bound to the port; closed at the end.
  int HostSocket(uint16_t port);
  int PeerSocket(uint16_t port);
  // How many datagrams wait at a kernel socket; takes them.
  static int CountDatagrams(int socket);
  // Takes the datagrams of SendFromPeer that wait at a kernel socket: ++seen[number].
  static void CountNumbers(int socket, std::vector<int>& seen);
  static int DatagramNumber(std::span<const uint8_t> frame);

  // The peer's kernel sends a datagram that carries `number`.
  void SendFromPeer(uint16_t port, int number = 0);
  // The peer's kernel sends `total_bytes` as one super-frame of datagrams.
  void SendSegmentedFromPeer(uint16_t port, uint16_t segment_bytes, size_t total_bytes);
  void SendRawFromPeer(const std::vector<uint8_t>& frame);
  // The peer's kernel sends so many bytes to the host's kernel over TCP.
  void TransferTcp(uint16_t port, size_t bytes);

  // The peer's is longer by as much as a veth lets pass, the room for a tag.
  void SetMtu(uint32_t mtu_bytes);
  void SetHostUp(bool up);
  static int64_t RealTimeNs();

  std::unique_ptr<net::Namespace> host_;
  std::unique_ptr<net::Namespace> peer_;
  MacAddress host_mac_{};
  MacAddress peer_mac_{};
  FrameList received_;

 private:
  int Socket(const net::Namespace& space, int domain, int type, int protocol);
  int BoundSocket(const net::Namespace& space, uint32_t ip, uint16_t port);

  std::vector<int> sockets_;
  int peer_udp_ = -1;
  int peer_raw_ = -1;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_NETIF_FIXTURE_H_
