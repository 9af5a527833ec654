// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/neighbour_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "stack/wire/golden.h"

namespace xtreme::ip {
namespace {

using base::Milliseconds;
using base::Nanoseconds;
using base::Seconds;
using wire::Ipv4Address;
using wire::MacAddress;
using Kind = NeighbourCache::Action::Kind;
using Status = NeighbourCache::Status;

constexpr Ipv4Address kUs(192, 0, 2, 1);
constexpr MacAddress kOurMac({2, 0, 0, 0, 0, 1});
constexpr Ipv4Address kHop(192, 0, 2, 9);
constexpr MacAddress kHopMac({2, 0, 0, 0, 0, 9});
constexpr MacAddress kNewMac({2, 0, 0, 0, 0, 8});

class NeighbourCacheTest : public ::testing::Test {
 protected:
  static NeighbourCache::Options Defaults() { return {.mac = kOurMac, .address = kUs}; }

  // Everything there is to do now.
  std::vector<NeighbourCache::Action> Actions(NeighbourCache& cache) {
    std::vector<NeighbourCache::Action> actions;
    while (actions.size() < 100) {
      const NeighbourCache::Action action = cache.Next(now_);
      if (action.kind == Kind::kNone) break;
      actions.push_back(action);
    }
    return actions;
  }
  std::vector<Kind> Kinds(NeighbourCache& cache) {
    std::vector<Kind> kinds;
    for (const NeighbourCache::Action& action : Actions(cache)) kinds.push_back(action.kind);
    return kinds;
  }
  void Hear(NeighbourCache& cache, wire::ArpOperation operation, MacAddress mac, Ipv4Address sender,
            Ipv4Address target = kUs) {
    wire::Bytes packet(wire::kArpBytes);
    wire::ArpRepr{.operation = operation, .sender_mac = mac, .sender = sender, .target = target}
        .Emit(packet);
    cache.OnArp(*wire::ArpView::Parse(packet), now_);
  }
  void HearReply(NeighbourCache& cache, MacAddress mac = kHopMac) {
    Hear(cache, wire::ArpOperation::kReply, mac, kHop);
  }
  // A cache that knows kHop and has nothing to do.
  void Learn(NeighbourCache& cache) {
    cache.Resolve(kHop, now_);
    HearReply(cache);
    Actions(cache);
  }

  NeighbourCache::Packet* P(int number) { return &packets_[static_cast<size_t>(number)]; }

  Nanoseconds now_ = Seconds(100);
  std::array<NeighbourCache::Packet, 32> packets_{};
  NeighbourCache cache_{Defaults()};
};

TEST_F(NeighbourCacheTest, AnUnknownNextHopIsAskedForByBroadcast) {
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kSendArp);
  EXPECT_EQ(actions[0].mac, MacAddress::Broadcast());
  EXPECT_EQ(actions[0].arp, (wire::ArpRepr{.operation = wire::ArpOperation::kRequest,
                                           .sender_mac = kOurMac,
                                           .sender = kUs,
                                           .target = kHop}));
}

TEST_F(NeighbourCacheTest, ManySendsAskOnce) {
  for (int i = 0; i < 10; ++i) cache_.Resolve(kHop, now_);
  EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp});
}

TEST_F(NeighbourCacheTest, TheAnswerSendsWhatWaitedInOrder) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache_.Enqueue(kHop, P(i), now_).status, Status::kPending);
  }
  EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp});
  HearReply(cache_);
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 4u);
  EXPECT_EQ(actions[0].kind, Kind::kResolved);
  EXPECT_EQ(actions[0].address, kHop);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(actions[1u + i].kind, Kind::kTransmit);
    EXPECT_EQ(actions[1u + i].packet, P(i));
    EXPECT_EQ(actions[1u + i].mac, kHopMac);
  }
  const auto known = cache_.Resolve(kHop, now_);
  EXPECT_EQ(known.status, Status::kReachable);
  EXPECT_EQ(known.mac, kHopMac);
}

TEST_F(NeighbourCacheTest, WhatWaitsIsNotOvertaken) {
  cache_.Enqueue(kHop, P(0), now_);
  HearReply(cache_);
  EXPECT_EQ(cache_.Enqueue(kHop, P(1), now_).status, Status::kPending);
  Actions(cache_);
  EXPECT_EQ(cache_.Enqueue(kHop, P(2), now_).status, Status::kReachable);
}

TEST_F(NeighbourCacheTest, AFullQueueRefusesThePacket) {
  for (int i = 0; i < 4; ++i) cache_.Enqueue(kHop, P(i), now_);
  EXPECT_EQ(cache_.QueueRoom(kHop), 0u);
  EXPECT_EQ(cache_.Enqueue(kHop, P(4), now_).status, Status::kQueueFull);
  EXPECT_EQ(cache_.counters().queue_full, 1u);
}

TEST_F(NeighbourCacheTest, WhoDoesNotAnswerThreeRequestsIsUnreachable) {
  cache_.Enqueue(kHop, P(0), now_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp}) << i;
    EXPECT_EQ(cache_.NextDeadline(), now_ + Seconds(1));
    now_ += Milliseconds(999);
    EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
    now_ += Milliseconds(1);
  }
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].kind, Kind::kLost);
  EXPECT_TRUE(actions[0].mac.IsZero()) << "it never answered";
  EXPECT_EQ(actions[1].kind, Kind::kUnreachable);
  EXPECT_EQ(actions[1].packet, P(0));
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kUnreachable);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{}) << "who only looks asks nobody";
  EXPECT_EQ(cache_.counters().failed, 1u);
}

TEST_F(NeighbourCacheTest, WhatIsToBeSentToAFailedNeighbourAsksAnew) {
  cache_.Enqueue(kHop, P(0), now_);
  for (int i = 0; i < 3; ++i, now_ += Seconds(1)) Actions(cache_);
  EXPECT_EQ(cache_.Next(now_).kind, Kind::kLost);
  EXPECT_EQ(cache_.Enqueue(kHop, P(1), now_).status, Status::kUnreachable) << "one waits still";
  EXPECT_EQ(cache_.Next(now_).kind, Kind::kUnreachable);
  EXPECT_EQ(cache_.Enqueue(kHop, P(1), now_).status, Status::kPending);
  for (int i = 0; i < 3; ++i, now_ += Seconds(1)) {
    EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp}) << i;
  }
  EXPECT_EQ(Kinds(cache_), (std::vector{Kind::kLost, Kind::kUnreachable}));
  EXPECT_EQ(cache_.ResolveToSend(kHop, now_).status, Status::kPending);
  HearReply(cache_);
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kReachable);
}

TEST_F(NeighbourCacheTest, AFailedNeighbourIsForgottenAfterTheHold) {
  cache_.Resolve(kHop, now_);
  for (int i = 0; i < 4; ++i, now_ += Seconds(1)) Actions(cache_);
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kUnreachable);
  now_ += Seconds(3);
  Actions(cache_);
  EXPECT_EQ(cache_.NextDeadline(), base::kNever) << "forgotten";
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
}

TEST_F(NeighbourCacheTest, ALateAnswerRevivesAFailedNeighbour) {
  cache_.Resolve(kHop, now_);
  for (int i = 0; i < 4; ++i, now_ += Seconds(1)) Actions(cache_);
  HearReply(cache_);
  EXPECT_EQ(Kinds(cache_), std::vector{Kind::kResolved});
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kReachable);
}

TEST_F(NeighbourCacheTest, ANeighbourInUseIsProbedByUnicastBeforeItExpires) {
  Learn(cache_);
  EXPECT_EQ(cache_.NextDeadline(), now_ + Seconds(25));
  cache_.Resolve(kHop, now_);
  now_ += Seconds(25);
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kSendArp);
  EXPECT_EQ(actions[0].mac, kHopMac);
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kReachable) << "good meanwhile";
  HearReply(cache_);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{}) << "nothing changed";
  EXPECT_EQ(cache_.NextDeadline(), now_ + Seconds(25));
  EXPECT_EQ(cache_.counters().probes, 1u);
}

TEST_F(NeighbourCacheTest, ProbesWithoutAnswerTurnIntoBroadcastsAtExpiry) {
  Learn(cache_);
  const Nanoseconds learned = now_;
  cache_.Resolve(kHop, now_);
  for (int i = 0; i < 3; ++i) {
    now_ = learned + Seconds(25 + i);
    EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp}) << i;
    EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kReachable);
  }
  now_ = learned + Seconds(29);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
  now_ = learned + Seconds(30);
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].mac, MacAddress::Broadcast());
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
}

TEST_F(NeighbourCacheTest, ANeighbourNobodyUsesIsForgottenSilently) {
  Learn(cache_);
  now_ += Seconds(25);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
  EXPECT_EQ(cache_.NextDeadline(), base::kNever);
}

TEST_F(NeighbourCacheTest, APinnedNeighbourIsKeptKnown) {
  EXPECT_TRUE(cache_.Pin(kHop, now_));
  Learn(cache_);
  for (int i = 0; i < 3; ++i) {
    now_ += Seconds(25);
    EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp});
    HearReply(cache_);
  }
  cache_.Unpin(kHop);
  now_ += Seconds(25);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
}

TEST_F(NeighbourCacheTest, AChangedMacIsReported) {
  Learn(cache_);
  HearReply(cache_, kNewMac);
  const auto actions = Actions(cache_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kResolved);
  EXPECT_EQ(actions[0].mac, kNewMac);
  EXPECT_EQ(cache_.counters().changed, 1u);
}

TEST_F(NeighbourCacheTest, NobodyUnknownIsLearned) {
  HearReply(cache_);
  cache_.Confirm(kHop, kHopMac, now_);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
  EXPECT_EQ(cache_.counters().ignored, 2u);
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
}

TEST_F(NeighbourCacheTest, ImpossibleSendersAreIgnored) {
  cache_.Resolve(kHop, now_);
  Actions(cache_);
  HearReply(cache_, MacAddress::Broadcast());
  HearReply(cache_, MacAddress());
  HearReply(cache_, MacAddress({1, 0, 0x5E, 0, 0, 1}));
  cache_.Confirm(kHop, MacAddress::Broadcast(), now_);
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
  EXPECT_EQ(cache_.counters().ignored, 4u);
}

TEST_F(NeighbourCacheTest, WhatTheKernelKnowsResolves) {
  cache_.Enqueue(kHop, P(0), now_);
  cache_.Confirm(kHop, kHopMac, now_);
  EXPECT_EQ(Kinds(cache_), (std::vector{Kind::kResolved, Kind::kTransmit}))
      << "and nothing is asked any more";
}

TEST_F(NeighbourCacheTest, WhatSomebodyKnowsIsBelievedAndAskedInTime) {
  EXPECT_EQ(cache_.ResolveFrom(kHop, kHopMac, now_), kHopMac);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
  now_ += Seconds(25);
  EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp});
  EXPECT_FALSE(cache_.Adopt(kHop, kHopMac, now_)) << "the same is no news";
  HearReply(cache_, kNewMac);
  EXPECT_EQ(cache_.ResolveFrom(kHop, kHopMac, now_), kNewMac) << "who answers knows better";
  EXPECT_TRUE(cache_.Adopt(kHop, kNewMac, now_));
}

TEST_F(NeighbourCacheTest, WhatSomebodyKnowsMakesNoRoomForItself) {
  NeighbourCache small({.mac = kOurMac, .address = kUs, .entries = 1});
  EXPECT_EQ(small.ResolveFrom(kHop, MacAddress::Broadcast(), now_), std::nullopt);
  EXPECT_EQ(small.ResolveFrom(kHop, kHopMac, now_), kHopMac);
  EXPECT_EQ(small.ResolveFrom(Ipv4Address(192, 0, 2, 77), kHopMac, now_), std::nullopt);
  EXPECT_EQ(small.counters().evicted, 0u);
  // Nobody sends to it: it is forgotten, which is counted.
  now_ += Seconds(25);
  small.Next(now_);
  small.Confirm(kHop, kHopMac, now_);
  now_ += Seconds(25);
  small.Next(now_);
  EXPECT_EQ(small.counters().unused, 1u);
  EXPECT_FALSE(small.Knows(kHop));
}

TEST_F(NeighbourCacheTest, AnInvalidatedNeighbourInUseIsAskedForAgain) {
  Learn(cache_);
  cache_.Resolve(kHop, now_);
  cache_.Invalidate(kHop, now_);
  EXPECT_EQ(Kinds(cache_), std::vector{Kind::kSendArp});
  EXPECT_EQ(cache_.Resolve(kHop, now_).status, Status::kPending);
}

TEST_F(NeighbourCacheTest, RequestsAreAnsweredOnlyWhenConfigured) {
  Hear(cache_, wire::ArpOperation::kRequest, kHopMac, kHop);
  EXPECT_EQ(Kinds(cache_), std::vector<Kind>{});
  NeighbourCache::Options options = Defaults();
  options.answer_requests = true;
  NeighbourCache alone(options);
  Hear(alone, wire::ArpOperation::kRequest, kHopMac, kHop);
  const auto actions = Actions(alone);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].mac, kHopMac);
  EXPECT_EQ(actions[0].arp, (wire::ArpRepr{.operation = wire::ArpOperation::kReply,
                                           .sender_mac = kOurMac,
                                           .sender = kUs,
                                           .target_mac = kHopMac,
                                           .target = kHop}));
  Hear(alone, wire::ArpOperation::kRequest, kHopMac, kHop, Ipv4Address(192, 0, 2, 77));
  EXPECT_EQ(Kinds(alone), std::vector<Kind>{}) << "for another";
  Hear(alone, wire::ArpOperation::kRequest, kHopMac, Ipv4Address::Any());
  EXPECT_EQ(Kinds(alone), std::vector{Kind::kSendArp}) << "an address probe, RFC 5227";
}

TEST_F(NeighbourCacheTest, AFloodOfRequestsIsAnsweredWithinBounds) {
  NeighbourCache::Options options = Defaults();
  options.answer_requests = true;
  NeighbourCache alone(options);
  for (int i = 0; i < 20; ++i) Hear(alone, wire::ArpOperation::kRequest, kHopMac, kHop);
  EXPECT_EQ(Actions(alone).size(), 8u);
  EXPECT_EQ(alone.counters().answers_dropped, 12u);
}

TEST_F(NeighbourCacheTest, AFullTableEvictsWhatNobodyUsesElseRefuses) {
  NeighbourCache::Options options = Defaults();
  options.entries = 2;
  NeighbourCache small(options);
  Learn(small);
  EXPECT_TRUE(small.Pin(Ipv4Address(192, 0, 2, 20), now_));
  EXPECT_EQ(small.Resolve(Ipv4Address(192, 0, 2, 21), now_).status, Status::kPending);
  EXPECT_EQ(small.Resolve(kHop, now_).status, Status::kTableFull) << "evicted, and no room";
  EXPECT_FALSE(small.Pin(kHop, now_));
  EXPECT_EQ(small.counters().table_full, 2u);
  EXPECT_EQ(small.counters().evicted, 1u);
  EXPECT_FALSE(small.Knows(kHop));
  EXPECT_EQ(small.QueueRoom(kHop), 0u);
}

}  // namespace
}  // namespace xtreme::ip
