// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "samples/feed/book.h"
#include "samples/trading/matcher.h"
#include "samples/trading/order_book.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"

namespace trading {
namespace {

// --- The book -----------------------------------------------------------------------------------

using Fills = std::vector<std::pair<uint64_t, uint32_t>>;  // The resting order, shares.

class OrderBookTest : public testing::Test {
 protected:
  // The shares left over.
  uint32_t Enter(uint64_t reference, char side, uint32_t price, uint32_t shares, bool rest = true) {
    fills_.clear();
    return book_.Enter({reference, side, price, shares}, rest,
                       [this](const Order& resting, uint32_t filled) {
                         fills_.emplace_back(resting.reference, filled);
                       });
  }

  OrderBook book_;
  Fills fills_;
};

TEST_F(OrderBookTest, OrdersThatDoNotCrossRest) {
  EXPECT_EQ(Enter(1, 'B', 100, 10), 10u);
  EXPECT_EQ(Enter(2, 'S', 101, 10), 10u);
  EXPECT_EQ(fills_, Fills());
  EXPECT_EQ(book_.best_bid(), 100u);
  EXPECT_EQ(book_.best_ask(), 101u);
}

TEST_F(OrderBookTest, BestPriceComesFirstThenTheOldest) {
  Enter(1, 'S', 102, 10);
  Enter(2, 'S', 101, 10);
  Enter(3, 'S', 101, 10);
  EXPECT_EQ(Enter(4, 'B', 102, 25), 0u);
  EXPECT_EQ(fills_, (Fills{{2, 10}, {3, 10}, {1, 5}}));
  EXPECT_EQ(book_.Find(1)->shares, 5u);
}

TEST_F(OrderBookTest, LimitIsNotPassed) {
  Enter(1, 'B', 100, 10);
  Enter(2, 'B', 99, 10);
  EXPECT_EQ(Enter(3, 'S', 100, 30), 20u);
  EXPECT_EQ(fills_, (Fills{{1, 10}}));
  EXPECT_EQ(book_.best_ask(), 100u);
  EXPECT_EQ(book_.best_bid(), 99u);
}

TEST_F(OrderBookTest, WhatMayNotRestIsGone) {
  EXPECT_EQ(Enter(1, 'B', 100, 10, false), 10u);
  EXPECT_EQ(book_.open_orders(), 0u);
}

TEST_F(OrderBookTest, ReducedOrderKeepsItsPlace) {
  Enter(1, 'S', 100, 10);
  Enter(2, 'S', 100, 10);
  EXPECT_EQ(book_.Reduce(1, 4), 6u);
  EXPECT_EQ(book_.Reduce(1, 4), 0u);
  Enter(3, 'B', 100, 5);
  EXPECT_EQ(fills_, (Fills{{1, 4}, {2, 1}}));
}

TEST_F(OrderBookTest, OrderTakenOutLeavesNoLevelBehind) {
  Enter(1, 'S', 100, 10);
  EXPECT_EQ(book_.Reduce(1, 0), 10u);
  EXPECT_EQ(book_.best_ask(), std::nullopt);
  EXPECT_EQ(book_.Reduce(1, 0), 0u);
}

// --- The exchange -------------------------------------------------------------------------------

// Told messages as "ACCOUNT TYPE CODE SHARES @ PRICE", published ones as "TYPE REFERENCE SHARES".
class MatcherTest : public testing::Test, public Market {
 protected:
  void Publish(const feed::itch::Message& message) override {
    published_.push_back(std::string(1, static_cast<char>(message.type)) + " " +
                         std::to_string(message.order) + " " + std::to_string(message.shares));
    books_.Apply(message);
  }
  void Tell(uint32_t account, const ouch::Message& message) override {
    told_.push_back(std::to_string(account) + " " + static_cast<char>(message.type) + " " +
                    message.code + " " + std::to_string(message.shares) + " @ " +
                    std::to_string(message.price));
  }

  void Enter(uint32_t account, const std::string& token, char side, uint32_t price, uint32_t shares,
             uint32_t time_in_force = ouch::kMarketHours, const char* stock = "XTRA") {
    ouch::Message order;
    order.type = ouch::Type::kEnterOrder;
    order.token = soup::PadRight<14>(token);
    order.side = side;
    order.price = price;
    order.shares = shares;
    order.time_in_force = time_in_force;
    order.stock = feed::itch::MakeStock(stock);
    matcher_.On(account, order, 5);
  }
  void Cancel(uint32_t account, const std::string& token, uint32_t left) {
    ouch::Message cancel;
    cancel.type = ouch::Type::kCancelOrder;
    cancel.token = soup::PadRight<14>(token);
    cancel.shares = left;
    matcher_.On(account, cancel, 6);
  }
  std::vector<std::string> TakeTold() { return std::exchange(told_, {}); }
  std::vector<std::string> TakePublished() { return std::exchange(published_, {}); }

  Matcher matcher_{{"XTRA", "XTRB"}, this};
  feed::Books books_{{}};
  std::vector<std::string> told_;
  std::vector<std::string> published_;
};

using Lines = std::vector<std::string>;

TEST_F(MatcherTest, BothSidesOfAFillAreToldAndTheFeedOnce) {
  Enter(1, "A", 'S', 100, 10);
  Enter(2, "B", 'B', 105, 4);
  EXPECT_EQ(TakeTold(), (Lines{"1 A L 10 @ 100", "2 A L 4 @ 105", "1 E A 4 @ 100",
                               "2 E R 4 @ 100"}));
  EXPECT_EQ(TakePublished(), (Lines{"A 1 10", "E 1 4"}));
}

TEST_F(MatcherTest, WhatIsLeftOfAnOrderIsAddedToTheFeedAfterItsFills) {
  Enter(1, "A", 'S', 100, 10);
  Enter(2, "B", 'B', 100, 30);
  EXPECT_EQ(TakePublished(), (Lines{"A 1 10", "E 1 10", "A 2 20"}));
}

TEST_F(MatcherTest, ImmediateOrderIsCancelledForTheRestAndNeverPublished) {
  Enter(1, "A", 'S', 100, 10);
  Enter(2, "B", 'B', 100, 30, ouch::kImmediateOrCancel);
  EXPECT_EQ(TakeTold().back(), "2 C I 20 @ 0");
  EXPECT_EQ(TakePublished(), (Lines{"A 1 10", "E 1 10"}));
}

TEST_F(MatcherTest, TokenThatWasUsedIsPassedOver) {
  Enter(1, "A", 'B', 100, 10);
  TakeTold();
  TakePublished();
  Enter(1, "A", 'B', 100, 10);
  EXPECT_EQ(TakeTold(), Lines());
  EXPECT_EQ(TakePublished(), Lines());
  EXPECT_EQ(matcher_.counters().duplicates, 1u);
  Enter(2, "A", 'B', 100, 10);  // Another account's tokens are its own.
  EXPECT_EQ(TakeTold(), (Lines{"2 A L 10 @ 100"}));
}

TEST_F(MatcherTest, OrdersThatCannotBeAreRejectedForTheirReason) {
  Enter(1, "A", 'B', 100, 10, ouch::kMarketHours, "NONE");
  Enter(1, "B", 'B', 0, 10);
  Enter(1, "C", 'B', 100, 0);
  Enter(1, "D", 'B', 100, ouch::kMostShares + 1);
  Enter(1, "E", 'Q', 100, 10);
  Enter(1, "F", 'B', 100, 10, 5);  // To rest for 5 s.
  EXPECT_EQ(TakeTold(), (Lines{"1 J S 0 @ 0", "1 J X 0 @ 0", "1 J Z 0 @ 0", "1 J Z 0 @ 0",
                               "1 J O 0 @ 0", "1 J O 0 @ 0"}));
  EXPECT_EQ(TakePublished(), Lines());
}

TEST_F(MatcherTest, CancelTakesOffPartOrAll) {
  Enter(1, "A", 'B', 100, 10);
  TakeTold();
  TakePublished();
  Cancel(1, "A", 4);
  Cancel(1, "A", 0);
  EXPECT_EQ(TakeTold(), (Lines{"1 C U 6 @ 0", "1 C U 4 @ 0"}));
  EXPECT_EQ(TakePublished(), (Lines{"X 1 6", "D 1 0"}));
}

// OUCH 4.2, Cancel Order: "shares" is the intended size of the order, with what was executed.
TEST_F(MatcherTest, CancelSaysTheSizeOfTheOrderWithWhatWasExecuted) {
  Enter(1, "A", 'S', 100, 3);
  Enter(2, "B", 'B', 100, 10);  // Of which 3 are executed at once,
  Enter(1, "C", 'S', 100, 2);   // and 2 while it stands.
  TakeTold();
  TakePublished();
  Cancel(2, "B", 8);
  EXPECT_EQ(TakeTold(), Lines{"2 C U 2 @ 0"});
  EXPECT_EQ(TakePublished(), Lines{"X 2 2"});
  Cancel(2, "B", 5);
  EXPECT_EQ(TakeTold(), Lines{"2 C U 3 @ 0"});
  EXPECT_EQ(TakePublished(), Lines{"D 2 0"});
}

TEST_F(MatcherTest, CancelOfWhatIsNotOpenSaysNothing) {
  Enter(1, "A", 'B', 100, 10);
  TakeTold();
  Cancel(1, "Z", 0);
  Cancel(2, "A", 0);  // Another account's.
  EXPECT_EQ(TakeTold(), Lines());
  EXPECT_EQ(matcher_.counters().unknown, 2u);
}

// Whoever follows the feed has the book of the exchange.
TEST_F(MatcherTest, FeedReplaysToTheExchangesOwnBook) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 5'000; ++i) {
    const std::string token = "T" + std::to_string(i);
    if (random() % 4 == 0 && i > 0) {
      Cancel(1, "T" + std::to_string(random() % static_cast<uint64_t>(i)),
             static_cast<uint32_t>(random() % 50));
    } else {
      Enter(1, token, random() % 2 ? 'B' : 'S', static_cast<uint32_t>(90 + random() % 20),
            static_cast<uint32_t>(1 + random() % 100), ouch::kMarketHours,
            random() % 2 ? "XTRA" : "XTRB");
    }
    const OrderBook& book = matcher_.book(0);
    const feed::TopOfBook top = books_.Top("XTRA");
    ASSERT_EQ(top.bid.price, book.best_bid().value_or(0)) << i;
    ASSERT_EQ(top.ask.price, book.best_ask().value_or(0)) << i;
  }
  EXPECT_EQ(books_.open_orders(),
            matcher_.book(0).open_orders() + matcher_.book(1).open_orders());
  EXPECT_EQ(books_.unknown_orders(), 0u);
  EXPECT_GT(matcher_.counters().fills, 1'000u);
}

}  // namespace
}  // namespace trading
