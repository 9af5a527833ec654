// SPDX-License-Identifier: Apache-2.0
//
// A ring on a VLAN interface: tagged frames in and out, rules and completions that say so.

#include <gtest/gtest.h>

#include <vector>

#include "stack/wire/arp.h"
#include "stack/wire/ethernet.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint16_t kVlan = 5;
constexpr uint16_t kTci = 3 << 13 | kVlan;  // Priority 3.

class VlanTest : public RingTest {
 protected:
  VlanTest() {
    link.vlan_id = kVlan;
    options.interface_name = "xt0.5";
  }

  static std::vector<uint8_t> Tagged(const FrameFields& fields, uint16_t tci) {
    std::vector<uint8_t> frame = MakeFrame(fields);
    const uint8_t tag[] = {0x81, 0x00, static_cast<uint8_t>(tci >> 8), static_cast<uint8_t>(tci)};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    return frame;
  }
};

TEST_F(VlanTest, OnlyFramesOfTheVlanArriveAndSayTheirTag) {
  Open();
  const Handle socket = OpenSocket(7000);
  for (const nic::FlowRule& rule : nic->rules()) EXPECT_EQ(rule.match.vlan_id, kVlan);
  EXPECT_EQ(nic->Deliver(Tagged({.payload = "tagged"}, kTci)), 1);
  EXPECT_EQ(nic->Deliver(Tagged({.payload = "another VLAN"}, kVlan + 1)), 0);
  EXPECT_EQ(nic->Deliver(MakeFrame({.payload = "untagged"})), 0);
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(Text(got[0]), "tagged");
  EXPECT_EQ(got[0].socket, socket);
  EXPECT_EQ(got[0].vlan, kTci);
  EXPECT_EQ(got[0].interface_index, MemoryKernel::kIfindex);
  Release(got);
}

TEST_F(VlanTest, ADeviceThatStripsTheTagGivesTheSame) {
  Open();
  const Handle socket = OpenSocket(7000);
  queue().Inject(MakeFrame({.payload = "stripped"}), 0, 0,
                 MemoryQueuePair::kVerified | nic::kRxVlanStripped, kTci);
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].socket, socket);
  EXPECT_EQ(got[0].vlan, kTci);
  Release(got);
}

TEST_F(VlanTest, WhatWasSteeredHereFromAnotherVlanIsForNobody) {
  Open();
  OpenSocket({.local = {kOwn, 7000}});
  queue().Inject(Tagged({}, kVlan + 1));
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(Counter("drop", "no_socket"), 1u);
}

TEST_F(VlanTest, SendsAndArpRequestsAreTagged) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  EXPECT_EQ(Send(socket, "x"), SendResult::kSent);
  const uint8_t byte = 'x';
  EXPECT_EQ(ring->udp().SendTo(ring->udp().Find(socket), kStranger,
                               {.data = &byte, .length = 1}, {}),
            SendResult::kQueued);
  ASSERT_EQ(queue().sent().size(), 2u);
  for (const SentFrame& sent : queue().sent()) {
    const auto ethernet = wire::EthernetView::Parse(sent.bytes);
    ASSERT_TRUE(ethernet.ok());
    ASSERT_TRUE(ethernet->vlan().has_value());
    EXPECT_EQ(ethernet->vlan()->id, kVlan);
  }
  EXPECT_EQ(wire::EthernetView::Parse(queue().sent()[1].bytes)->ether_type(),
            wire::kEtherTypeArp);
}

TEST_F(VlanTest, AGroupJoinedOnTheVlanIsThatOfTheVlan) {
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .multicast_loop = true});
  Join(socket, kGroup);
  EXPECT_EQ(nic->Deliver(Tagged({.destination = {kGroup, 7000}}, kTci)), 1);
  EXPECT_EQ(nic->Deliver(MakeFrame({.destination = {kGroup, 7000}})), 0);
  Connect(socket, {kGroup, 7000});
  Release(PollAll());
}

}  // namespace
}  // namespace xtreme::engine::testing
