// SPDX-License-Identifier: Apache-2.0
//
// A feed through a switch that prunes: a bridge with IGMP snooping and a querier, whose membership
// timer runs out many times while a ring listens.

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/e2e/wire_rig.h"

namespace xtreme::e2e {
namespace {

constexpr char kGroup[] = "239.1.2.3";
constexpr int64_t kSecondNs = 1'000'000'000;
// The bridge's shortest query interval; without a report for so long it forgets a member.
constexpr int64_t kMembershipNs = 2 * kSecondNs;

class QuerierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto* space : {&ours_, &switch_, &sender_}) {
      auto made = net::Namespace::Create();
      ASSERT_TRUE(made.ok()) << made.status();
      *space = *std::move(made);
    }
    ASSERT_TRUE(net::ConnectByVeth(*ours_, "xt0", *switch_, "p1").ok());
    ASSERT_TRUE(net::ConnectByVeth(*sender_, "s0", *switch_, "p2").ok());
    ASSERT_TRUE(ours_->SetMac("xt0", kMac).ok());
    ASSERT_TRUE(ours_->AddAddress("xt0", "10.0.0.1/24").ok());
    ASSERT_TRUE(sender_->AddAddress("s0", "10.0.0.2/24").ok());
    {
      // In hundredths of seconds. Only members get a group: what is unknown is not flooded.
      const net::Namespace::Inside inside(*switch_);
      for (const char* command :
           {"ip link add br0 type bridge mcast_snooping 1 mcast_igmp_version 3 "
            "mcast_query_interval 100 mcast_startup_query_interval 100 "
            "mcast_query_response_interval 50 mcast_membership_interval 200",
            // It looks at its members from so long after this on as an answer may take.
            "ip link set br0 type bridge mcast_querier 1",
            "ip link set p1 master br0", "ip link set p2 master br0",
            "bridge link set dev p1 mcast_flood off", "ip link set br0 up"}) {
        ASSERT_EQ(std::system(command), 0) << command;
      }
    }
    const net::Namespace::Inside inside(*sender_);
    feed_ = std::make_unique<KernelSocket>("10.0.0.2", 5000);
  }

  // What the ring hears of the feed, which ticks until then.
  int Listen(WireRing* ring, int64_t until_ns, bool first_is_enough = false) {
    int heard = 0;
    while (xtreme_ring_now(ring->ring()) < until_ns) {
      feed_->SendTo(kGroup, 7000, "tick");
      heard += ring->Receive(/*patience_ms=*/10) == "tick";
      if (first_is_enough && heard > 0) break;
    }
    return heard;
  }

  static constexpr net::MacAddress kMac = {2, 0, 0, 0, 0, 1};
  std::unique_ptr<net::Namespace> ours_;
  std::unique_ptr<net::Namespace> switch_;
  std::unique_ptr<net::Namespace> sender_;
  std::unique_ptr<KernelSocket> feed_;
};

TEST_F(QuerierTest, ASwitchStillForwardsAGroupLongAfterItsMembershipTimerRanOut) {
  const net::Namespace::Inside inside(*ours_);
  WireDevice device(kMac);
  WireRing ring;
  const xtreme_socket socket = ring.OpenSocket(":7000");
  ring.Start();
  const auto from_now = [&](int64_t ns) { return xtreme_ring_now(ring.ring()) + ns; };
  ring.Join(socket, kGroup);
  ASSERT_EQ(Listen(&ring, from_now(10 * kSecondNs), /*first_is_enough=*/true), 1);
  // Whatever it knew of the join is forgotten by now, had nobody answered its queries.
  Listen(&ring, from_now(kMembershipNs + kSecondNs));
  EXPECT_GT(Listen(&ring, from_now(kSecondNs / 2)), 10);
}

}  // namespace
}  // namespace xtreme::e2e
