// SPDX-License-Identifier: Apache-2.0
//
// A software ConnectX whose port is a network interface: a program's verbs on one side, the
// kernel's sockets in another namespace on the other.

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/netif.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kPort = 26477;

class InterfaceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto here = net::Namespace::Create();
    auto there = net::Namespace::Create();
    ASSERT_TRUE(here.ok() && there.ok()) << here.status() << there.status();
    here_ = *std::move(here);
    there_ = *std::move(there);
    ASSERT_TRUE(net::ConnectByVeth(*here_, "ours", *there_, "theirs").ok());
    ASSERT_TRUE(here_->SetMac("ours", kMacB).ok());
    ASSERT_TRUE(there_->SetMac("theirs", kMacA).ok());
    ASSERT_TRUE(there_->AddAddress("theirs", "10.0.0.1/24").ok());
    ASSERT_TRUE(there_->AddNeighbour("theirs", "10.0.0.2", kMacB).ok());
    const net::Namespace::Inside inside(*here_);
    auto wire = NetworkInterface::Open({.interface = "ours"});
    ASSERT_TRUE(wire.ok()) << wire.status();
    wire_ = *std::move(wire);
    auto connectx = SoftwareConnectX::Create(
        {.ports = {{.device = {.name = "mlx5_0", .mac = kMacB},
                    .interface = "ours",
                    .wire = wire_.get()}}});
    ASSERT_TRUE(connectx.ok()) << connectx.status();
    connectx_ = *std::move(connectx);
  }

  std::unique_ptr<net::Namespace> here_;
  std::unique_ptr<net::Namespace> there_;
  std::unique_ptr<NetworkInterface> wire_;
  std::unique_ptr<SoftwareConnectX> connectx_;
};

TEST_F(InterfaceTest, DeviceIsFoundByTheIndexOfItsInterface) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  const auto index = here_->IndexOf("ours");
  ASSERT_TRUE(index.ok());
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(entry.ndev_ifindex, static_cast<uint32_t>(*index));
  std::ifstream file(std::string(context->device->ibdev_path) + "/device/net/ours/ifindex");
  int in_sysfs = 0;
  file >> in_sysfs;
  EXPECT_EQ(in_sysfs, *index);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(InterfaceTest, DatagramOfAKernelSocketWakesTheProgramWithAGoodChecksum) {
  Endpoint endpoint("mlx5_0", {.completion_channel = true});
  ibv_flow* flow = endpoint.Listen(kPort, 9);
  ASSERT_NE(flow, nullptr);
  endpoint.PostReceive(0);
  ASSERT_EQ(ibv_req_notify_cq(endpoint.receive_cq(), 0), 0);
  {
    const net::Namespace::Inside inside(*there_);
    const int sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to{.sin_family = AF_INET,
                         .sin_port = htons(kPort),
                         .sin_addr = {.s_addr = htonl(kIpB)}};
    EXPECT_EQ(::sendto(sender, "from a socket", 13, 0, reinterpret_cast<const sockaddr*>(&to),
                       sizeof(to)),
              13);
    ::close(sender);
  }
  pollfd channel{.fd = endpoint.channel()->fd, .events = POLLIN};
  ASSERT_EQ(::poll(&channel, 1, 20'000), 1);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(ibv_get_cq_event(endpoint.channel(), &cq, &cookie), 0);
  ibv_ack_cq_events(cq, 1);
  const ibv_wc got = Endpoint::Poll(endpoint.receive_cq());
  ASSERT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_NE(got.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  const auto payload = endpoint.received(0, kUdpHeadersBytes + 13).subspan(kUdpHeadersBytes);
  EXPECT_EQ(std::string(payload.begin(), payload.end()), "from a socket");
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(InterfaceTest, PortFollowsTheMtuOfItsInterface) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  ASSERT_TRUE(here_->SetMtu("ours", 9000).ok());
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace xtreme::connectx
