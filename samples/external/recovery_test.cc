// SPDX-License-Identifier: Apache-2.0
//
// The strategy on a wire that loses one frame in twenty, in both directions: which ones, the seed
// in the build file decides, the same each time.

#include <cstdio>

#include "exchange_bed.h"

namespace {

constexpr long kPrices = 400;

class RecoveryTest : public ExchangeBed {
 protected:
  // Sends again what the strategy has asked for by now.
  void Answer() {
    while (const auto request = bed_.ExpectDatagram(0, 0)) {
      long first = 0;
      long count = 0;
      if (std::sscanf(request->payload.c_str(), "AGAIN %ld %ld", &first, &count) != 2) continue;
      for (long number = first; number < first + count; ++number) PublishPrice(number, kLimit);
    }
  }
};

TEST_F(RecoveryTest, WhatTheWireLosesIsMissedAskedForAndHeard) {
  for (long number = 1; number <= kPrices; ++number) {
    PublishPrice(number, kLimit);
    Run(0);
  }
  while (strategy_->heard() < kPrices) {
    Publish("NEXT " + std::to_string(kPrices + 1));
    Run(1'000'000);
    Answer();
  }
  EXPECT_GT(bed_.Counter(0, "impaired_rx_lost"), 0u);
  EXPECT_GT(strategy_->missed(), 0);
  EXPECT_EQ(strategy_->recovered(), strategy_->missed());
  EXPECT_FALSE(strategy_->bought());
}

}  // namespace
