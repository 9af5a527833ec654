// SPDX-License-Identifier: Apache-2.0
//
// The completion contract, received datagrams.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/slow_path.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine::testing {
namespace {

class UdpReceiveTest : public RingTest {
 protected:
  // A datagram in fragments of `bytes` (a multiple of 8) of IP payload.
  static std::vector<std::vector<uint8_t>> Fragments(const FrameFields& fields, size_t bytes) {
    const std::vector<uint8_t> whole = MakeFrame(fields);
    std::vector<std::vector<uint8_t>> frames;
    for (size_t at = 34; at < whole.size(); at += bytes) {
      const size_t length = std::min(bytes, whole.size() - at);
      std::vector<uint8_t> frame(whole.begin(), whole.begin() + 34);
      const wire::Ipv4Repr ip{.source = fields.source.address,
                              .destination = fields.destination.address,
                              .id = 77,
                              .more_fragments = at + length < whole.size(),
                              .fragment_offset_bytes = static_cast<uint16_t>(at - 34),
                              .payload_bytes = static_cast<uint16_t>(length)};
      ip.Emit(std::span(frame).subspan(14));
      frame.insert(frame.end(), whole.begin() + static_cast<ptrdiff_t>(at),
                   whole.begin() + static_cast<ptrdiff_t>(at + length));
      frames.push_back(frame);
    }
    return frames;
  }
  // The first fragment of a datagram, with these bytes.
  static std::vector<uint8_t> FragmentOf(std::string_view bytes, bool more) {
    std::vector<uint8_t> frame = MakeFrame({});
    frame.resize(34);
    const wire::Ipv4Repr ip{.source = kPeer.address,
                            .destination = kOwn,
                            .id = 78,
                            .more_fragments = more,
                            .payload_bytes = static_cast<uint16_t>(bytes.size())};
    ip.Emit(std::span(frame).subspan(14));
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    return frame;
  }
  Handle OpenMember(std::optional<wire::Ipv4Address> source) {
    const Handle socket = OpenSocket({.local = {{}, 7000}, .reuse = true});
    EXPECT_TRUE(ring->udp().Join(socket, {kGroup, 0}, source, 0, 1).ok());
    Settle();
    return socket;
  }
  uint64_t Filtered(Handle socket) {
    return ring->udp().Find(socket)->group_counters().source_filtered;
  }
};

TEST_F(UdpReceiveTest, ADatagramIsOneCompletionWithEveryFieldWritten) {
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}, .user_data = 0x1122});
  now = 5'000;
  ASSERT_TRUE(queue().Inject(MakeFrame({.payload = "hello"}), 0, 4'000));
  const auto got = PollOnce();
  ASSERT_EQ(got.size(), 1u);
  const Completion& packet = got[0];
  EXPECT_EQ(packet.kind, Kind::kPacket);
  EXPECT_EQ(packet.event, RingEvent::kNone);
  EXPECT_EQ(packet.flags, kClockSynced);
  EXPECT_EQ(packet.status, 0);
  EXPECT_EQ(packet.socket, socket);
  EXPECT_EQ(packet.user_data, 0x1122u);
  EXPECT_EQ(packet.data, packet.buffer->data);
  EXPECT_EQ(Text(packet), "hello");
  EXPECT_EQ(packet.count, 1u);
  EXPECT_EQ(packet.hw_time_ns, 4'000);
  EXPECT_EQ(packet.hw_clock, 4'000u);
  EXPECT_EQ(packet.poll_tsc, 5'000u);
  const IpBytes source = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2};
  const IpBytes destination = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1};
  EXPECT_EQ(packet.source_ip, source);
  EXPECT_EQ(packet.destination_ip, destination);
  EXPECT_EQ(packet.source_port, 5000);
  EXPECT_EQ(packet.destination_port, 7000);
  EXPECT_EQ(packet.interface_index, MemoryKernel::kIfindex);
  EXPECT_EQ(packet.cookie, 0u);
  EXPECT_EQ(packet.vlan, 0u);
  Release(got);
}

TEST_F(UdpReceiveTest, EveryDatagramOfAFlowIsWrittenLikeItsFirst) {
  Open();
  OpenSocket({.local = {kOwn, 7000}, .user_data = 0x1122});
  now = 5'000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue().Inject(MakeFrame({}), 0, 4'000));
  Completion got[3];
  memset(static_cast<void*>(got), 0xA5, sizeof(got));
  ASSERT_EQ(ring->Poll(got, 3, sizeof(Completion)), 3u);
  for (Completion& packet : got) {
    EXPECT_EQ(Text(packet), "x");
    EXPECT_EQ(packet.data, packet.buffer->data);
    EXPECT_EQ(packet.length, packet.buffer->length);
    packet::BufferPool::ReleaseByOwner(packet.buffer);
    packet.buffer = nullptr;
    packet.data = nullptr;
    EXPECT_EQ(memcmp(&packet, &got[0], sizeof(packet)), 0);
  }
  EXPECT_EQ(Counter("ring", "packets"), 3u);
}

TEST_F(UdpReceiveTest, AFlowGoesToWhoeverItsSocketsAreNow) {
  Open();
  const auto receiver = [this](const FrameFields& fields) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Inject(fields));
    std::vector<Completion> got = Settle();
    std::erase_if(got, [](const Completion& c) { return c.kind != Kind::kPacket; });
    Release(got);
    return got.size() == 2 && got[0].socket == got[1].socket ? got[0].socket : Handle{0};
  };
  const FrameFields plain;
  const Handle bound = OpenSocket({.local = {kOwn, 7000}, .reuse = true});
  EXPECT_EQ(receiver(plain), bound);
  const Handle later = OpenSocket({.local = {kOwn, 7000}, .reuse = true});
  EXPECT_EQ(receiver(plain), later);
  EXPECT_TRUE(ring->udp().Connect(later, kStranger, 0).ok());
  EXPECT_EQ(receiver(plain), bound);
  EXPECT_TRUE(ring->udp().Connect(later, kPeer, 0).ok());
  EXPECT_EQ(receiver(plain), later);
  EXPECT_TRUE(ring->udp().Close(later, /*detach=*/true).ok());
  EXPECT_EQ(receiver(plain), bound);
  ring->udp().SetUserData(bound, 77);
  ASSERT_TRUE(Inject(plain));
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].user_data, 77u);
  Release(got);
}

TEST_F(UdpReceiveTest, NextDatagramIsTakenAloneWhereNothingElseIsToBeLookedAt) {
  Open();
  const Handle handle = OpenSocket(7000);
  const UdpSocket& socket = *ring->udp().Find(handle);
  ASSERT_TRUE(Inject({.payload = "first"}));
  EXPECT_EQ(ring->TakeDatagram(socket, 100), nullptr) << "the flow is not known yet";
  Release(PollAll());
  EXPECT_EQ(ring->TakeDatagram(socket, 100), nullptr) << "nothing came";
  ASSERT_TRUE(Inject({.payload = "second"}));
  EXPECT_EQ(ring->TakeDatagram(socket, 5), nullptr) << "longer than there is room for";
  packet::Buffer* const taken = ring->TakeDatagram(socket, 6);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(std::string(taken->data, taken->data + taken->length), "second");
  EXPECT_EQ(taken->next, nullptr);
  EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(taken));
  EXPECT_EQ(Counter("ring", "packets"), 2u);
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(UdpReceiveTest, DatagramThatIsTakenAloneLeavesATimerItsTurn) {
  Open();
  const Handle handle = OpenSocket(7000);
  const UdpSocket& socket = *ring->udp().Find(handle);
  ASSERT_TRUE(Inject({}));
  Release(PollAll());
  ring->StartTimer(ring->Now() + base::Seconds(1), 7);
  uint32_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Inject({}));
    packet::Buffer* const datagram = ring->TakeDatagram(socket, 100);
    taken += datagram != nullptr;
    datagram != nullptr ? void(packet::BufferPool::ReleaseByOwner(datagram)) : Release(PollAll());
  }
  EXPECT_GT(taken, 50u);
  EXPECT_LT(taken, 100u) << "no poll would ever look at the timer";
}

TEST_F(UdpReceiveTest, AKnownFlowIsSharedOnceASecondSocketJoins) {
  Open();
  const Handle a = OpenSocket({.local = {kGroup, 7000}, .reuse = true});
  const Handle b = OpenSocket({.local = {kGroup, 7000}, .reuse = true});
  Join(a, kGroup);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Inject({.destination = {kGroup, 7000}}));
  const auto alone = PollAll();
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_EQ(alone[1].flags, kClockSynced | kMulticast);
  Release(alone);
  Join(b, kGroup);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Inject({.destination = {kGroup, 7000}}));
  const auto shared = PollAll();
  ASSERT_EQ(shared.size(), 4u);
  for (const Completion& packet : shared) EXPECT_NE(packet.flags & kShared, 0);
  Release(shared);
}

TEST_F(UdpReceiveTest, DatagramsOfAllSocketsInReceiveCqOrder) {
  Open();
  const Handle a = OpenSocket(7000);
  const Handle b = OpenSocket(7001);
  std::vector<Handle> expected;
  for (int i = 0; i < 20; ++i) {
    const uint16_t port = i % 3 == 0 ? 7000 : 7001;
    expected.push_back(port == 7000 ? a : b);
    ASSERT_TRUE(Inject({.destination = {kOwn, port}, .payload = std::string(1, 'a' + i)}));
  }
  const auto got = PollAll();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].socket, expected[i]);
    EXPECT_EQ(Text(got[i]), std::string(1, static_cast<char>('a' + i)));
  }
  Release(got);
}

TEST_F(UdpReceiveTest, NothingMergedOrDroppedBetweenCqAndApplication) {
  options.completions = 64;
  options.rx_queue_frames = 256;
  Open();
  OpenSocket(7000);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Inject({.payload = std::to_string(i)}));
  // One at a time: the fifo never holds what the application did not ask for.
  for (int i = 0; i < 200; ++i) {
    const auto got = PollOnce(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(Text(got[0]), std::to_string(i));
    Release(got);
  }
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(UdpReceiveTest, PollTakesACqeOnlyIfTheFifoHasRoomForAllItCauses) {
  options.completions = 64;
  Open();
  std::vector<Handle> sockets;
  for (int i = 0; i < 40; ++i) {
    sockets.push_back(OpenSocket({.local = {{}, 7000}, .reuse = true}));
    Join(sockets.back(), kGroup);
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Inject({.destination = {kGroup, 7000}, .payload = std::to_string(i)}));
  }
  // One datagram is 40 completions: with 39 waiting, the second has no room.
  auto got = PollOnce(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(queue().ready(), 2u);
  EXPECT_TRUE(ring->More());
  for (std::vector<Completion> more; (more = PollOnce(1)).size() == 1;) {
    got.push_back(more[0]);
  }
  ASSERT_EQ(got.size(), 120u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(Text(got[i]), std::to_string(i / 40));
  Release(got);
}

TEST_F(UdpReceiveTest, SocketsOnOneGroupGetTheSameBufferShared) {
  Open();
  const Handle a = OpenSocket({.local = {{}, 7000}, .reuse = true});
  const Handle b = OpenSocket({.local = {{}, 7000}, .reuse = true});
  Join(a, kGroup);
  Join(b, kGroup);
  ASSERT_TRUE(Inject({.destination = {kGroup, 7000}, .payload = "both"}));
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_NE(got[0].socket, got[1].socket);
  EXPECT_EQ(got[0].buffer, got[1].buffer);
  EXPECT_EQ(got[0].flags, kShared | kMulticast | kClockSynced);
  EXPECT_EQ(got[1].flags, kShared | kMulticast | kClockSynced);
  EXPECT_FALSE(packet::BufferPool::ReleaseByOwner(got[0].buffer));
  EXPECT_EQ(Text(got[1]), "both");
  EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(got[1].buffer));
}

TEST_F(UdpReceiveTest, ATagIsAHintThatIsVerified) {
  Open();
  const Handle a = OpenSocket({.local = {kOwn, 7000}});
  const Handle b = OpenSocket({.local = {kOwn, 7001}});
  const uint32_t tag_of_a = PlaceOf(a) + 1;
  // Right, somebody else's, and one of no socket.
  ASSERT_TRUE(queue().Inject(MakeFrame({.destination = {kOwn, 7000}}), tag_of_a));
  ASSERT_TRUE(queue().Inject(MakeFrame({.destination = {kOwn, 7001}}), tag_of_a));
  ASSERT_TRUE(queue().Inject(MakeFrame({.destination = {kOwn, 7001}}), 0xFFFFFF));
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].socket, a);
  EXPECT_EQ(got[1].socket, b);
  EXPECT_EQ(got[2].socket, b);
  Release(got);
}

TEST_F(UdpReceiveTest, WhatIsForNobodyIsDroppedByName) {
  Open();
  OpenSocket(7000);
  Inject({.destination = {kOwn, 7999}});
  Inject({.destination = {kGroup, 7000}});
  auto bad = MakeFrame({});
  bad[40] ^= 1;
  queue().Inject(bad, 0, 0, nic::kRxIpChecksumOk);
  bad.resize(30);
  queue().Inject(bad);
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(Counter("drop", "no_socket"), 1u);
  EXPECT_EQ(Counter("drop", "not_member"), 1u);
  EXPECT_EQ(Counter("drop", "udp_checksum"), 1u);
  EXPECT_EQ(queue().posted(), options.rx_queue_frames);
}

TEST_F(UdpReceiveTest, SourceFiltersWorkInSoftware) {
  Open();
  const Handle socket = OpenSocket(7000);
  const wire::Ipv4Address wanted(10, 0, 0, 2);
  ASSERT_TRUE(ring->udp().Join(socket, {kGroup, 0}, wanted, 0, 9).ok());
  Settle();
  EXPECT_EQ(kernel->memberships().at(kGroup).sources,
            std::vector<wire::Ipv4Address>{wanted});
  Inject({.source = {wanted, 5000}, .destination = {kGroup, 7000}, .payload = "yes"});
  Inject({.source = kStranger, .destination = {kGroup, 7000}, .payload = "no"});
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(Text(got[0]), "yes");
  Release(got);
}

// However it came: as a known flow, as a copy of our own, or from its fragments.
TEST_F(UdpReceiveTest, WhatAFilterRefusesCountsOnceADatagram) {
  for (const bool third : {false, true}) {
    SCOPED_TRACE(third ? "between two that admit" : "beside one that admits");
    ring.reset();
    engine.reset();
    options.fragments = Fragments::kOwn;
    Open();
    if (third) OpenMember(kPeer.address);
    const Handle refuses = OpenMember(kStranger.address);
    OpenMember(kPeer.address);
    const FrameFields fields{.destination = {kGroup, 7000}, .payload = std::string(100, 'f')};
    const size_t copies = third ? 2 : 1;
    for (uint64_t datagrams = 1; datagrams <= 3; ++datagrams) {
      EXPECT_TRUE(Inject(fields));
      const auto got = PollAll();
      EXPECT_EQ(got.size(), copies);
      Release(got);
      EXPECT_EQ(Filtered(refuses), datagrams);
    }
    for (const auto& fragment : Fragments(fields, 64)) EXPECT_TRUE(queue().Inject(fragment));
    const auto got = PollAll();
    EXPECT_EQ(got.size(), copies);
    Release(got);
    EXPECT_EQ(Filtered(refuses), 4u);
  }
}

TEST_F(UdpReceiveTest, UserDataIsReadWhenHandedOut) {
  Open();
  const Handle a = OpenSocket({.local = {{}, 7000}, .user_data = 1, .reuse = true});
  const Handle b = OpenSocket({.local = {{}, 7000}, .user_data = 1, .reuse = true});
  Join(a, kGroup);
  Join(b, kGroup);
  Inject({.destination = {kGroup, 7000}});
  // One is handed out, the other waits.
  const auto first = PollOnce(1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].user_data, 1u);
  ring->udp().SetUserData(first[0].socket == a ? b : a, 2);
  const auto second = PollAll();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].user_data, 2u);
  Release(first);
  Release(second);
}

TEST_F(UdpReceiveTest, ClosedInTheSameBatchStillHandsOut) {
  Open();
  const Handle socket = OpenSocket(7000);
  for (int i = 0; i < 4; ++i) Inject({.payload = std::to_string(i)});
  const auto got = PollOnce();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(Text(got[0]), "0");
  ASSERT_TRUE(ring->udp().Close(socket, false).ok());
  // What was handed out is ours, whatever happens to the socket.
  EXPECT_EQ(Text(got[3]), "3");
  const auto end = Settle();
  EXPECT_EQ(Kinds(end), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(Text(got[3]), "3");
  Release(got);
}

TEST_F(UdpReceiveTest, AfterCloseNoPacketComesThatWaited) {
  options.completions = 64;
  Open();
  const Handle a = OpenSocket({.local = {{}, 7000}, .reuse = true});
  const Handle b = OpenSocket({.local = {{}, 7000}, .reuse = true});
  Join(a, kGroup);
  Join(b, kGroup);
  Inject({.destination = {kGroup, 7000}});
  const auto first = PollOnce(1);
  ASSERT_EQ(first.size(), 1u);
  const Handle waiting = first[0].socket == a ? b : a;
  ring->udp().Close(waiting, false);
  const auto rest = Settle();
  EXPECT_EQ(Kinds(rest), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(Counter("drop", "closed"), 1u);
  EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(first[0].buffer));
}

TEST_F(UdpReceiveTest, MaxHeldMayBeMoreThanThereIs) {
  Open();
  OpenSocket({.local = {{}, 7000}, .max_held = UINT32_MAX});
  std::vector<Completion> held;
  for (uint32_t i = 0; i < 3 * options.rx_buffers; ++i) {
    now += 1'000;
    Inject({});
    const auto got = PollAll();
    ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket}) << i;
    // A quarter of the pool is held.
    i < options.rx_buffers / 4 ? held.push_back(got[0]) : Release(got);
  }
  EXPECT_EQ(Counter("drop", "held_limit"), 0u);
  Release(held);
}

TEST_F(UdpReceiveTest, MaxHeldDropsAboveTheLimitAndRecoversWithReleases) {
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .max_held = 3});
  (void)socket;
  for (int i = 0; i < 5; ++i) Inject({.payload = std::to_string(i)});
  auto got = PollAll();
  std::vector<Completion> packets;
  bool reported = false;
  for (const Completion& completion : got) {
    if (completion.kind == Kind::kPacket) packets.push_back(completion);
    if (completion.kind == Kind::kRing && completion.event == RingEvent::kDropped) {
      EXPECT_EQ(completion.layer, static_cast<uint64_t>(Layer::kLibrary));
      EXPECT_EQ(completion.count, 2u);
      reported = true;
    }
  }
  EXPECT_EQ(packets.size(), 3u);
  EXPECT_TRUE(reported);
  EXPECT_EQ(Counter("drop", "held_limit"), 2u);
  Release({packets[0]});
  now += 1'000;
  Inject({.payload = "again"});
  const auto more = PollAll();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(Text(more[0]), "again");
  EXPECT_NE(more[0].flags & kAfterDrop, 0);
  Release(more);
  Release({packets[1], packets[2]});
}

TEST_F(UdpReceiveTest, HeldBuffersStayReadableAfterRingClose) {
  Open();
  OpenSocket(7000);
  Inject({.payload = "kept"});
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  ring.reset();
  engine.reset();
  EXPECT_EQ(Text(got[0]), "kept");
  Release(got);
}

TEST_F(UdpReceiveTest, OwnFragmentsAreReassembledInTheBuffersTheyCameIn) {
  options.fragments = Fragments::kOwn;
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}});
  EXPECT_FALSE(nic->rules().at(0).match.destination_port.has_value());
  for (const auto& frame : Fragments({.payload = std::string(3'000, 'f')}, 1'000)) {
    ASSERT_EQ(nic->Deliver(frame), 1);
  }
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].socket, socket);
  EXPECT_EQ(got[0].flags, kChained);
  EXPECT_EQ(got[0].length, 3'000u);
  EXPECT_EQ(got[0].count, 4u);
  EXPECT_EQ(got[0].source_port, 5000);
  std::string whole;
  for (packet::Buffer* link = got[0].buffer; link != nullptr; link = link->next) {
    whole.append(link->bytes().begin(), link->bytes().end());
  }
  EXPECT_EQ(whole, std::string(3'000, 'f'));
  Release(got);
}

TEST_F(UdpReceiveTest, AReassembledDatagramCountsAsAnyOther) {
  options.fragments = Fragments::kOwn;
  Open();
  for (int i = 0; i < 2; ++i) Join(OpenSocket({.local = {{}, 7000}, .reuse = true}), kGroup);
  const FrameFields fields{.destination = {kGroup, 7000}, .payload = std::string(100, 'f')};
  for (const auto& fragment : Fragments(fields, 64)) EXPECT_TRUE(queue().Inject(fragment));
  const auto got = PollAll();
  EXPECT_EQ(got.size(), 2u);
  EXPECT_EQ(Counter("ring", "packets"), 2u);
  EXPECT_EQ(Counter("ring", "shared"), 1u);
  Release(got);
}

TEST_F(UdpReceiveTest, AFragmentWithoutTheOthersIsForgottenAndItsBufferComesBack) {
  options.fragments = Fragments::kOwn;
  Open();
  OpenSocket({.local = {kOwn, 7000}});
  const uint32_t free = ring->core().device.pool->free_count();
  // With nothing held there is nothing to wait for, which is not to stay so.
  nic->Deliver(FragmentOf("123456789", /*more=*/true));
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(Counter("reassembly", "malformed"), 1u);
  nic->Deliver(Fragments({.payload = std::string(3'000, 'f')}, 1'000)[1]);
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(ring->core().device.pool->free_count(), free - 1);
  now += 5'000'000'000;
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(ring->core().device.pool->free_count(), free);
  EXPECT_EQ(Counter("reassembly", "timed_out"), 1u);
}

TEST_F(UdpReceiveTest, TheKernelsDatagramsComeBySlowPath) {
  Open();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}});
  const std::string large(5'000, 'L');
  kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, large);
  std::vector<Completion> got;
  while (got.empty()) got = Settle();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].socket, socket);
  EXPECT_EQ(got[0].flags, kSlowPath | kChained);
  EXPECT_EQ(got[0].length, 5'000u);
  EXPECT_EQ(got[0].count, 5'000 / ring->buffer_bytes() + 1);
  EXPECT_EQ(packet::ChainLength(got[0].buffer), 5'000u);
  Release(got);
}

// Also where the ring reassembles by itself, and needs nothing else of the kernel's socket.
TEST_F(UdpReceiveTest, WhatTheKernelHandsOutAmongSocketsComesBySlowPathGroupsByTheRing) {
  options.fragments = Fragments::kOwn;
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .reuse = true, .kernel_unicast = true});
  EXPECT_TRUE(nic->rules().empty());
  Join(socket, kGroup);
  ASSERT_EQ(nic->rules().size(), 1u);
  EXPECT_EQ(nic->rules()[0].match.destination_ip, kGroup);
  kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, "its share");
  std::vector<Completion> got;
  while (got.empty()) got = Settle();
  ASSERT_EQ(Kinds(got), std::vector<Kind>{Kind::kPacket});
  EXPECT_EQ(got[0].flags, kSlowPath);
  EXPECT_EQ(Text(got[0]), "its share");
  Release(got);
}

TEST_F(UdpReceiveTest, AConnectedSocketTakesTheKernelsDatagramsFromItsPeerOnly) {
  Open();
  const Handle socket = OpenSocket(7000);
  Connect(socket, kPeer);
  const wire::Ipv4Address elsewhere(10, 0, 9, 1);
  kernel->Push(7000, {.source = kStranger, .destination = {kOwn, 7000}}, "a stranger's");
  kernel->Push(7000, {.source = {kPeer.address, 5001}, .destination = {kOwn, 7000}}, "a port's");
  kernel->Push(7000, {.source = kPeer, .destination = {elsewhere, 7000}}, "another address's");
  kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, "the peer's");
  std::vector<std::string> texts;
  while (texts.empty() || texts.back() != "the peer's") {
    const auto got = Settle();
    for (const Completion& completion : got) texts.push_back(Text(completion));
    Release(got);
  }
  EXPECT_EQ(texts, std::vector<std::string>{"the peer's"});
  EXPECT_EQ(Counter("drop", "slow_path_peer"), 3u);
}

TEST_F(UdpReceiveTest, WhatTheKernelHandsOnToARingThatIsNotPolledIsBoundedAndTheRestCounted) {
  Open();
  OpenSocket({.local = {kOwn, 7000}});
  constexpr uint32_t kTooMany = 44;
  // All at once, for the control thread is kept from taking some, and handed on before a poll.
  engine->control().RunAndWait([&] {
    for (uint32_t i = 0; i < kMostWaiting + kTooMany; ++i) {
      kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, "x");
    }
  });
  while (kernel->Waits(7000)) engine->control().RunAndWait([] {});
  std::vector<Completion> got;
  while (got.empty() || got.back().kind == Kind::kPacket) {
    for (const Completion& completion : Settle()) got.push_back(completion);
  }
  ASSERT_EQ(got.size(), kMostWaiting + 1);
  EXPECT_EQ(got.back().event, RingEvent::kDropped);
  EXPECT_EQ(got.back().count, kTooMany);
  EXPECT_EQ(got.back().layer, static_cast<uint64_t>(Layer::kLibrary));
  EXPECT_EQ(Counter("drop", "slow_path_full"), kTooMany);
  // What was taken makes room.
  kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, "again");
  std::vector<Completion> again;
  while (again.empty()) again = Settle();
  EXPECT_EQ(Text(again[0]), "again");
  Release(got);
  Release(again);
}

TEST_F(UdpReceiveTest, MaxHeldCoversTheSlowPathAndReassembledDatagrams) {
  Open();
  OpenSocket({.local = {kOwn, 7000}, .max_held = 4});
  const std::string three_buffers(5'000, 'L');
  const auto push = [&] {
    kernel->Push(7000, {.source = kPeer, .destination = {kOwn, 7000}}, three_buffers);
    std::vector<Completion> got;
    while (got.empty()) got = Settle();
    return got;
  };
  const auto first = push();
  ASSERT_EQ(Kinds(first), std::vector<Kind>{Kind::kPacket});
  now += 1'000;
  EXPECT_EQ(Kinds(push()), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(Counter("drop", "held_limit"), 1u);
  Release(first);
  now += 1'000;
  const auto again = push();
  ASSERT_EQ(Kinds(again), std::vector<Kind>{Kind::kPacket});
  Release(again);
}

TEST_F(UdpReceiveTest, AReassembledDatagramCountsAsManyBuffersAsItHolds) {
  options.fragments = Fragments::kOwn;
  Open();
  OpenSocket({.local = {kOwn, 7000}, .max_held = 4});
  const auto deliver = [&] {
    now += 1'000;
    for (const auto& frame : Fragments({.payload = std::string(3'000, 'f')}, 1'000)) {
      nic->Deliver(frame);
    }
    return PollAll();
  };
  const auto first = deliver();
  ASSERT_EQ(Kinds(first), std::vector<Kind>{Kind::kPacket});
  EXPECT_EQ(Kinds(deliver()), std::vector<Kind>{Kind::kRing});
  Release(first);
  const auto again = deliver();
  EXPECT_EQ(Kinds(again), std::vector<Kind>{Kind::kPacket});
  Release(again);
}

}  // namespace
}  // namespace xtreme::engine::testing
