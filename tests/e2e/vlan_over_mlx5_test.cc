// SPDX-License-Identifier: Apache-2.0
//
// Two rings on VLAN interfaces, through libmlx5 and a software ConnectX: tagged frames both ways,
// UDP and TCP, and rules of the card that keep the VLANs apart.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint16_t kVlan = 5;
constexpr uint16_t kTcpPort = 8000;

class VlanOverMlx5Test : public TwoRingsTest {
 protected:
  explicit VlanOverMlx5Test(uint16_t vlan_b = kVlan)
      : TwoRingsTest({.vlan_a = kVlan, .vlan_b = vlan_b}) {}

  // The one datagram that `end` has, with the tag that its frame had on the wire.
  static void ExpectTagged(RingEnd& end, std::string_view payload) {
    const auto got = end.Poll();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].kind, Kind::kPacket);
    EXPECT_EQ(Text(got[0]), payload);
    EXPECT_EQ(got[0].vlan & 0xFFF, kVlan);
    Release(got);
  }
};

class TwoVlansTest : public VlanOverMlx5Test {
 protected:
  TwoVlansTest() : VlanOverMlx5Test(kVlan + 1) {}
};

TEST_F(VlanOverMlx5Test, DatagramsAreTaggedBothWays) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  const Handle server = b->OpenSocket({.local = {kB, 7000}});
  ASSERT_EQ(a->SendTo(client, {kB, 7000}, "request"), SendResult::kSent);
  rig->Step();
  ExpectTagged(*b, "request");
  ASSERT_EQ(b->SendTo(server, {kA, 6000}, "reply"), SendResult::kSent);
  rig->Step();
  ExpectTagged(*a, "reply");
}

TEST_F(VlanOverMlx5Test, ADatagramThatTheCardGathersIsTaggedToo) {
  const Handle client = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  const std::string payload(1'472, 'x');
  ASSERT_EQ(a->SendTo(client, {kB, 7000}, payload), SendResult::kSent);
  rig->Step();
  ExpectTagged(*b, payload);
}

TEST_F(VlanOverMlx5Test, AGroupIsJoinedOnTheVlan) {
  const Handle sender = a->OpenSocket({.local = {{}, 6000}});
  const Handle listener = b->OpenSocket({.local = {{}, 7000}});
  ASSERT_TRUE(b->ring->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
  b->Settle();
  ASSERT_EQ(a->SendTo(sender, {kGroup, 7000}, "tick"), SendResult::kSent);
  rig->Step();
  ExpectTagged(*b, "tick");
}

TEST_F(VlanOverMlx5Test, AConnectionCarriesBytesBothWays) {
  Handle listener = 0;
  ASSERT_TRUE(b->ring->tcp().OpenListener({.local = {{}, kTcpPort}}, &listener).ok());
  b->Settle();
  Handle client = 0;
  ASSERT_TRUE(a->ring->tcp().Connect({.peer = {kB, kTcpPort}}, &client).ok());
  a->engine->control().RunAndWait([] {});
  Handle child = 0;
  std::string at_a;
  std::string at_b;
  const auto take = [&](RingEnd& end, std::string* bytes) {
    const auto got = end.Poll();
    for (const Completion& completion : got) {
      if (completion.kind == Kind::kAccepted) child = completion.socket;
      if (completion.kind == Kind::kPacket) *bytes += Text(completion);
    }
    Release(got);
  };
  const auto run = [&] {
    for (int i = 0; i < 1'000; ++i) {
      now += 100'000;
      rig->Step();
      take(*a, &at_a);
      take(*b, &at_b);
    }
  };
  const auto send = [](RingEnd& end, Handle socket, std::string_view bytes) {
    Tcp& tcp = end.ring->tcp();
    return tcp.Send(tcp.Find(socket),
                    {.data = reinterpret_cast<const uint8_t*>(bytes.data()),
                     .length = bytes.size()},
                    {});
  };
  run();
  ASSERT_NE(child, 0u);
  const std::string long_request(4'000, 'r');  // More than a segment.
  ASSERT_EQ(send(*a, client, long_request), SendResult::kSent);
  ASSERT_EQ(send(*b, child, "reply"), SendResult::kSent);
  run();
  EXPECT_EQ(at_b, long_request);
  EXPECT_EQ(at_a, "reply");
}

TEST_F(TwoVlansTest, TheCardKeepsAnotherVlansFramesAway) {
  const Handle sender = a->OpenSocket({.local = {kA, 6000}});
  b->OpenSocket({.local = {kB, 7000}});
  ASSERT_EQ(a->SendTo(sender, {kB, 7000}, "not for you"), SendResult::kSent);
  rig->Step();
  EXPECT_TRUE(b->Poll().empty());
  b->ring->VisitCounters([](std::string_view scope, std::string_view name, std::string_view,
                            uint64_t value) {
    if (scope == "queue" && name == "rx_frames") {
      EXPECT_EQ(value, 0u);
    }
  });
}

}  // namespace
}  // namespace xtreme::engine::testing
