// SPDX-License-Identifier: Apache-2.0
//
// Neighbours that the kernel does not know, over time.

#include "xtreme/engine/neighbours.h"

#include <gtest/gtest.h>
#include <linux/neighbour.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "stack/wire/arp.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/host/fib.h"
#include "xtreme/host/kernel_tables.h"

namespace xtreme::engine::testing {
namespace {

class NeighboursTest : public RingTest {
 protected:
  static constexpr wire::MacAddress kMac{{2, 0, 0, 0, 0, 0x77}};

  SendResult SendTo(Handle socket, wire::Endpoint peer, uint32_t flags = 0) {
    const uint8_t byte = 'x';
    return ring->udp().SendTo(ring->udp().Find(socket), peer, {.data = &byte, .length = 1},
                              {.flags = flags});
  }
  // Lets time pass in steps, as a ring that is polled sees it; what was told meanwhile.
  std::vector<Completion> Pass(int64_t milliseconds) {
    std::vector<Completion> told;
    for (; milliseconds > 0; milliseconds -= 100) {
      now += 100'000'000;
      for (const Completion& completion : PollAll()) told.push_back(completion);
    }
    return told;
  }
  // Where the ARP requests sent since the last call went.
  std::vector<wire::MacAddress> Requests() {
    std::vector<wire::MacAddress> destinations;
    for (const SentFrame& sent : queue().sent()) {
      const auto ethernet = wire::EthernetView::Parse(sent.bytes);
      if (ethernet->ether_type() == wire::kEtherTypeArp) {
        destinations.push_back(ethernet->destination());
      }
    }
    queue().sent().clear();
    return destinations;
  }
  // A socket that has sent to kStranger, who answered.
  Handle Resolved() {
    Open();
    const Handle socket = OpenSocket(7000);
    EXPECT_EQ(SendTo(socket, kStranger), SendResult::kQueued);
    kernel->Answer(kStranger.address, kMac);
    PollAll();
    EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{wire::MacAddress::Broadcast()});
    EXPECT_EQ(SendTo(socket, kStranger), SendResult::kSent);
    return socket;
  }
};

TEST_F(NeighboursTest, InUseItIsAskedAgainByUnicastBeforeItExpires) {
  const Handle socket = Resolved();
  // Twice: a send after the answer says that it is still in use.
  for (int time = 0; time < 2; ++time) {
    Pass(24'000);
    EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{}) << time;
    Pass(1'500);
    EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{kMac}) << time;
    kernel->Answer(kStranger.address, kMac);
    PollAll();
    EXPECT_EQ(SendTo(socket, kStranger, kNowOrFail), SendResult::kSent);
    queue().sent().clear();
  }
}

TEST_F(NeighboursTest, NotInUseItIsForgottenWithoutAWord) {
  Resolved();
  kernel->Answer(kStranger.address, kMac);  // And nothing is sent after it.
  queue().sent().clear();
  EXPECT_TRUE(Pass(60'000).empty());
  EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{});
}

TEST_F(NeighboursTest, OneThatAnswersNoMoreIsLostAndSendsWaitForItAnew) {
  const Handle socket = Resolved();
  const auto told = Pass(34'000);
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kRing});
  EXPECT_EQ(told[0].event, RingEvent::kNeighbourLost);
  EXPECT_EQ(told[0].destination_ip[15], 77);
  EXPECT_EQ(Counter("neighbour", "failed"), 1u);
  queue().sent().clear();
  EXPECT_EQ(SendTo(socket, kStranger), SendResult::kQueued);
  EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{wire::MacAddress::Broadcast()});
  kernel->Answer(kStranger.address, kMac);
  PollAll();
  EXPECT_EQ(SendTo(socket, kStranger), SendResult::kSent);
}

TEST_F(NeighboursTest, OneThatFailedIsAskedForAnewEvenIfNothingMayWait) {
  Open();
  const Handle socket = OpenSocket(7000);
  EXPECT_EQ(SendTo(socket, kStranger, kNowOrFail), SendResult::kRefusedNeighbour);
  EXPECT_TRUE(Pass(3'500).empty());
  EXPECT_EQ(Requests().size(), 3u);
  EXPECT_TRUE(Pass(1'000).empty());
  EXPECT_EQ(Requests().size(), 0u) << "nothing is sent";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(SendTo(socket, kStranger, kNowOrFail), SendResult::kRefusedNeighbour);
  }
  EXPECT_EQ(Requests().size(), 1u);
  kernel->Answer(kStranger.address, kMac);
  PollAll();
  EXPECT_EQ(SendTo(socket, kStranger, kNowOrFail), SendResult::kSent);
}

TEST_F(NeighboursTest, ANeighbourThatMovedIsFollowed) {
  const Handle socket = Resolved();
  const wire::MacAddress moved({2, 0, 0, 0, 0, 0x78});
  kernel->Answer(kStranger.address, moved);
  PollAll();
  queue().sent().clear();
  EXPECT_EQ(SendTo(socket, kStranger), SendResult::kSent);
  EXPECT_EQ(wire::EthernetView::Parse(queue().sent().at(0).bytes)->destination(), moved);
}

TEST_F(NeighboursTest, OneThatNobodyAskedForOutdatesNothing) {
  Resolved();
  const uint64_t version = ring->core().host.routes_version;
  kernel->Answer({10, 0, 0, 99}, kMac);
  PollAll();
  EXPECT_EQ(ring->core().host.routes_version, version);
  EXPECT_EQ(Counter("neighbour", "ignored"), 1u);
  kernel->Answer(kStranger.address, kMac);
  PollAll();
  EXPECT_GT(ring->core().host.routes_version, version) << "who uses it says so again";
}

TEST_F(NeighboursTest, AFloodThatARingDoesNotTakeIsCountedAndGone) {
  Resolved();
  const uint64_t notices = Counter("ring", "notices");
  for (uint32_t i = 0; i < 1'000; ++i) kernel->Answer(kStranger.address, kMac);
  PollAll();
  EXPECT_EQ(Counter("ring", "notices") - notices, Engine::kMostSightings);
  kernel->Answer(kStranger.address, kMac);
  PollAll();
  EXPECT_EQ(Counter("ring", "notices") - notices, Engine::kMostSightings + 1);
  EXPECT_EQ(Counter("ring", "sightings_lost"), 1'000 - Engine::kMostSightings);
}

TEST_F(NeighboursTest, AConnectWhoseNextHopNeverAnswersEndsWithEhostunreach) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 9).ok());
  const auto told = Pass(4'000);
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(told[0].status, EHOSTUNREACH);
  EXPECT_EQ(told[0].cookie, 9u);
}

TEST_F(NeighboursTest, AConnectToWhomDidNotAnswerLatelyAsksAnew) {
  Open();
  const Handle socket = OpenSocket(7000);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 9).ok());
  ASSERT_EQ(Pass(3'500).size(), 1u);
  EXPECT_EQ(Requests().size(), 3u);
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 10).ok());
  EXPECT_TRUE(PollAll().empty());
  EXPECT_EQ(Requests().size(), 1u);
  const auto told = Pass(3'500);
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(told[0].status, EHOSTUNREACH);
  EXPECT_EQ(told[0].cookie, 10u);
  queue().sent().clear();
  ASSERT_TRUE(ring->udp().Connect(socket, kStranger, 11).ok());
  EXPECT_EQ(Requests().size(), 1u);
  kernel->Answer(kStranger.address, kMac);
  const auto answered = PollAll();
  ASSERT_EQ(Kinds(answered), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(answered[0].status, 0);
  EXPECT_EQ(answered[0].cookie, 11u);
}

TEST_F(NeighboursTest, AConnectEndsAtOnceWhereTooManyAreBeingAskedFor) {
  Open();
  const host::Route wide{.destination = {{10, 0, 0, 0}, 16},
                         .type = host::RouteType::kUnicast,
                         .next_hops = {{.ifindex = MemoryKernel::kIfindex}}};
  kernel->tables().fib = std::make_shared<host::Fib>(std::vector{wide},
                                                     std::vector<host::RoutingRule>{});
  kernel->Publish();
  PollAll();
  const Handle socket = OpenSocket(7000);
  uint64_t cookie = 0;
  std::vector<Completion> told;
  for (; cookie < 1'000 && told.empty(); ++cookie) {
    const auto low = static_cast<uint8_t>(cookie % 250 + 1);
    const wire::Ipv4Address address(10, 0, static_cast<uint8_t>(cookie / 250 + 1), low);
    ASSERT_TRUE(ring->udp().Connect(socket, {address, 7000}, cookie).ok());
    told = PollAll();
  }
  ASSERT_EQ(Kinds(told), std::vector<Kind>{Kind::kOpDone});
  EXPECT_EQ(told[0].status, ENOBUFS);
  EXPECT_EQ(told[0].cookie, cookie - 1);
}

TEST_F(NeighboursTest, WhatWaitsWhenTheRingClosesGivesItsBuffersBack) {
  Open();
  const Handle socket = OpenSocket(7000);
  packet::Buffer* buffer = ring->AcquireBuffer();
  buffer->length = 1;
  ASSERT_EQ(ring->udp().SendTo(ring->udp().Find(socket), kStranger,
                               {.data = buffer->data, .length = 1, .buffer = buffer}, {}),
            SendResult::kQueued);
  packet::BufferPool::AddReference(buffer);
  ring.reset();
  engine.reset();
  EXPECT_TRUE(packet::BufferPool::Release(buffer));
}

// --- Neighbours that the kernel knows, and nobody asks ---

class KnownNeighboursTest : public NeighboursTest {
 protected:
  static constexpr wire::MacAddress kOther{{2, 0, 0, 0, 0, 0x78}};

  // As the kernel has one that it has not heard of lately.
  void Teach(wire::MacAddress mac, uint16_t state = NUD_STALE) {
    std::vector<host::Neighbour>& all = kernel->tables().neighbours;
    std::erase_if(all, [](const host::Neighbour& each) {
      return each.address == kStranger.address;
    });
    all.push_back({.ifindex = MemoryKernel::kIfindex,
                   .address = kStranger.address,
                   .mac = mac,
                   .state = state});
    kernel->Publish();
    PollAll();
  }
  // Where a datagram to it goes.
  wire::MacAddress Where(Handle socket) {
    queue().sent().clear();
    EXPECT_EQ(SendTo(socket, kStranger, kNowOrFail), SendResult::kSent);
    return queue().sent().empty()
               ? wire::MacAddress()
               : wire::EthernetView::Parse(queue().sent().back().bytes)->destination();
  }
};

// Those whose next hop is told first ask for it again, which must not tell of another's meanwhile.
TEST_F(KnownNeighboursTest, EachConnectGoesOnWhereSeveralNextHopsAreFoundAtOnce) {
  constexpr wire::Ipv4Address kLater(10, 0, 0, 78);
  Open();
  EXPECT_EQ(SendTo(OpenSocket(7000), kStranger), SendResult::kQueued);
  Handle connect = 0;
  ASSERT_TRUE(ring->tcp().Connect({.peer = {kLater, 7000}}, &connect).ok());
  Settle();  // Its ports stand.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(ring->tcp().Connect({.peer = {kStranger.address, 7000}}, &connect).ok());
  }
  kernel->tables().neighbours.push_back({.ifindex = MemoryKernel::kIfindex,
                                         .address = kLater,
                                         .mac = kOther,
                                         .state = NUD_STALE});
  queue().sent().clear();
  Teach(kMac);
  EXPECT_EQ(std::ranges::count_if(queue().sent(), [](const SentFrame& sent) {
              return wire::LooksLikeTcp(sent.bytes.data(), sent.bytes.size());
            }), 3);
}

TEST_F(KnownNeighboursTest, OneIsAskedInTimeAndFoundWhereItIs) {
  Open();
  const Handle socket = OpenSocket(7000);
  Teach(kMac);
  EXPECT_EQ(Where(socket), kMac) << "at once";
  queue().sent().clear();
  Pass(24'000);
  EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{});
  Pass(1'500);
  EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{kMac});
  // The kernel says the same again, for some other reason.
  Teach(kMac, NUD_DELAY);
  Pass(5'000);
  EXPECT_EQ(Requests().back(), wire::MacAddress::Broadcast()) << "no answer";
  EXPECT_EQ(Where(socket), kMac) << "as long as the kernel would";
  kernel->Answer(kStranger.address, kOther);
  PollAll();
  EXPECT_EQ(Where(socket), kOther);
}

TEST_F(KnownNeighboursTest, OneThatDoesNotAnswerIsToldOnceSentToAndAskedFor) {
  Open();
  const Handle socket = OpenSocket(7000);
  Teach(kMac);
  uint32_t lost = 0;
  for (int time = 0; time < 30; ++time) {
    EXPECT_EQ(Where(socket), kMac) << time;
    for (const Completion& completion : Pass(2'000)) {
      lost += completion.kind == Kind::kRing && completion.event == RingEvent::kNeighbourLost;
    }
  }
  EXPECT_EQ(lost, 1u);
  Pass(8'000);
  EXPECT_NE(Requests(), std::vector<wire::MacAddress>{}) << "it may come back";
}

TEST_F(KnownNeighboursTest, OneThatMovedByTheKernelsWordIsSentToThere) {
  Open();
  const Handle socket = OpenSocket(7000);
  Teach(kMac);
  EXPECT_EQ(Where(socket), kMac);
  Teach(kOther);
  EXPECT_EQ(Where(socket), kOther);
}

TEST_F(KnownNeighboursTest, OneThatIsSettledIsNotAsked) {
  Open();
  const Handle socket = OpenSocket(7000);
  Teach(kMac, NUD_PERMANENT);
  EXPECT_EQ(Where(socket), kMac);
  queue().sent().clear();
  Pass(60'000);
  EXPECT_EQ(Requests(), std::vector<wire::MacAddress>{});
}

}  // namespace
}  // namespace xtreme::engine::testing
