// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/spurious_recovery.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

constexpr Seq kUna(0xFFFFFF00);
constexpr Seq kNxt = kUna + 1000;

wire::SackBlock Block(uint32_t left, uint32_t right) {
  return {(kUna + left).value(), (kUna + right).value()};
}

TEST(SpuriousRecovery, IsFoundWhenEveryRetransmissionArrivedTwice) {
  SpuriousRecovery recovery;
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(std::nullopt);
  recovery.OnRetransmit(std::nullopt);
  EXPECT_FALSE(recovery.OnDsack(Block(0, 100)));
  EXPECT_TRUE(recovery.OnDsack(Block(100, 200)));
  EXPECT_FALSE(recovery.OnDsack(Block(200, 300))) << "only once";
}

TEST(SpuriousRecovery, DsacksOfOtherDataAndWithoutRetransmissionsSayNothing) {
  SpuriousRecovery recovery;
  EXPECT_FALSE(recovery.OnDsack(Block(0, 100)));
  recovery.Begin(kUna, kNxt);
  EXPECT_FALSE(recovery.OnDsack(Block(0, 100)));
  recovery.OnRetransmit(std::nullopt);
  EXPECT_FALSE(recovery.OnDsack(Block(1000, 1100)));
  EXPECT_FALSE(recovery.OnDsack({(kUna - 100u).value(), kUna.value()}));
  EXPECT_TRUE(recovery.OnDsack(Block(900, 1000)));
}

TEST(SpuriousRecovery, IsFoundByTheFirstEchoFromBeforeTheRetransmission) {
  SpuriousRecovery recovery;
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(500);
  recovery.OnRetransmit(600);
  EXPECT_FALSE(recovery.OnNewAck(kUna, 499)) << "nothing new";
  EXPECT_TRUE(recovery.OnNewAck(kUna + 100, 499));
}

TEST(SpuriousRecovery, OnlyTheFirstAcknowledgementTells) {
  SpuriousRecovery recovery;
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(500);
  EXPECT_FALSE(recovery.OnNewAck(kUna + 100, 500));
  EXPECT_FALSE(recovery.OnNewAck(kUna + 200, 499));
}

TEST(SpuriousRecovery, WithoutTimestampsAnEchoTellsNothing) {
  SpuriousRecovery recovery;
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(std::nullopt);
  EXPECT_FALSE(recovery.OnNewAck(kUna + 100, 499));
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(500);
  EXPECT_FALSE(recovery.OnNewAck(kUna + 100, std::nullopt));
}

TEST(SpuriousRecovery, AfterTheEndNothingIsUndone) {
  SpuriousRecovery recovery;
  recovery.Begin(kUna, kNxt);
  recovery.OnRetransmit(500);
  recovery.End();
  EXPECT_FALSE(recovery.OnDsack(Block(0, 100)));
  EXPECT_FALSE(recovery.OnNewAck(kUna + 100, 1));
}

}  // namespace
}  // namespace xtreme::tcp
