// SPDX-License-Identifier: Apache-2.0
//
// Matcher: an exchange without its network: orders of accounts in, what became of them and the feed
// out.
//
// Invariant: what is published is exactly what happens to the books: an order is added when it
// rests, and executed, cancelled or deleted later; a fill of two orders is one match number in both
// accounts' messages and in the feed. An order whose token the account used before is passed over.
// No I/O; time is an argument. Units: shares; nanoseconds since midnight.

#ifndef XTREME_SAMPLES_TRADING_MATCHER_H_
#define XTREME_SAMPLES_TRADING_MATCHER_H_

#include <cstdint>
#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "samples/feed/itch50.h"
#include "samples/trading/order_book.h"
#include "samples/trading/ouch42.h"

namespace trading {

// Where a Matcher tells what happened.
class Market {
 public:
  virtual ~Market() = default;
  virtual void Publish(const feed::itch::Message& message) = 0;
  virtual void Tell(uint32_t account, const ouch::Message& message) = 0;
};

class Matcher {
 public:
  struct Counters {
    uint64_t orders = 0;      // Accepted.
    uint64_t fills = 0;
    uint64_t rejected = 0;
    uint64_t duplicates = 0;  // Orders passed over: their token was used.
    uint64_t unknown = 0;     // Cancels of what is not open.
  };

  // `stocks` are all that is traded; `market` outlives this.
  Matcher(const std::vector<std::string_view>& stocks, Market* market) : market_(market) {
    for (const std::string_view name : stocks) {
      listings_.emplace_back();
      listings_.back().stock = feed::itch::MakeStock(name);
    }
  }

  // A message of a client; what only an exchange may say is passed over.
  void On(uint32_t account, const ouch::Message& message, uint64_t time_ns) {
    time_ns_ = time_ns;
    if (message.type == ouch::Type::kEnterOrder) Enter(account, message);
    if (message.type == ouch::Type::kCancelOrder) Cancel(account, message);
  }

  const OrderBook& book(size_t stock) const { return listings_[stock].book; }
  const Counters& counters() const { return counters_; }

 private:
  struct Listing {
    feed::itch::Stock stock;
    OrderBook book;
  };
  // Whose an open order is.
  struct Owner {
    uint32_t account = 0;
    ouch::Token token;
    uint16_t locate = 0;
    uint32_t executed = 0;  // Of an order that stands.
  };

  static char ReasonToReject(const ouch::Message& order, bool listed) {
    if (!listed) return ouch::kInvalidStock;
    if (order.price == 0 || order.price > ouch::kMostPrice) return ouch::kInvalidPrice;
    if (order.shares == 0 || order.shares > ouch::kMostShares) return ouch::kTooManyShares;
    // Neither a side we know nor a condition that we keep.
    if ((order.side != 'B' && order.side != 'S') || order.minimum != 0) return ouch::kOtherReason;
    // Nothing here ends an order after so many seconds.
    const bool kept = order.time_in_force == ouch::kImmediateOrCancel ||
                      order.time_in_force == ouch::kMarketHours ||
                      order.time_in_force == ouch::kSystemHours;
    return kept ? char{0} : ouch::kOtherReason;
  }

  void Enter(uint32_t account, const ouch::Message& message) {
    if (!used_.try_emplace({account, message.token}, 0).second) {
      ++counters_.duplicates;
      return;
    }
    uint16_t locate = 0;
    while (locate < listings_.size() && listings_[locate].stock != message.stock) ++locate;
    if (const char why = ReasonToReject(message, locate < listings_.size())) {
      ++counters_.rejected;
      Say(account, message.token, ouch::Type::kRejected, why, 0);
      return;
    }
    ++counters_.orders;
    const Order order = {next_reference_++, message.side, message.price, message.shares};
    used_[{account, message.token}] = order.reference;
    ouch::Message accepted = message;
    accepted.type = ouch::Type::kAccepted;
    accepted.time_ns = time_ns_;
    accepted.reference = order.reference;
    accepted.code = ouch::kLive;
    market_->Tell(account, accepted);
    Match({account, message.token, locate}, order, message.time_in_force);
  }

  void Match(const Owner& owner, const Order& order, uint32_t time_in_force) {
    const bool rest = time_in_force != ouch::kImmediateOrCancel;
    const uint32_t left = listings_[owner.locate].book.Enter(
        order, rest,
        [&](const Order& resting, uint32_t shares) { Fill(owner, resting, shares); });
    if (left == 0) return;
    if (!rest) return Say(owner.account, owner.token, ouch::Type::kCanceled,
                          ouch::kCanceledImmediately, left);
    owners_[order.reference] = {owner.account, owner.token, owner.locate, order.shares - left};
    feed::itch::Message added = About(feed::itch::Type::kAddOrder, order.reference, owner.locate);
    added.side = order.side;
    added.shares = left;
    added.price = order.price;
    added.stock = listings_[owner.locate].stock;
    market_->Publish(added);
  }

  void Fill(const Owner& owner, const Order& resting, uint32_t shares) {
    ++counters_.fills;
    const uint64_t match = next_match_++;
    Owner& other = owners_[resting.reference];
    other.executed += shares;
    SayExecuted(other, ouch::kAddedLiquidity, shares, resting.price, match);
    SayExecuted(owner, ouch::kRemovedLiquidity, shares, resting.price, match);
    feed::itch::Message executed =
        About(feed::itch::Type::kExecuted, resting.reference, owner.locate);
    executed.shares = shares;
    executed.match = match;
    market_->Publish(executed);
    if (shares == resting.shares) owners_.erase(resting.reference);
  }

  void Cancel(uint32_t account, const ouch::Message& message) {
    const auto used = used_.find({account, message.token});
    const auto owner = used == used_.end() ? owners_.end() : owners_.find(used->second);
    if (owner == owners_.end()) {
      ++counters_.unknown;
      return;
    }
    const uint64_t reference = owner->first;
    const uint16_t locate = owner->second.locate;
    // OUCH 4.2, Cancel Order: the size the whole order is to have, what was executed with it.
    const uint32_t left = message.shares - std::min(owner->second.executed, message.shares);
    const uint32_t off = listings_[locate].book.Reduce(reference, left);
    if (off == 0) return;
    Say(account, message.token, ouch::Type::kCanceled, ouch::kCanceledByUser, off);
    const bool open = listings_[locate].book.Find(reference) != nullptr;
    feed::itch::Message news = About(
        open ? feed::itch::Type::kCancel : feed::itch::Type::kDelete, reference, locate);
    news.shares = open ? off : 0;
    market_->Publish(news);
    if (!open) owners_.erase(reference);
  }

  feed::itch::Message About(feed::itch::Type type, uint64_t reference, uint16_t locate) const {
    feed::itch::Message message;
    message.type = type;
    message.locate = locate;
    message.order = reference;
    message.time_ns = time_ns_;
    return message;
  }

  void Say(uint32_t account, const ouch::Token& token, ouch::Type type, char code,
           uint32_t shares) {
    ouch::Message message;
    message.type = type;
    message.time_ns = time_ns_;
    message.token = token;
    message.code = code;
    message.shares = shares;
    market_->Tell(account, message);
  }

  void SayExecuted(const Owner& owner, char liquidity, uint32_t shares, uint32_t price,
                   uint64_t match) {
    ouch::Message message;
    message.type = ouch::Type::kExecuted;
    message.time_ns = time_ns_;
    message.token = owner.token;
    message.code = liquidity;
    message.shares = shares;
    message.price = price;
    message.match = match;
    market_->Tell(owner.account, message);
  }

  Market* const market_;
  std::vector<Listing> listings_;
  std::unordered_map<uint64_t, Owner> owners_;  // Of open orders, by reference.
  // Every token of the day, and its order's reference; 0: rejected.
  std::map<std::pair<uint32_t, ouch::Token>, uint64_t> used_;
  uint64_t next_reference_ = 1;
  uint64_t next_match_ = 1;
  uint64_t time_ns_ = 0;
  Counters counters_;
};

}  // namespace trading

#endif  // XTREME_SAMPLES_TRADING_MATCHER_H_
