// SPDX-License-Identifier: Apache-2.0
//
// The strategy on a wire that loses what the test says.

#include <optional>

#include "exchange_bed.h"

namespace {

class StrategyTest : public ExchangeBed {};

TEST_F(StrategyTest, BuysOnceAtTheFirstPriceBelowItsLimit) {
  for (const long number : {1, 2, 3}) PublishPrice(number, number == 1 ? 103 : 101 - number);
  RunUntilHeard(3);
  const auto order = bed_.ExpectDatagram(0);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->payload, "BUY 99");
  EXPECT_EQ(order->destination, "10.0.0.9:7001");
  EXPECT_EQ(bed_.ExpectDatagram(0, 0), std::nullopt) << "and nothing more";
}

TEST_F(StrategyTest, LostPriceIsAskedForAndActedOnBeforeThoseBehindIt) {
  bed_.Drop(0, TestBed::Way::kToDevice, 1);
  PublishPrice(1, 90);
  PublishPrice(2, 97);
  while (strategy_->missed() == 0) Run(kPatienceNs);
  EXPECT_FALSE(strategy_->bought());
  const auto request = bed_.ExpectDatagram(0);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->payload, "AGAIN 1 1");
  PublishPrice(1, 90);
  RunUntilHeard(2);
  EXPECT_EQ(strategy_->recovered(), 1);
  const auto order = bed_.ExpectDatagram(0);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->payload, "BUY 90");
}

}  // namespace
