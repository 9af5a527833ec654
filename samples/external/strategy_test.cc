// SPDX-License-Identifier: Apache-2.0
//
// The strategy on a software ConnectX: the test is the exchange at the other end of the wire.

#include "strategy.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tools/connectx/testing/test_bed.h"

namespace {

using xtreme::connectx::TestBed;

constexpr int64_t kPatienceNs = 10'000'000'000;
constexpr int kOperations = 4;  // Two ports, one group joined, one neighbour.

class StrategyTest : public testing::Test {
 protected:
  void SetUp() override {
    bed_.AddPeer(0, "10.0.0.9");
    auto ring = xtreme::Ring::Open(xtreme::RingOptions::Dev("eth2"));
    ASSERT_TRUE(ring.ok()) << ring.error().message;
    ring_.emplace(std::move(*ring));
    auto feed = ring_->OpenUdp({.local = "233.54.12.111:26477"});
    auto orders = ring_->OpenUdp({.local = "10.0.0.1:0"});
    ASSERT_TRUE(feed.ok() && orders.ok());
    ASSERT_TRUE(feed->Join(*xtreme::ParseAddress("233.54.12.111:0")).ok());
    ASSERT_TRUE(orders->Connect(*xtreme::ParseAddress("10.0.0.9:7001")).ok());
    strategy_.emplace(std::move(*feed), std::move(*orders), 100);
    ASSERT_TRUE(ring_->Start().ok());
    for (int ended = 0; ended < kOperations;) {
      for (const xtreme::Completion& each : ring_->Wait(kPatienceNs)) {
        if (each.kind() != xtreme::kOpDone) continue;
        ASSERT_EQ(each.status, 0) << each.text;
        ++ended;
      }
    }
  }

  void Publish(int price) {
    const std::string text = "PRICE " + std::to_string(price);
    ASSERT_TRUE(bed_.Send(0, {"10.0.0.9:1", "233.54.12.111:26477", text}));
  }

  // Runs the strategy until it has heard so many prices.
  void RunUntilHeard(int prices) {
    while (strategy_->heard() < prices) {
      for (const xtreme::Completion& each : ring_->Wait(kPatienceNs)) strategy_->On(each);
    }
  }

  TestBed bed_;
  std::optional<xtreme::Ring> ring_;
  std::optional<Strategy> strategy_;
};

TEST_F(StrategyTest, BuysOnceAtTheFirstPriceBelowItsLimit) {
  for (const int price : {103, 99, 98}) Publish(price);
  RunUntilHeard(3);
  const auto order = bed_.ExpectDatagram(0);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->payload, "BUY 99");
  EXPECT_EQ(order->destination, "10.0.0.9:7001");
  EXPECT_EQ(bed_.ExpectDatagram(0, 0), std::nullopt) << "and nothing more";
}

TEST_F(StrategyTest, LostPriceIsNotActedOn) {
  bed_.Drop(0, TestBed::Way::kToDevice, 1);
  for (const int price : {90, 97}) Publish(price);
  RunUntilHeard(1);
  const auto order = bed_.ExpectDatagram(0);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->payload, "BUY 97");
}

}  // namespace
