// SPDX-License-Identifier: Apache-2.0

#include "samples/gateway/taker.h"

#include <gtest/gtest.h>

namespace gateway {
namespace {

using Intent = Taker::Intent;

feed::TopOfBook Top(uint32_t bid, uint32_t ask) { return {{bid, 100}, {ask, 100}}; }

TEST(TakerTest, FallingAskIsBoughtAndRisingBidSold) {
  Taker taker({.interval_ns = 0});
  EXPECT_EQ(taker.On(Top(90, 100), 0), std::nullopt);
  EXPECT_EQ(taker.On(Top(90, 99), 1), (Intent{'B', 99}));
  EXPECT_EQ(taker.On(Top(91, 99), 2), (Intent{'S', 91}));
}

TEST(TakerTest, WorsePricesAndTheSameAreLeft) {
  Taker taker({.interval_ns = 0});
  taker.On(Top(90, 100), 0);
  EXPECT_EQ(taker.On(Top(90, 100), 1), std::nullopt);
  EXPECT_EQ(taker.On(Top(89, 101), 2), std::nullopt);
}

TEST(TakerTest, SideThatWasEmptyIsNoTrigger) {
  Taker taker({.interval_ns = 0});
  EXPECT_EQ(taker.On(Top(90, 0), 0), std::nullopt);
  EXPECT_EQ(taker.On(Top(90, 100), 1), std::nullopt);
  EXPECT_EQ(taker.On(Top(90, 0), 2), std::nullopt);
}

TEST(TakerTest, OrdersKeepTheirDistanceAndTheirNumber) {
  Taker taker({.orders = 2, .interval_ns = 10});
  taker.On(Top(90, 100), 0);
  EXPECT_NE(taker.On(Top(90, 99), 10), std::nullopt);
  EXPECT_EQ(taker.On(Top(90, 98), 19), std::nullopt);
  EXPECT_NE(taker.On(Top(90, 97), 20), std::nullopt);
  EXPECT_TRUE(taker.finished());
  EXPECT_EQ(taker.On(Top(90, 96), 40), std::nullopt);
}

}  // namespace
}  // namespace gateway
