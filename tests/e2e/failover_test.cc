// SPDX-License-Identifier: Apache-2.0
//
// A ring with a backup: its port's cable is pulled, and its sockets and memberships go on at
// another device. Both ports and a peer are on one hub, so both see every frame of the network.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/failover_bed.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine::testing {
namespace {

TEST_F(FailoverTest, SocketsAndMembershipsMoveWhenThePortGoesDown) {
  Open();
  Listen(7000);
  const Handle ours = us->OpenSocket({.local = {kOwn, 7001}});
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  EXPECT_EQ(Events(Plug(0, false)),
            (News{{RingEvent::kLinkDown, kHome}, {RingEvent::kMoved, kAway}}));
  EXPECT_EQ(us->kernel->joined_on(),
            (std::multimap<wire::Ipv4Address, uint32_t>{{kGroup, kAway}}));
  EXPECT_EQ(Counter("ring", "moves"), 1u);

  ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "group"), SendResult::kSent);
  TellPeer(kBackupMac);
  ASSERT_EQ(peer->SendTo(theirs, {kOwn, 7001}, "to the old address"), SendResult::kSent);
  card->Step();
  uint32_t ifindex = 0;
  EXPECT_EQ(Take(*us, &ifindex), (std::vector<std::string>{"group", "to the old address"}));
  EXPECT_EQ(ifindex, kAway);

  ASSERT_EQ(us->SendTo(ours, {kPeer, 6000}, "answer"), SendResult::kSent);
  card->Step();
  const auto answer = peer->Poll();
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].source_port, 7001);
  EXPECT_EQ(answer[0].source_ip[15], 1) << "from the address that it was bound to";
  packet::BufferPool::ReleaseChain(answer[0].buffer);
}

// Whoever notices it first, here the kernel.
TEST_F(FailoverTest, ThatTheBackupHasAnotherMtuIsNoChange) {
  Open();
  for (host::Interface& interface : us->kernel->tables().interfaces) {
    interface.mtu = interface.ifindex == kAway ? 1'400 : interface.mtu;
    interface.running = interface.ifindex != kHome;
  }
  us->kernel->Publish();
  us->engine->control().RunAndWait([] {});
  std::vector<Completion> told = us->Poll();
  us->engine->control().RunAndWait([] {});
  for (const Completion& next : us->Poll()) told.push_back(next);
  EXPECT_EQ(Events(told), (News{{RingEvent::kLinkDown, kHome}, {RingEvent::kMoved, kAway}}));
}

TEST_F(FailoverTest, ItComesBackWhenItsOwnPortIsUpAgain) {
  Open();
  Listen(7000);
  Plug(0, false);
  EXPECT_EQ(Events(Plug(0, true)),
            (News{{RingEvent::kLinkUp, kHome}, {RingEvent::kMoved, kHome}}));
  EXPECT_EQ(us->kernel->joined_on(),
            (std::multimap<wire::Ipv4Address, uint32_t>{{kGroup, kHome}}));
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "home"), SendResult::kSent);
  card->Step();
  uint32_t ifindex = 0;
  EXPECT_EQ(Take(*us, &ifindex), std::vector<std::string>{"home"});
  EXPECT_EQ(ifindex, kHome);
}

TEST_F(FailoverTest, ByOptionItStaysUntilTheBackupGoesDown) {
  Open(/*backup_stays=*/true);
  Plug(0, false);
  EXPECT_EQ(Events(Plug(0, true)), (News{{RingEvent::kLinkUp, kHome}}));
  EXPECT_EQ(Events(Plug(2, false)),
            (News{{RingEvent::kLinkDown, kAway}, {RingEvent::kMoved, kHome}}));
}

TEST_F(FailoverTest, OneThatStartsWhileItsPortIsDownSaysSoAndMoves) {
  Open(/*backup_stays=*/false, /*carrier=*/false);
  EXPECT_EQ(Events(Plug(0, false)),
            (News{{RingEvent::kLinkDown, kHome}, {RingEvent::kMoved, kAway}}));
  us->kernel->tables().interfaces[0].running = true;
  us->kernel->Publish();
  EXPECT_EQ(Events(Plug(0, true)),
            (News{{RingEvent::kLinkUp, kHome}, {RingEvent::kMoved, kHome}}));
}

TEST_F(FailoverTest, WithBothPortsDownItMovesToTheFirstThatComesUp) {
  Open();
  Plug(2, false);
  EXPECT_EQ(Events(Plug(0, false)), (News{{RingEvent::kLinkDown, kHome}}));
  EXPECT_EQ(Events(Plug(2, true)),
            (News{{RingEvent::kLinkUp, kAway}, {RingEvent::kMoved, kAway}}));
}

// Of the device in that place.
class PulledDeviceTest : public FailoverTest, public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(OwnOrBackup, PulledDeviceTest, ::testing::Values(0, 2));

TEST_P(PulledDeviceTest, MemoryIsRegisteredWithTheOneThatIsLeftAndSentByIt) {
  Open();
  card->device(GetParam()).Remove();
  Plug(GetParam(), true);
  alignas(64) static std::array<uint8_t, 4'096> memory;
  memory.fill('m');
  packet::Buffer* buffer = nullptr;
  ASSERT_TRUE(us->ring
                  ->RegisterMemory({.start = memory.data(), .bytes = memory.size(), .cookie = 5},
                                   &buffer)
                  .ok());
  us->Settle();
  const Handle ours = us->OpenSocket({.local = {kOwn, 7001}});
  peer->OpenSocket({.local = {kPeer, 6000}});
  packet::BufferPool::AddReferenceByOwner(buffer);
  Udp& udp = us->ring->udp();
  ASSERT_EQ(udp.SendTo(udp.Find(ours), {kPeer, 6000}, {memory.data(), 1'000, buffer}, {}),
            SendResult::kSent);
  EXPECT_EQ(Counter("queue", "tx_gathered"), 1u);
  card->Step();
  EXPECT_EQ(Take(*peer), std::vector<std::string>{std::string(1'000, 'm')});
  packet::BufferPool::ReleaseByOwner(buffer);
}

TEST_F(FailoverTest, NoPacketIsLostOrCountedTwice) {
  Open();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  std::vector<std::string> sent;
  std::vector<std::string> got;
  const auto send = [&] {
    for (int i = 0; i < 100; ++i) {  // More than one poll takes.
      sent.push_back(std::to_string(sent.size()));
      ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, sent.back()), SendResult::kSent);
    }
    card->Step();
  };
  const auto take = [&](const std::vector<Completion>& completions) {
    for (const Completion& completion : completions) {
      if (completion.kind != Kind::kPacket) continue;
      got.emplace_back(reinterpret_cast<const char*>(completion.data), completion.length);
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
  };
  send();  // In the queue still when the port goes down.
  take(Plug(0, false));
  send();
  for (int i = 0; i < 8; ++i) take(us->Poll());
  take(Plug(0, true));
  send();
  for (int i = 0; i < 8; ++i) take(us->Poll());
  EXPECT_EQ(got, sent);
  EXPECT_EQ(Counter("queue", "rx_frames"), sent.size());
}

TEST_F(FailoverTest, WhatTheOldPortHadHasNoTimeOfItsClock) {
  Open();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  std::vector<bool> timed;
  const auto take = [&](const std::vector<Completion>& completions) {
    NoteTimes(completions, &timed);
  };
  const auto send = [&] {
    ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "when"), SendResult::kSent);
    card->Step(/*advance_ns=*/1'000);
  };
  send();
  take(us->Poll());
  // More than a poll takes before it hears of the port.
  for (int i = 0; i < 100; ++i) send();
  take(Plug(0, false));
  send();
  take(us->Poll());
  ASSERT_EQ(timed.size(), 102u);
  EXPECT_TRUE(timed.front());
  EXPECT_FALSE(timed[100]);
  EXPECT_TRUE(timed.back());
}

TEST_F(FailoverTest, WhatHadLeftByTheOldPortIsToldWithoutATimeOfItsClock) {
  Open();
  const Handle ours = us->OpenSocket({.local = {kOwn, 7001}});
  ASSERT_EQ(us->SendTo(ours, {kPeer, 6000}, "x", {.flags = kSendWantWire, .cookie = 5}),
            SendResult::kSent);
  card->Step(/*advance_ns=*/1'000);
  // Before a poll that would have seen it.
  us->ring->OnPortEvent(nic::PortEvent::kLinkDown, us->ring->core().device.nic);
  std::vector<Completion> wires;
  for (const Completion& completion : Plug(0, false)) {
    if (completion.kind == Kind::kTxWire) wires.push_back(completion);
  }
  EXPECT_EQ(Counter("ring", "moves"), 1u);
  ASSERT_EQ(wires.size(), 1u);
  EXPECT_EQ(wires[0].cookie, 5u);
  EXPECT_EQ(wires[0].hw_clock, 0u);
  EXPECT_EQ(wires[0].hw_time_ns, 0);
}

// Such a frame comes from the queue of before the reset, by the same port.
TEST_F(FailoverTest, WhatAResetKeptHasNoTimeOfAnotherClockAfterAMove) {
  Open();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "when"), SendResult::kSent);
  card->Step(/*advance_ns=*/1'000);
  ASSERT_TRUE(us->ring->Reset(1).ok());
  us->engine->control().RunAndWait([] {});
  ends[0]->SetPlugged(false);
  card->Step();
  us->engine->control().RunAndWait([] {});
  EXPECT_EQ(TakeTimed(), std::vector<bool>{false});
  us->engine->control().RunAndWait([] {});
  us->Poll();
  EXPECT_EQ(Counter("ring", "moves"), 1u);
}

// Each port's clock began at another time.
TEST_F(FailoverTest, FramesThatAreKeptHaveTheTimeOfThePortThatTheyCameBy) {
  frames_in = ::testing::TempDir() + "failover_test_frames";
  std::filesystem::create_directory(frames_in);
  Open();
  int64_t begin_ns = 0;
  for (const RingPort& port : us->ring->core().ports->all) {
    begin_ns += 1'000'000'000'000;
    const nic::ClockConversion clock{.base_ns = begin_ns, .multiplier = 1, .in_sync = true};
    us->ring->OnClock({.host = clock, .ptp = {}}, {}, port.nic);
  }
  us->Poll();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  const auto last_time = [&] {
    EXPECT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "when"), SendResult::kSent);
    card->Step(/*advance_ns=*/1'000);
    EXPECT_EQ(Take(*us).size(), 1u);
    return KeptTimes().back();
  };
  const int64_t at_home = last_time();
  EXPECT_EQ(at_home / 1'000'000'000'000, 1);
  Plug(0, false);
  EXPECT_EQ(KeptTimes().back(), at_home);
  EXPECT_EQ(last_time() / 1'000'000'000'000, 2);
}

// While the rules go from port to port, what comes finds none: that is told where it happened, and
// nothing else is lost.
TEST_F(FailoverTest, ItComesBackUnderTrafficThatNeverEndsAndTheGapIsMarked) {
  Open();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  Plug(0, false);
  std::vector<std::string> sent;
  std::vector<std::string> got;
  std::vector<size_t> marked;  // Which of `got`.
  News news;
  const auto take = [&](const std::vector<Completion>& completions) {
    for (const Completion& completion : completions) {
      if (completion.kind == Kind::kRing) {
        news.emplace_back(completion.event, completion.interface_index);
      }
      if (completion.kind != Kind::kPacket) continue;
      if ((completion.flags & kAfterDrop) != 0) marked.push_back(got.size());
      got.emplace_back(reinterpret_cast<const char*>(completion.data), completion.length);
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
  };
  ends[0]->SetPlugged(true);
  const uint64_t notices = Counter("ring", "notices");
  constexpr size_t kOneRound = 50;  // More than a poll takes.
  for (int round = 0; round < 16; ++round) {
    for (size_t i = 0; i < kOneRound; ++i) {
      sent.push_back(std::to_string(sent.size()));
      ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, sent.back()), SendResult::kSent);
    }
    card->Step();
    us->engine->control().RunAndWait([] {});
    take(us->Poll(/*max=*/40));
    // What the poll started is done: of one round all come while the ring has no queues.
    us->engine->control().RunAndWait([] {});
  }
  EXPECT_EQ(news, (News{{RingEvent::kLinkUp, kHome}, {RingEvent::kMoved, kHome}}));
  EXPECT_LE(Counter("ring", "notices") - notices, 4u);
  for (int i = 0; i < 16; ++i) take(us->Poll());
  // Once for going away, once for coming back.
  ASSERT_EQ(marked.size(), 2u);
  EXPECT_EQ(marked[0], 0u);
  ASSERT_LE(marked[1] + kOneRound, sent.size());
  const auto gap = sent.begin() + static_cast<ptrdiff_t>(marked[1]);
  sent.erase(gap, gap + kOneRound);
  EXPECT_EQ(got, sent);
}

// The gap of the way back, from a port that works: from the first rule that goes to the last one
// that comes. The queues are there before.
TEST_F(FailoverTest, BetweenTheRulesOfTwoPortsTheDeviceDoesNothingElse) {
  Open();
  Listen(7000);
  Plug(0, false);
  const uint64_t before = card->calls();
  Plug(0, true);
  std::vector<std::string> calls = card->last_calls();
  const uint64_t count = card->calls() - before;
  ASSERT_LE(count, calls.size());
  calls.erase(calls.begin(), calls.end() - static_cast<ptrdiff_t>(count));
  const auto made = std::find(calls.begin(), calls.end(), "CREATE_QP");
  const auto first = std::find(calls.begin(), calls.end(), "DESTROY_FLOW");
  const auto last = std::find(calls.rbegin(), calls.rend(), "CREATE_FLOW").base();
  EXPECT_LT(made, first);
  constexpr ptrdiff_t kRules = 3;  // Of the two addresses, and of the group.
  EXPECT_EQ(last - first, 2 * kRules);
  EXPECT_EQ(std::count(first, last, "CREATE_FLOW"), kRules);
}

TEST_F(FailoverTest, AMoveThatFailsSaysWhyAndAResetTriesAgain) {
  Open();
  Overhear();
  Listen(7000);
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  card->FailNext("CREATE_QP", ENOMEM);
  bool told = false;
  for (const Completion& completion : Plug(0, false)) {
    if (completion.kind != Kind::kRing || completion.event != RingEvent::kMoved) continue;
    told = true;
    EXPECT_EQ(completion.status, ENOSPC);
  }
  EXPECT_TRUE(told);
  ASSERT_TRUE(us->ring->Reset(1).ok());
  us->Settle();
  ExpectAnnounced(Overhear());
  ASSERT_EQ(peer->SendTo(theirs, {kGroup, 7000}, "again"), SendResult::kSent);
  card->Step();
  uint32_t ifindex = 0;
  EXPECT_EQ(Take(*us, &ifindex), std::vector<std::string>{"again"});
  EXPECT_EQ(ifindex, kAway);
}

TEST_F(FailoverTest, AMembershipThatDidNotMoveIsTriedAgainByAReset) {
  Open();
  Listen(7000);
  us->kernel->FailJoins(absl::ResourceExhaustedError("join: no room"));
  std::vector<int> told;
  for (const Completion& completion : Plug(0, false)) {
    if (completion.kind != Kind::kRing || completion.event != RingEvent::kMoved) continue;
    told.push_back(completion.status);
  }
  EXPECT_EQ(told, std::vector<int>{ENOSPC});
  EXPECT_EQ(us->kernel->joined_on(),
            (std::multimap<wire::Ipv4Address, uint32_t>{{kGroup, kHome}}));
  us->kernel->FailJoins(absl::OkStatus());
  ASSERT_TRUE(us->ring->Reset(1).ok());
  us->Settle();
  EXPECT_EQ(us->kernel->joined_on(),
            (std::multimap<wire::Ipv4Address, uint32_t>{{kGroup, kAway}}));
}

// The rings of a host hear each other's group sends where they are on one port.
TEST_F(FailoverTest, OwnGroupSendsAreHeardByTheRingsOfThePortItIsOnNow) {
  Open();
  RingOptions options;
  options.rx_buffers = 2'048;
  options.hugepages = Hugepages::kNever;
  std::vector<std::unique_ptr<Ring>> others;
  for (const char* interface : {MemoryKernel::kInterface, MemoryKernel::kBackupInterface}) {
    options.interface_name = interface;
    auto opened = Ring::Open(us->engine.get(), options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    others.push_back(*std::move(opened));
    ASSERT_TRUE(others.back()->Start().ok());
    Handle listener = 0;
    ASSERT_TRUE(others.back()->udp().Open({.local = {{}, 7000}}, &listener).ok());
    ASSERT_TRUE(others.back()->udp().Join(listener, {kGroup, 0}, std::nullopt, 0, 1).ok());
  }
  us->Settle();
  const auto heard_by = [&others](size_t which) {
    int packets = 0;
    Completion completion;
    while (others[which]->Poll(&completion, 1, sizeof completion) == 1) {
      if (completion.kind != Kind::kPacket) continue;
      ++packets;
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
    return packets;
  };
  const Handle sender = us->OpenSocket({.local = {kOwn, 9000}, .multicast_loop = true});
  EXPECT_EQ(us->SendTo(sender, {kGroup, 7000}, "at home"), SendResult::kSent);
  EXPECT_EQ(heard_by(0), 1);
  EXPECT_EQ(heard_by(1), 0);
  Plug(0, false);
  EXPECT_EQ(us->SendTo(sender, {kGroup, 7000}, "away"), SendResult::kSent);
  EXPECT_EQ(heard_by(0), 0);
  EXPECT_EQ(heard_by(1), 1);
}

TEST_F(FailoverTest, WhatWaitedForANeighbourLeavesFromTheAddressOfThePortOfNow) {
  constexpr wire::Ipv4Address kSilent{10, 0, 0, 77};
  constexpr wire::MacAddress kSilentMac({2, 0, 0, 0, 0, 0x77});
  Open();
  const Handle ours = us->OpenSocket({.local = {kOwn, 7001}});
  ASSERT_EQ(us->SendTo(ours, {kSilent, 6000}, "waits"), SendResult::kQueued);
  Plug(0, false);
  Overhear();
  us->ring->udp().NeighbourSeen(kSilent, kSilentMac);
  us->ring->Flush();
  const auto heard = Overhear();
  ASSERT_EQ(heard.size(), 1u);
  const auto ethernet = wire::EthernetView::Parse(heard[0]);
  ASSERT_TRUE(ethernet.ok());
  EXPECT_EQ(ethernet->destination(), kSilentMac);
  EXPECT_EQ(ethernet->source(), wire::MacAddress(kBackupMac));
}

TEST_F(FailoverTest, APacedSocketKeepsItsRateAtTheBackup) {
  Open();
  const Handle ours = us->OpenSocket({.local = {kOwn, 7001}});
  peer->OpenSocket({.local = {kPeer, 6000}});
  const Outcome asked = us->ring->udp().SetRate(
      ours, {.bytes_per_second = 1'000'000, .burst_bytes = 1'000}, 1);
  ASSERT_TRUE(asked.ok()) << asked.text;
  us->Settle();
  EXPECT_EQ(Events(Plug(0, false)),
            (News{{RingEvent::kLinkDown, kHome}, {RingEvent::kMoved, kAway}}));
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(us->SendTo(ours, {kPeer, 6000}, std::string(958, 'p')), SendResult::kSent);
  }
  card->Step();
  EXPECT_EQ(Take(*peer).size(), 2u) << "one, and the burst";
  for (int i = 0; i < 3; ++i) {
    card->Step(/*advance_ns=*/1'000'000);
    EXPECT_EQ(Take(*peer).size(), 1u);
  }
}

TEST_F(FailoverTest, TheNetworkIsToldWhereTheAddressIsNow) {
  Open();
  Overhear();
  Plug(0, false);
  ExpectAnnounced(Overhear());
}

// A client at our ring and the peer's child, and what each side read.
class FailoverOfConnectionsTest : public FailoverTest {
 protected:
  void Connect() {
    Handle listener = 0;
    ASSERT_TRUE(peer->ring->tcp().OpenListener({.local = {{}, 8000}}, &listener).ok());
    peer->Settle();
    ASSERT_TRUE(us->ring->tcp().Connect({.peer = {kPeer, 8000}}, &client).ok());
    us->engine->control().RunAndWait([] {});
    Run(10);
    ASSERT_NE(child, 0u);
  }
  void Run(int milliseconds) {
    for (int i = 0; i < milliseconds; ++i) {
      now += 1'000'000;
      card->Step();
      for (const std::string& bytes : Take(*us)) at_us += bytes;
      for (const Completion& completion : peer->Poll()) {
        if (completion.kind == Kind::kAccepted) child = completion.socket;
        if (completion.kind != Kind::kPacket) continue;
        at_peer.append(reinterpret_cast<const char*>(completion.data), completion.length);
        packet::BufferPool::ReleaseChain(completion.buffer);
      }
    }
  }
  static SendResult Send(RingEnd& end, Handle socket, std::string_view bytes) {
    Tcp& tcp = end.ring->tcp();
    return tcp.Send(tcp.Find(socket),
                    {.data = reinterpret_cast<const uint8_t*>(bytes.data()),
                     .length = bytes.size()},
                    {});
  }
  void ExpectItGoesOn() {
    EXPECT_EQ(Send(*us, client, "request"), SendResult::kSent);
    Run(2);
    EXPECT_EQ(at_peer, "request") << "from the new port, and not only when it is sent again";
    EXPECT_EQ(Send(*peer, child, "reply"), SendResult::kSent);
    Run(4'000);
    EXPECT_EQ(at_peer, "request");
    EXPECT_EQ(at_us, "reply");
  }

  // A connection that was made at the backup, and the ring at home again; the peer still sends to
  // the backup, which works.
  void ConnectAndComeHome() {
    Open();
    objects_at_home = card->live_objects();
    Plug(0, false);
    TellPeer(kBackupMac);
    Connect();
    Plug(0, true);
  }
  uint64_t AtBackup(std::string_view counter) {
    for (const auto& [name, value] : card->device(2).Counters()) {
      if (name == counter) return value;
    }
    ADD_FAILURE() << counter;
    return 0;
  }
  // Whether a segment that the peer sends there is dropped by the device; else it is the kernel's.
  bool BackupDrops() {
    const uint64_t dropped = AtBackup("out_of_buffer");
    const uint64_t missed = AtBackup("rx_steer_missed_packets");
    EXPECT_EQ(Send(*peer, child, "late"), SendResult::kSent);
    Run(1);
    const bool drops = AtBackup("out_of_buffer") > dropped;
    EXPECT_EQ(AtBackup("rx_steer_missed_packets") > missed, !drops);
    return drops;
  }

  connectx::LiveObjects objects_at_home;
  Handle client = 0;
  Handle child = 0;
  std::string at_peer;
  std::string at_us;
};

TEST_F(FailoverOfConnectionsTest, AConnectionGoesOnAtTheBackup) {
  Open();
  Connect();
  Plug(0, false);
  TellPeer(kBackupMac);
  ExpectItGoesOn();
}

// What is behind a hole came by the other port's clock.
TEST_F(FailoverOfConnectionsTest, WhatWaitedBehindAHoleHasNoTimeOfTheOldPort) {
  Open();
  Connect();
  card->Step(/*advance_ns=*/1'000);
  ends[1]->SetPlugged(false);
  ASSERT_EQ(Send(*peer, child, "lost"), SendResult::kSent);
  Run(1);
  ends[1]->SetPlugged(true);
  ASSERT_EQ(Send(*peer, child, "early"), SendResult::kSent);
  Run(1);
  ASSERT_EQ(Counter("tcp", "held"), 1u);
  Plug(0, false);
  TellPeer(kBackupMac);
  std::vector<bool> timed;
  for (int i = 0; i < 4'000; ++i) {
    now += 1'000'000;
    card->Step(/*advance_ns=*/1'000'000);
    NoteTimes(us->Poll(), &timed);
    peer->Poll();
  }
  EXPECT_EQ(timed, (std::vector<bool>{true, false}));
}

// The last of its time-outs before has 3 s more to go.
TEST_F(FailoverOfConnectionsTest, WhatTimedOutMeanwhileGoesAtOnceWhenTheLinkWorksAgain) {
  Open();
  Connect();
  const auto plug_peer = [this](bool plugged) {
    ends[1]->SetPlugged(plugged);
    card->Step();
    peer->engine->control().RunAndWait([] {});
  };
  plug_peer(false);
  EXPECT_EQ(Send(*peer, child, "late"), SendResult::kSent);
  Run(3'500);
  plug_peer(true);
  Run(10);
  EXPECT_EQ(at_us, "late");
}

TEST_F(FailoverOfConnectionsTest, WhatTimedOutMeanwhileGoesAtOnceByTheBackup) {
  Open();
  Connect();
  ends[2]->SetPlugged(false);
  Plug(0, false);
  EXPECT_EQ(Send(*us, client, "late"), SendResult::kSent);
  Run(3'500);
  Plug(2, true);
  Run(10);
  EXPECT_EQ(at_peer, "late");
}

TEST_F(FailoverOfConnectionsTest, OneThatWasMadeThereComesBack) {
  Open();
  Plug(0, false);
  TellPeer(kBackupMac);
  Connect();
  Plug(0, true);
  TellPeer(kOwnMac);
  ExpectItGoesOn();
}

// Whoever has not heard yet that the ring is at home sends there: what is counted is the port's.
TEST_F(FailoverOfConnectionsTest, ADatagramThatStillComesToThePortThatItLeftFindsNoRule) {
  Open();
  us->OpenSocket({.local = {kOwn, 7001}});
  const Handle theirs = peer->OpenSocket({.local = {kPeer, 6000}});
  Plug(0, false);
  TellPeer(kBackupMac);
  Plug(0, true);
  const uint64_t missed = AtBackup("rx_steer_missed_packets");
  const uint64_t unicast = AtBackup("unicast_rcv_packets");
  ASSERT_EQ(peer->SendTo(theirs, {kOwn, 7001}, "late"), SendResult::kSent);
  card->Step();
  EXPECT_EQ(Take(*us), std::vector<std::string>{});
  EXPECT_EQ(AtBackup("rx_steer_missed_packets"), missed + 1);
  EXPECT_EQ(AtBackup("unicast_rcv_packets"), unicast + 1);
  EXPECT_EQ(AtBackup("out_of_buffer"), 0u);
}

TEST_F(FailoverOfConnectionsTest, SegmentsThatStillComeToThePortThatItLeftAreNotTheKernels) {
  ConnectAndComeHome();
  EXPECT_TRUE(BackupDrops());
  EXPECT_EQ(Counter("ring", "rules_not_left"), 0u);
  TellPeer(kOwnMac);
  Run(4'000);
  EXPECT_EQ(at_us, "late") << "sent again, and by the port of now";
  at_us.clear();
  ExpectItGoesOn();
}

TEST_F(FailoverOfConnectionsTest, TheRulesGoFromThePortThatItLeftAfterTenSeconds) {
  ConnectAndComeHome();
  now += 9'900'000'000;
  EXPECT_TRUE(BackupDrops());
  now += 200'000'000;
  Run(20);
  us->engine->control().RunAndWait([] {});
  EXPECT_FALSE(BackupDrops());
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps);
}

TEST_F(FailoverOfConnectionsTest, WithAResetTheyGoAtOnce) {
  ConnectAndComeHome();
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps + 1);
  ASSERT_TRUE(us->ring->Reset(1).ok());
  us->Settle();
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps);
  EXPECT_FALSE(BackupDrops());
}

TEST_F(FailoverOfConnectionsTest, TheyGoWhenThePortIsTheRingsAgain) {
  ConnectAndComeHome();
  Plug(0, false);
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps + 1) << "at home now";
  ExpectItGoesOn();
  // Of the first move nothing ends what the second one left.
  now += 9'000'000'000;
  Run(20);
  us->engine->control().RunAndWait([] {});
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps);
}

// TearDown() looks for what is left of it.
TEST_F(FailoverOfConnectionsTest, ARingThatClosesMeanwhileLeavesNothing) {
  ConnectAndComeHome();
  EXPECT_EQ(card->live_objects().qps, objects_at_home.qps + 1);
}

TEST_F(FailoverOfConnectionsTest, WithoutAQueueForThemTheRulesGoAndAreCounted) {
  Open();
  Plug(0, false);
  TellPeer(kBackupMac);
  Connect();
  // The queue for them is made after the ring's own: the last of a move.
  const uint64_t before = card->calls();
  Plug(0, true);
  const std::vector<std::string> calls = card->last_calls();
  const auto last = std::find(calls.rbegin(), calls.rend(), "CREATE_QP").base() - 1;
  const uint64_t behind = static_cast<uint64_t>(calls.end() - last);
  EXPECT_EQ(Counter("ring", "rules_not_left"), 0u);
  card->FailAfter(card->calls() - before - behind, ENOMEM);
  EXPECT_EQ(Events(Plug(0, false)),
            (News{{RingEvent::kLinkDown, kHome}, {RingEvent::kMoved, kAway}}));
  EXPECT_GT(Counter("ring", "rules_not_left"), 0u);
  ExpectItGoesOn();
}

TEST_F(FailoverOfConnectionsTest, DropsOfThePortThatItLeftAreNoLossesOfTheRing) {
  ConnectAndComeHome();
  us->ring->OnPortCounters({.out_of_buffer = 3, .discards = 1},
                           us->ring->core().ports->all[1].nic);
  EXPECT_TRUE(us->Poll().empty());
  EXPECT_EQ(Counter("ring", "left_port_drops"), 3u);
  EXPECT_EQ(Counter("port", "out_of_buffer"), 0u);
}

}  // namespace
}  // namespace xtreme::engine::testing
