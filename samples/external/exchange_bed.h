// SPDX-License-Identifier: Apache-2.0
//
// The strategy on a software ConnectX; the test is the exchange at the other end of the wire.

#ifndef XTREME_SAMPLES_EXTERNAL_EXCHANGE_BED_H_
#define XTREME_SAMPLES_EXTERNAL_EXCHANGE_BED_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "strategy.h"
#include "tools/connectx/testing/test_bed.h"

class ExchangeBed : public testing::Test {
 protected:
  using TestBed = xtreme::connectx::TestBed;

  static constexpr int64_t kPatienceNs = 10'000'000'000;
  static constexpr int kOperations = 4;  // Two ports, one group joined, one neighbour.
  static constexpr long kLimit = 100;

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
    strategy_.emplace(std::move(*feed), std::move(*orders), kLimit);
    ASSERT_TRUE(ring_->Start().ok());
    for (int ended = 0; ended < kOperations;) {
      for (const xtreme::Completion& each : ring_->Wait(kPatienceNs)) {
        if (each.kind() != xtreme::kOpDone) continue;
        ASSERT_EQ(each.status, 0) << each.text;
        ++ended;
      }
    }
  }

  void Publish(const std::string& text) {
    ASSERT_TRUE(bed_.Send(0, {"10.0.0.9:1", "233.54.12.111:26477", text}));
  }
  void PublishPrice(long number, long price) {
    Publish("PRICE " + std::to_string(number) + " " + std::to_string(price));
  }

  // Runs the strategy on what there is, or comes within that time.
  void Run(int64_t patience_ns) {
    for (const xtreme::Completion& each : ring_->Wait(patience_ns)) strategy_->On(each);
  }
  void RunUntilHeard(long prices) {
    while (strategy_->heard() < prices) Run(kPatienceNs);
  }

  TestBed bed_;
  std::optional<xtreme::Ring> ring_;
  std::optional<Strategy> strategy_;
};

#endif  // XTREME_SAMPLES_EXTERNAL_EXCHANGE_BED_H_
