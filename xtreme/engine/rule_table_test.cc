// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/rule_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "stack/wire/ipv4.h"
#include "xtreme/engine/testing/memory_nic.h"
#include "xtreme/nic/absent_queue_pair.h"

namespace xtreme::engine {
namespace {

using testing::MemoryNic;

class RuleTableTest : public ::testing::Test {
 protected:
  static nic::FlowRule Rule(uint32_t number) {
    nic::FlowRule rule;
    rule.match.destination_mac = wire::MacAddress({2, 0, 0, 0, 0, 1});
    rule.match.destination_ip = wire::Ipv4Address(10, 0, 0, 1 + number / 50'000);
    rule.match.protocol = 17;
    rule.match.destination_port = static_cast<uint16_t>(1'000 + number % 50'000);
    return rule;
  }

  MemoryNic nic_{{.max_rules = 20'000}};
  nic::AbsentQueuePair queue_{nic_.capabilities()};
  RuleTable table_{&nic_, &queue_};
};

TEST_F(RuleTableTest, AnEqualMatchIsOneRuleUntilItsLastHolderDropsIt) {
  const auto first = table_.Hold(Rule(0));
  const auto second = table_.Hold(Rule(0));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->entry, second->entry);
  EXPECT_EQ(nic_.rules().size(), 1u);
  table_.Drop(first->entry);
  EXPECT_EQ(nic_.rules().size(), 1u);
  table_.Drop(second->entry);
  EXPECT_TRUE(nic_.rules().empty());
  EXPECT_EQ(table_.size(), 0u);
}

// As another process's may.
TEST_F(RuleTableTest, AMatchThatStandsWithAnotherTagIsJoinedWithoutOne) {
  nic::FlowRule theirs = Rule(0);
  theirs.tag = 1;
  const auto stands = nic_.AddRule(theirs, &queue_);
  nic::FlowRule ours = Rule(0);
  ours.tag = 2;
  const auto held = table_.Hold(ours);
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_EQ(nic_.rules().size(), 2u);
  EXPECT_EQ(nic_.rules()[1].tag, 0u);
  table_.Drop(held->entry);
}

TEST_F(RuleTableTest, WhereNoSharedRuleCanStandInWhatStoodGoesOn) {
  MemoryNic full({.max_rules = 1, .share_with_kernel = false});
  RuleTable table(&full, &queue_);
  const auto held = table.Hold(Rule(0));
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(table.Hold(Rule(1)).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(full.rules().size(), 1u);
  EXPECT_EQ(full.rules()[0].match, Rule(0).match);
  table.Drop(held->entry);
}

// A group's rules have no priorities: the shared one takes them all, or they come twice.
TEST_F(RuleTableTest, OfAGroupTheSharedRuleStandsAloneUntilItsLastHolderDropsIt) {
  MemoryNic full({.max_rules = 2});
  RuleTable table(&full, &queue_);
  const auto of_group = [](uint32_t number) {
    nic::FlowRule rule = Rule(number);
    rule.match.destination_mac = wire::MacAddress({1, 0, 0x5e, 1, 2, 3});
    return rule;
  };
  std::vector<RuleTable::Held> held;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto next = table.Hold(of_group(i));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->fallback, i >= 2);
    held.push_back(*next);
  }
  ASSERT_EQ(full.rules().size(), 1u);
  EXPECT_TRUE(full.rules()[0].share_with_kernel);
  EXPECT_FALSE(full.rules()[0].match.destination_port.has_value());
  for (size_t i : {2, 0, 3}) table.Drop(held[i].entry);
  EXPECT_EQ(full.rules().size(), 1u);
  table.Drop(held[1].entry);
  EXPECT_TRUE(full.rules().empty());
}

TEST_F(RuleTableTest, WhatIsHeldWhileThereIsNoQueueStandsOnTheNextOne) {
  const auto before = table_.Hold(Rule(0));
  table_.Suspend(nullptr);
  EXPECT_TRUE(nic_.rules().empty());
  const auto meanwhile = table_.Hold(Rule(1));
  ASSERT_TRUE(before.ok() && meanwhile.ok());
  EXPECT_TRUE(nic_.rules().empty());
  ASSERT_TRUE(table_.Resume(&queue_).ok());
  EXPECT_EQ(nic_.rules().size(), 2u);
  table_.Drop(before->entry);
  table_.Drop(meanwhile->entry);
}

// The old queue has them no more, and may go; a table that is full has no room for both.
TEST_F(RuleTableTest, RedirectedRulesAreOnTheNewQueueAlone) {
  MemoryNic full({.max_rules = 2});
  nic::AbsentQueuePair fresh(full.capabilities());
  RuleTable table(&full, &queue_);
  const auto first = table.Hold(Rule(0));
  const auto second = table.Hold(Rule(1));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(table.Redirect(&fresh).ok());
  EXPECT_EQ(full.rules().size(), 2u);
  table.Drop(first->entry);
  table.Drop(second->entry);
  EXPECT_TRUE(full.rules().empty());
}

// A datagram would come twice otherwise; a segment be reset by the kernel.
TEST_F(RuleTableTest, RedirectedRulesStandTwiceForTcpAlone) {
  nic::AbsentQueuePair fresh(nic_.capabilities());
  const auto datagrams = table_.Hold(Rule(0));
  ASSERT_TRUE(datagrams.ok());
  nic_.TakeExtremesOfRules();
  ASSERT_TRUE(table_.Redirect(&fresh).ok());
  EXPECT_EQ(nic_.TakeExtremesOfRules(), std::pair(size_t{0}, size_t{1}));
  table_.Drop(datagrams->entry);
  nic::FlowRule rule = Rule(0);
  rule.match.protocol = wire::kIpProtocolTcp;
  const auto segments = table_.Hold(rule);
  ASSERT_TRUE(segments.ok());
  nic_.TakeExtremesOfRules();
  ASSERT_TRUE(table_.Redirect(&fresh).ok());
  EXPECT_EQ(nic_.TakeExtremesOfRules(), std::pair(size_t{1}, size_t{2}));
  table_.Drop(segments->entry);
}

TEST_F(RuleTableTest, ARuleOfTcpIsNeverSharedWithTheKernel) {
  MemoryNic full({.max_rules = 1});
  RuleTable table(&full, &queue_);
  nic::FlowRule tcp = Rule(0);
  tcp.match.protocol = wire::kIpProtocolTcp;
  const auto first = table.Hold(tcp);
  ASSERT_TRUE(first.ok());
  tcp.match.destination_port = 9'999;
  EXPECT_EQ(table.Hold(tcp).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(full.rules().size(), 1u);
  EXPECT_FALSE(full.rules()[0].share_with_kernel);
  table.Drop(first->entry);
}

// --- What stays at a port that the ring left ---

class LeftRulesTest : public RuleTableTest {
 protected:
  static constexpr uint32_t kRules = 3;  // Two of TCP.

  void SetUp() override {
    for (uint32_t i = 0; i < kRules; ++i) {
      nic::FlowRule rule = Rule(i);
      if (i > 0) rule.match.protocol = wire::kIpProtocolTcp;
      const auto held = at_home_.Hold(rule);
      ASSERT_TRUE(held.ok()) << held.status();
      entries_.push_back(held->entry);
    }
  }
  std::unique_ptr<nic::QueuePair> Keeper() {
    return std::make_unique<nic::AbsentQueuePair>(nic_.capabilities());
  }
  absl::Status MoveTo(MemoryNic& nic, size_t* lost) {
    *lost = at_home_.SuspendAndLeave(Keeper());
    at_home_.MoveTo(&nic);
    return at_home_.Resume(&queue_);
  }

  MemoryNic home_{{.max_rules = kRules}};
  MemoryNic away_{{.max_rules = kRules}};
  RuleTable at_home_{&home_, &queue_};
  std::vector<RuleTable::Entry*> entries_;
};

TEST_F(LeftRulesTest, ThoseOfTcpStayThoughTheTableOfThePortIsFull) {
  EXPECT_TRUE(at_home_.HasTcp());
  size_t lost = 0;
  home_.TakeExtremesOfRules();
  ASSERT_TRUE(MoveTo(away_, &lost).ok());
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(home_.rules().size(), 2u);
  for (const nic::FlowRule& rule : home_.rules()) {
    EXPECT_EQ(rule.match.protocol, wire::kIpProtocolTcp);
  }
  EXPECT_EQ(away_.rules().size(), kRules);
  at_home_.EndLeft();
  EXPECT_TRUE(home_.rules().empty());
  EXPECT_FALSE(at_home_.HasLeft());
  EXPECT_EQ(away_.rules().size(), kRules);
}

TEST_F(LeftRulesTest, TheyAreInNobodysWayWhenTheRingComesBack) {
  size_t lost = 0;
  ASSERT_TRUE(MoveTo(away_, &lost).ok());
  const absl::Status back = MoveTo(home_, &lost);
  EXPECT_TRUE(back.ok()) << back;
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(home_.rules().size(), kRules);
  EXPECT_EQ(away_.rules().size(), 2u);
}

TEST_F(LeftRulesTest, ARuleThatNobodyHoldsAnyMoreGoesThereToo) {
  size_t lost = 0;
  ASSERT_TRUE(MoveTo(away_, &lost).ok());
  at_home_.Drop(entries_[1]);
  EXPECT_EQ(home_.rules().size(), 1u);
  at_home_.Drop(entries_[2]);
  EXPECT_TRUE(home_.rules().empty());
}

TEST_F(LeftRulesTest, WithoutAQueueForThemNoneStays) {
  EXPECT_EQ(at_home_.SuspendAndLeave(nullptr), 2u);
  EXPECT_TRUE(home_.rules().empty());
  EXPECT_FALSE(at_home_.HasLeft());
}

// The table has room for none twice.
TEST_F(LeftRulesTest, ThoseOfTcpStayWhileTheQueueIsMadeAnew) {
  home_.TakeExtremesOfRules();
  EXPECT_EQ(at_home_.Suspend(Keeper()), 0u);
  EXPECT_EQ(home_.rules().size(), 2u);
  for (const nic::FlowRule& rule : home_.rules()) {
    EXPECT_EQ(rule.match.protocol, wire::kIpProtocolTcp);
  }
  ASSERT_TRUE(at_home_.Resume(&queue_).ok());
  EXPECT_EQ(home_.rules().size(), kRules);
  EXPECT_FALSE(at_home_.HasLeft());
  EXPECT_EQ(home_.TakeExtremesOfRules().first, 2u);
}

// There were no queues to go on with.
TEST_F(LeftRulesTest, ThoseOfTcpStayUntilThereIsAQueueAgain) {
  at_home_.Suspend(Keeper());
  EXPECT_EQ(at_home_.Suspend(nullptr), 0u);
  EXPECT_EQ(home_.rules().size(), 2u);
  ASSERT_TRUE(at_home_.Resume(&queue_).ok());
  EXPECT_EQ(home_.rules().size(), kRules);
  EXPECT_FALSE(at_home_.HasLeft());
}

// As when the time is over for which they stay at a port that was left before.
TEST_F(LeftRulesTest, ThoseThatHaveNoQueueOutliveTheOthers) {
  size_t lost = 0;
  ASSERT_TRUE(MoveTo(away_, &lost).ok());
  EXPECT_EQ(at_home_.Suspend(Keeper()), 0u);
  at_home_.EndLeft();
  EXPECT_TRUE(home_.rules().empty());
  EXPECT_EQ(away_.rules().size(), 2u);
  EXPECT_TRUE(at_home_.HasLeft());
  at_home_.End();
  EXPECT_TRUE(away_.rules().empty());
}

TEST_F(LeftRulesTest, ThoseThatHaveNoQueueStayAtAPortThatIsLeftThen) {
  at_home_.Suspend(Keeper());
  EXPECT_EQ(at_home_.SuspendAndLeave(nullptr), 0u);
  at_home_.MoveTo(&away_);
  ASSERT_TRUE(at_home_.Resume(&queue_).ok());
  EXPECT_EQ(away_.rules().size(), kRules);
  EXPECT_EQ(home_.rules().size(), 2u);
  at_home_.EndLeft();
  EXPECT_TRUE(home_.rules().empty());
}

TEST_F(LeftRulesTest, AMoveThatDidNotEndIsFollowedByAnother) {
  size_t lost = 0;
  ASSERT_TRUE(MoveTo(away_, &lost).ok());
  // There were no queues to go on with.
  at_home_.SuspendAndLeave(Keeper());
  at_home_.MoveTo(&home_);
  EXPECT_EQ(home_.rules().size(), 2u) << "of the first move";
  EXPECT_EQ(at_home_.SuspendAndLeave(Keeper()), 0u);
  at_home_.MoveTo(&away_);
  ASSERT_TRUE(at_home_.Resume(&queue_).ok());
  EXPECT_EQ(away_.rules().size(), kRules);
  EXPECT_EQ(home_.rules().size(), 2u);
}

TEST_F(RuleTableTest, TheWorkOfARuleDoesNotGrowWithTheirNumber) {
  constexpr uint32_t kFew = 100;
  constexpr uint32_t kMany = 10'000;
  std::vector<RuleTable::Entry*> held;
  const auto hold_up_to = [&](uint32_t count) {
    while (held.size() < count) {
      held.push_back(table_.Hold(Rule(static_cast<uint32_t>(held.size())))->entry);
    }
  };
  hold_up_to(kFew);
  EXPECT_LE(table_.comparisons(), 4 * kFew);
  hold_up_to(kMany);
  EXPECT_LE(table_.comparisons(), 4 * kMany);
  for (RuleTable::Entry* entry : held) table_.Drop(entry);
  EXPECT_LE(table_.comparisons(), 8 * kMany);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(RuleTableTest, SharingWithTheKernelIsOneForAllHoldersOfAMatch) {
  nic::FlowRule shared = Rule(0);
  shared.share_with_kernel = true;
  ASSERT_TRUE(table_.Hold(Rule(0)).ok());
  const auto refused = table_.Hold(shared);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(refused.status().message(),
            "add rule: asked with share_with_kernel, the ring takes the same frames without it");
}

TEST_F(RuleTableTest, AskedAgainWhereTheDeviceRefusesToShareItIsTheSameRule) {
  MemoryNic refusing({.share_with_kernel = false});
  RuleTable table(&refusing, &queue_);
  nic::FlowRule shared = Rule(0);
  shared.share_with_kernel = true;
  const auto first = table.Hold(shared);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->kernel_excluded);
  EXPECT_TRUE(table.Hold(shared).ok());
}

}  // namespace
}  // namespace xtreme::engine
