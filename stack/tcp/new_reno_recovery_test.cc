// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/new_reno_recovery.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

using Action = NewRenoRecovery::Action;

constexpr Seq kInitial(0xFFFFFFF0);
constexpr uint32_t kSmss = 1000;

TEST(NewRenoRecovery, TheThirdDuplicateRetransmitsOnceAndTwoBeforeLetNewDataOut) {
  NewRenoRecovery recovery(kInitial);
  const Seq una = kInitial + 1;
  const Seq nxt = una + 10 * kSmss;
  EXPECT_EQ(recovery.OnDuplicateAck(una, nxt).action, Action::kSendNew);
  EXPECT_EQ(recovery.OnDuplicateAck(una, nxt).action, Action::kSendNew);
  const auto third = recovery.OnDuplicateAck(una, nxt);
  EXPECT_EQ(third.action, Action::kRetransmit);
  EXPECT_TRUE(third.entered);
  EXPECT_TRUE(recovery.in_recovery());
  const auto fourth = recovery.OnDuplicateAck(una, nxt);
  EXPECT_EQ(fourth.action, Action::kSendNew);
  EXPECT_FALSE(fourth.entered);
}

TEST(NewRenoRecovery, APartialAcknowledgementRetransmitsTheNextAndAFullOneEnds) {
  NewRenoRecovery recovery(kInitial);
  const Seq una = kInitial + 1;
  const Seq nxt = una + 10 * kSmss;
  for (int i = 0; i < 3; ++i) recovery.OnDuplicateAck(una, nxt);
  EXPECT_EQ(recovery.OnNewAck(una + 4 * kSmss).action, Action::kRetransmit);
  EXPECT_TRUE(recovery.in_recovery());
  EXPECT_EQ(recovery.OnNewAck(nxt).action, Action::kRecovered);
  EXPECT_FALSE(recovery.in_recovery());
}

TEST(NewRenoRecovery, ANewAcknowledgementBeginsTheCountAgain) {
  NewRenoRecovery recovery(kInitial);
  const Seq una = kInitial + 1;
  recovery.OnDuplicateAck(una, una + 9000);
  recovery.OnDuplicateAck(una, una + 9000);
  EXPECT_EQ(recovery.OnNewAck(una + 1000).action, Action::kNothing);
  EXPECT_EQ(recovery.OnDuplicateAck(una + 1000, una + 9000).action, Action::kSendNew);
  EXPECT_FALSE(recovery.in_recovery());
}

TEST(NewRenoRecovery, DuplicatesOfWhatATimeoutSentAgainDoNotBeginAnother) {
  NewRenoRecovery recovery(kInitial);
  const Seq una = kInitial + 1;
  const Seq nxt = una + 10 * kSmss;
  recovery.OnTimeout(nxt);
  for (int i = 0; i < 5; ++i) recovery.OnDuplicateAck(una + 2 * kSmss, nxt);
  EXPECT_FALSE(recovery.in_recovery());
  recovery.OnNewAck(nxt);
  for (int i = 0; i < 5; ++i) recovery.OnDuplicateAck(nxt, nxt + 5000);
  EXPECT_FALSE(recovery.in_recovery()) << "all up to recover is acknowledged, and nothing more";
  recovery.OnNewAck(nxt + 1);
  for (int i = 0; i < 3; ++i) recovery.OnDuplicateAck(nxt + 1, nxt + 5000);
  EXPECT_TRUE(recovery.in_recovery());
}

TEST(NewRenoRecovery, BeginsHoweverMuchArrivedWithoutALoss) {
  NewRenoRecovery recovery(kInitial);
  Seq una = kInitial + 1;
  for (int i = 0; i < 3; ++i) recovery.OnNewAck(una += 1u << 30);
  for (int i = 0; i < 3; ++i) recovery.OnDuplicateAck(una, una + 10 * kSmss);
  EXPECT_TRUE(recovery.in_recovery());
}

TEST(NewRenoRecovery, TheWindowsAreThoseOfTheRfc) {
  EXPECT_EQ(NewRenoRecovery::WindowAtEntry(5 * kSmss, kSmss), 8 * kSmss);
  EXPECT_EQ(NewRenoRecovery::Inflated(8 * kSmss, kSmss), 9 * kSmss);
  EXPECT_EQ(NewRenoRecovery::Deflated(9 * kSmss, 3 * kSmss, kSmss), 7 * kSmss);
  EXPECT_EQ(NewRenoRecovery::Deflated(9 * kSmss, 500, kSmss), 8500u);
  EXPECT_EQ(NewRenoRecovery::Deflated(2 * kSmss, 9 * kSmss, kSmss), kSmss);
  EXPECT_EQ(NewRenoRecovery::WindowAtEnd(5 * kSmss, 2 * kSmss, kSmss), 3 * kSmss);
  EXPECT_EQ(NewRenoRecovery::WindowAtEnd(5 * kSmss, 0, kSmss), 2 * kSmss);
  EXPECT_EQ(NewRenoRecovery::WindowAtEnd(5 * kSmss, 9 * kSmss, kSmss), 5 * kSmss);
}

}  // namespace
}  // namespace xtreme::tcp
