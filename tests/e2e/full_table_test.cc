// SPDX-License-Identifier: Apache-2.0
//
// TCP on a device whose table of rules is full: it is refused, with the reason, and what stands
// already is let be. A rule that gave the kernel a copy would have it reset every connection.

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::e2e {
namespace {

using net::KernelTcp;

class FullTableTest : public testing::Test {
 protected:
  void Make(uint32_t flow_rules) {
    const absl::Status status = bed_.Make(/*seed=*/1, flow_rules);
    ASSERT_TRUE(status.ok()) << status;
    ring_ = bed_.OpenRing();
    ASSERT_NE(ring_, nullptr);
  }
  KernelTcp ConnectTo(uint16_t port) {
    const net::Namespace::Inside inside(bed_.kernel());
    return KernelTcp::Connect(TcpBed::kRingAddress, port);
  }
  // The next completion; its text lives until the one after it.
  xtreme_completion Next(int kind) { return Await(ring_->handle(), kind); }

  TcpBed bed_;
  std::unique_ptr<Ring> ring_;
};

TEST_F(FullTableTest, AListenerIsRefusedAndConnectionsOfTheOthersGoOn) {
  Make(/*flow_rules=*/1);
  auto first = ring_->ListenTcp({.local = ":7000"});
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_EQ(Next(XTREME_OP_DONE).status, 0);
  KernelTcp peer = ConnectTo(7000);
  const xtreme_completion accepted = Next(XTREME_ACCEPTED);
  auto second = ring_->ListenTcp({.local = ":7001"});
  ASSERT_TRUE(second.ok()) << second.error().message;
  const xtreme_completion refused = Next(XTREME_OP_DONE);
  EXPECT_EQ(refused.status, ENOSPC);
  const std::string why = refused.text == nullptr ? "" : refused.text;
  EXPECT_NE(why.find("table is full"), std::string::npos) << why;
  peer.Send("still there?");
  const xtreme_completion packet = Next(XTREME_PACKET);
  EXPECT_EQ(packet.length, 12u);
  xtreme_release(&packet, 1, sizeof packet);
  ASSERT_EQ(xtreme_send(accepted.socket, "yes", 3, nullptr), XTREME_SENT);
  EXPECT_EQ(peer.Receive(3), "yes");
}

TEST_F(FullTableTest, AConnectIsRefusedWithTheReason) {
  Make(/*flow_rules=*/1);
  auto first = ring_->ListenTcp({.local = ":7000"});
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_EQ(Next(XTREME_OP_DONE).status, 0);
  xtreme_address peer = {};
  ASSERT_EQ(xtreme_address_parse("10.9.0.1:9000", &peer), 0);
  xtreme_socket socket = {};
  ASSERT_EQ(xtreme_tcp_connect(ring_->handle(), &peer, nullptr, &socket), 0) << xtreme_error();
  EXPECT_EQ(Next(XTREME_TERMINATED).status, ENOSPC);
}

}  // namespace
}  // namespace xtreme::e2e
