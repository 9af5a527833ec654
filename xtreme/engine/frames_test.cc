// SPDX-License-Identifier: Apache-2.0
//
// Frames through a whole ring: what is not for us is dropped by one name each, and its buffer goes
// back; options and broadcasts are honoured.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/held_buffers.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

using Frame = std::vector<uint8_t>;

constexpr size_t kIp = 14;
constexpr size_t kUdp = 34;
constexpr wire::Ipv4Address kDirected{10, 0, 0, 255};

class FramesTest : public RingTest {
 protected:
  std::map<std::string, uint64_t> Drops() {
    std::map<std::string, uint64_t> drops;
    ring->VisitCounters([&](std::string_view scope, std::string_view name, std::string_view,
                            uint64_t value) {
      if (scope == "drop" && value != 0) drops[std::string(name)] = value;
    });
    return drops;
  }

  static void FinishIp(Frame* frame) {
    const size_t header_bytes = size_t{4} * ((*frame)[kIp] & 0x0F);
    base::StoreBe16(&(*frame)[kIp + 10], 0);
    base::StoreBe16(&(*frame)[kIp + 10],
                    wire::Checksum(std::span(*frame).subspan(kIp, header_bytes)));
  }

  // `fields` as a broadcast on the link.
  static Frame Broadcast(const FrameFields& fields) {
    Frame frame = MakeFrame(fields);
    wire::MacAddress::Broadcast().Store(frame.data());
    return frame;
  }

  // The handles that got it, and the flags they got it with.
  std::map<Handle, uint16_t> Receivers(const Frame& frame) {
    nic->Deliver(frame);
    std::map<Handle, uint16_t> receivers;
    const auto got = PollAll();
    for (const Completion& packet : got) receivers[packet.socket] = packet.flags;
    Release(got);
    return receivers;
  }
};

struct Dropped {
  const char* reason;
  std::function<void(Frame*)> spoil;
  bool finish = true;  // The IPv4 checksum is made right again.
};

const Dropped kSpoilt[] = {
    {"truncated", [](Frame* f) { f->resize(10); }, false},
    {"truncated", [](Frame* f) { f->resize(kIp + 12); }, false},
    {"stacked_vlan",
     [](Frame* f) {
       const uint8_t tags[] = {0x88, 0xA8, 0, 1, 0x81, 0, 0, 2};
       f->insert(f->begin() + 12, std::begin(tags), std::end(tags));
     },
     false},
    {"no_ether_type", [](Frame* f) { base::StoreBe16(&(*f)[12], 100); }, false},
    {"not_ipv4", [](Frame* f) { base::StoreBe16(&(*f)[12], 0x86DD); }, false},
    {"ip_version", [](Frame* f) { (*f)[kIp] = 0x65; }},
    {"ip_header_length", [](Frame* f) { (*f)[kIp] = 0x44; }},
    {"ip_total_length", [](Frame* f) { base::StoreBe16(&(*f)[kIp + 2], 1'000); }},
    {"ip_total_length", [](Frame* f) { base::StoreBe16(&(*f)[kIp + 2], 19); }},
    {"ip_checksum", [](Frame* f) { (*f)[kIp + 8] ^= 1; }, false},
    {"fragment_end", [](Frame* f) { base::StoreBe16(&(*f)[kIp + 6], 0x1FFF); }},
    {"fragment", [](Frame* f) { base::StoreBe16(&(*f)[kIp + 6], wire::kIpv4MoreFragments); }},
    // GRE, which is neither these two nor ICMP; TCP was asked last.
    {"not_tcp", [](Frame* f) { (*f)[kIp + 9] = 47; }},
    {"udp_length", [](Frame* f) { base::StoreBe16(&(*f)[kUdp + 4], 7); }},
    {"udp_length", [](Frame* f) { base::StoreBe16(&(*f)[kUdp + 4], 1'000); }},
    {"udp_checksum", [](Frame* f) { f->back() ^= 1; }},
    {"bad_source", [](Frame* f) { *f = MakeFrame({.source = {{239, 0, 0, 1}, 9}}); }},
    {"bad_source", [](Frame* f) { *f = MakeFrame({.source = {{255, 255, 255, 255}, 9}}); }},
    {"not_local", [](Frame* f) { *f = MakeFrame({.destination = {{10, 0, 0, 9}, 7000}}); }},
    {"no_socket", [](Frame* f) { *f = MakeFrame({.destination = {{10, 0, 0, 1}, 7999}}); }},
    {"no_socket", [](Frame* f) { *f = MakeFrame({.destination = {kDirected, 7999}}); }},
    {"not_member", [](Frame* f) { *f = MakeFrame({.destination = {{239, 9, 9, 9}, 7000}}); }},
    {"source_filtered",
     [](Frame* f) {
       *f = MakeFrame({.source = {{10, 0, 0, 77}, 9}, .destination = {{239, 1, 2, 3}, 7000}});
     }},
};

TEST_F(FramesTest, EachThatIsNotForUsIsDroppedByItsOwnNameAndItsBufferGoesBack) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Join(socket, {kGroup, 0}, kPeer.address, 0, 1).ok());
  Settle();
  const uint32_t free = ring->core().device.pool->free_count();
  for (const Dropped& row : kSpoilt) {
    Frame frame = MakeFrame({.payload = "spoilt"});
    row.spoil(&frame);
    if (row.finish) FinishIp(&frame);
    const auto before = Drops();
    // The NIC verified nothing: what it looks at is looked at here.
    ASSERT_TRUE(queue().Inject(frame, 0, 0, /*flags=*/0));
    EXPECT_TRUE(PollAll().empty()) << row.reason;
    auto after = Drops();
    for (const auto& [name, count] : before) after[name] -= count;
    std::erase_if(after, [](const auto& drop) { return drop.second == 0; });
    EXPECT_EQ(after, (std::map<std::string, uint64_t>{{row.reason, 1}}));
    EXPECT_EQ(queue().posted(), options.rx_queue_frames) << row.reason;
    EXPECT_EQ(ring->core().device.pool->free_count(), free) << row.reason;
  }
}

TEST_F(FramesTest, WhatTheNicFoundWrongIsNotBelievedWithoutALook) {
  Open();
  OpenSocket(7000);
  // A NIC that verifies nothing, and one whose verdict failed, say the same: software decides.
  ASSERT_TRUE(queue().Inject(MakeFrame({.payload = "good"}), 0, 0, /*flags=*/0));
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(Text(got[0]), "good");
  Release(got);
}

TEST_F(FramesTest, Ipv4OptionsAreHonoured) {
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}});
  for (const size_t options_bytes : {4u, 40u}) {
    Frame frame = MakeFrame({.payload = "behind options"});
    frame.insert(frame.begin() + kUdp, options_bytes, 1);  // No-operations. RFC 791 section 3.1.
    frame[kIp] = static_cast<uint8_t>(0x40 | (5 + options_bytes / 4));
    base::StoreBe16(&frame[kIp + 2], static_cast<uint16_t>(frame.size() - kIp));
    FinishIp(&frame);
    for (const uint16_t verified : {uint16_t{0}, MemoryQueuePair::kVerified}) {
      ASSERT_TRUE(queue().Inject(frame, PlaceOf(socket) + 1, 0, verified));
      const auto got = PollAll();
      ASSERT_EQ(got.size(), 1u) << options_bytes;
      EXPECT_EQ(got[0].socket, socket);
      EXPECT_EQ(Text(got[0]), "behind options");
      EXPECT_EQ(got[0].source_port, 5000);
      Release(got);
    }
  }
}

TEST_F(FramesTest, ABroadcastGoesToEverySocketThatTakesItAndSaysSo) {
  Open();
  const Handle any = OpenSocket({.local = {{}, 7000}, .reuse = true, .broadcast = true});
  const Handle second = OpenSocket({.local = {{}, 7000}, .reuse = true, .broadcast = true});
  const Handle bound = OpenSocket({.local = {kDirected, 7000}, .reuse = true});
  const Handle unicast = OpenSocket({.local = {kOwn, 7000}, .reuse = true});
  const uint16_t flags = kBroadcast | kShared | kClockSynced;
  EXPECT_EQ(Receivers(Broadcast({.destination = {kDirected, 7000}})),
            (std::map<Handle, uint16_t>{{any, flags}, {second, flags}, {bound, flags}}));
  EXPECT_EQ(Receivers(Broadcast({.destination = {{255, 255, 255, 255}, 7000}})),
            (std::map<Handle, uint16_t>{{any, flags}, {second, flags}}));
  EXPECT_EQ(Receivers(MakeFrame({})),
            (std::map<Handle, uint16_t>{{unicast, uint16_t{kClockSynced}}}));
}

TEST_F(FramesTest, EveryBroadcastOfAFlowSaysSo) {
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .broadcast = true});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Receivers(Broadcast({.destination = {kDirected, 7000}})),
              (std::map<Handle, uint16_t>{{socket, kBroadcast | kClockSynced}}));
  }
}

TEST_F(FramesTest, ASocketThatDidNotAskGetsNoBroadcast) {
  Open();
  OpenSocket({.local = {{}, 7000}});
  EXPECT_EQ(nic->Deliver(Broadcast({.destination = {kDirected, 7000}})), 0);
}

TEST_F(FramesTest, OfTwoSocketsOnAGroupOnlyTheOneAtItsLimitGoesWithoutAndItIsCounted) {
  Open();
  const Handle limited = OpenSocket({.local = {{}, 7000}, .reuse = true, .max_held = 1});
  const Handle free = OpenSocket({.local = {{}, 7000}, .reuse = true});
  Join(limited, kGroup);
  Join(free, kGroup);
  const auto deliver = [&] {
    now += 1'000;
    Inject({.destination = {kGroup, 7000}});
    return PollAll();
  };
  const auto first = deliver();
  ASSERT_EQ(Kinds(first), (std::vector<Kind>{Kind::kPacket, Kind::kPacket}));
  const auto second = deliver();
  ASSERT_EQ(Kinds(second), (std::vector<Kind>{Kind::kPacket, Kind::kRing}));
  EXPECT_EQ(second[0].socket, free);
  EXPECT_EQ(second[1].event, RingEvent::kDropped);
  EXPECT_EQ(second[1].count, 1u);
  EXPECT_EQ(Counter("drop", "held_limit"), 1u);
  EXPECT_EQ(ring->udp().Find(limited)->held()->counters.held_limit, 1u);
  EXPECT_EQ(HeldBuffers::CountersOf(ring->udp().Find(free)->held()).held_limit, 0u);
  // The buffer that only one of them got is free with its release.
  EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(second[0].buffer));
  Release(first);
  const auto again = deliver();
  EXPECT_EQ(again.size(), 2u);
  Release(again);
}

}  // namespace
}  // namespace xtreme::engine::testing
