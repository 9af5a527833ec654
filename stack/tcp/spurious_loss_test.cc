// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/spurious_loss.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

constexpr Seq kFirst(0xFFFFFE00);

Segment SegmentAt(uint32_t offset, uint32_t length) {
  Segment segment;
  segment.sequence = kFirst + offset;
  segment.length = length;
  segment.transmissions = 2;
  return segment;
}

wire::SackBlock Block(uint32_t from, uint32_t to) {
  return {(kFirst + from).value(), (kFirst + to).value()};
}

// Of 1000 bytes outstanding 200 were sent again, in two segments, at timestamps 70 and 80.
class SpuriousLossTest : public testing::Test {
 protected:
  SpuriousLossTest() {
    loss_.Begin(kFirst, kFirst + 1000);
    loss_.OnRetransmit(first_, 70, kFirst + 1000);
    loss_.OnRetransmit(second_, 80, kFirst + 1000);
  }
  const Segment first_ = SegmentAt(0, 100);
  const Segment second_ = SegmentAt(100, 100);
  SpuriousLoss loss_;
};

TEST_F(SpuriousLossTest, AnOlderEchoIsOfTheFirstCopy) {
  EXPECT_TRUE(loss_.IsOfFirstCopy(first_, 69));
  EXPECT_FALSE(loss_.IsOfFirstCopy(first_, 70));
  EXPECT_FALSE(loss_.IsOfFirstCopy(first_, 80));
  // The first copy of what was sent again tells, though another was sent again later.
  EXPECT_FALSE(loss_.IsOfFirstCopy(second_, 75));
}

TEST_F(SpuriousLossTest, NothingIsToldOfWhatLiesOutside) {
  EXPECT_FALSE(loss_.IsOfFirstCopy(SegmentAt(950, 100), 69));
  EXPECT_FALSE(loss_.IsOfFirstCopy(SegmentAt(0u - 100, 100), 69));
  EXPECT_FALSE(loss_.OnDsack(Block(0u - 200, 0), kFirst));
  EXPECT_FALSE(loss_.OnDsack(Block(900, 1100), kFirst));
}

TEST_F(SpuriousLossTest, EveryCopyHasToArriveTwice) {
  EXPECT_FALSE(loss_.OnDsack(Block(0, 100), kFirst + 200));
  EXPECT_TRUE(loss_.OnDsack(Block(100, 200), kFirst + 1000));
}

TEST_F(SpuriousLossTest, ADsackAfterWhatFollowedTheCopiesIsOfSomethingElse) {
  EXPECT_FALSE(loss_.OnDsack(Block(0, 200), kFirst + 1001));
  EXPECT_FALSE(loss_.OnDsack(Block(0, 200), kFirst + 1000));
}

TEST_F(SpuriousLossTest, ATimeoutThatFollowsGoesOn) {
  loss_.Begin(kFirst + 100, kFirst + 1000);
  loss_.OnRetransmit(second_, 300, kFirst + 1000);
  EXPECT_FALSE(loss_.IsOfFirstCopy(second_, 200));
  EXPECT_FALSE(loss_.OnDsack(Block(0, 200), kFirst + 1000));
  EXPECT_TRUE(loss_.OnDsack(Block(100, 200), kFirst + 1000));
}

TEST_F(SpuriousLossTest, OneAfterGigabytesWithoutALossDoesNotGoOnWithTheLast) {
  constexpr uint32_t kLater = 3u << 30;
  loss_.Begin(kFirst + kLater, kFirst + kLater + 1000);
  const Segment segment = SegmentAt(kLater, 100);
  loss_.OnRetransmit(segment, 300, kFirst + kLater + 1000);
  EXPECT_TRUE(loss_.IsOfFirstCopy(segment, 299));
  EXPECT_TRUE(loss_.OnDsack(Block(kLater, kLater + 100), kFirst + kLater));
}

TEST_F(SpuriousLossTest, ItIsToldOnce) {
  loss_.End();
  EXPECT_FALSE(loss_.IsOfFirstCopy(first_, 69));
  EXPECT_FALSE(loss_.OnDsack(Block(0, 200), kFirst));
}

TEST(SpuriousLoss, NothingWasSentAgain) {
  SpuriousLoss loss;
  loss.Begin(kFirst, kFirst + 1000);
  EXPECT_FALSE(loss.IsOfFirstCopy(SegmentAt(0, 100), 1));
  EXPECT_FALSE(loss.OnDsack(Block(0, 100), kFirst));
}

}  // namespace
}  // namespace xtreme::tcp
