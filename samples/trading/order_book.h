// SPDX-License-Identifier: Apache-2.0
//
// OrderBook: the open orders of one stock, matched by price, then time.
//
// Invariant: the best bid is below the best ask. An order that comes executes against the best
// orders of the other side at their prices, the oldest at a price first, as far as its limit goes.
// Units: shares; prices in 1/10,000 dollar.

#ifndef XTREME_SAMPLES_TRADING_ORDER_BOOK_H_
#define XTREME_SAMPLES_TRADING_ORDER_BOOK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

namespace trading {

struct Order {
  uint64_t reference = 0;  // Not 0, and of one order only.
  char side = 'B';         // Or 'S'.
  uint32_t price = 0;      // The limit.
  uint32_t shares = 0;     // Still open.
};

class OrderBook {
 public:
  // Executes what `order` can reach, calling `on_fill(resting, shares)` for each part, with the
  // other order as it was before. The shares left over; they rest in the book if `rest`.
  template <typename OnFill>
  uint32_t Enter(Order order, bool rest, OnFill&& on_fill) {
    if (order.side == 'B') {
      Match(&asks_, &order, [&](uint32_t ask) { return ask <= order.price; }, on_fill);
    } else {
      Match(&bids_, &order, [&](uint32_t bid) { return bid >= order.price; }, on_fill);
    }
    if (rest && order.shares != 0) {
      order.side == 'B' ? Rest(&bids_, order) : Rest(&asks_, order);
    }
    return order.shares;
  }

  // Leaves an order at most `left` shares; 0 takes it out. How many were taken off: 0 also when
  // there is no such order.
  uint32_t Reduce(uint64_t reference, uint32_t left) {
    const auto found = places_.find(reference);
    if (found == places_.end()) return 0;
    const auto place = found->second;
    const uint32_t off = place->shares - std::min(left, place->shares);
    place->shares -= off;
    if (place->shares == 0) {
      place->side == 'B' ? TakeOut(&bids_, place) : TakeOut(&asks_, place);
    }
    return off;
  }

  // The open order of that number, or null.
  const Order* Find(uint64_t reference) const {
    const auto found = places_.find(reference);
    return found == places_.end() ? nullptr : &*found->second;
  }

  // The best price of a side; none: nobody is there.
  std::optional<uint32_t> best_bid() const { return Best(bids_); }
  std::optional<uint32_t> best_ask() const { return Best(asks_); }
  size_t open_orders() const { return places_.size(); }

 private:
  using Level = std::list<Order>;  // Oldest first.

  template <typename Levels>
  static std::optional<uint32_t> Best(const Levels& levels) {
    if (levels.empty()) return std::nullopt;
    return levels.begin()->first;
  }

  template <typename Levels, typename Reaches, typename OnFill>
  void Match(Levels* levels, Order* order, Reaches reaches, OnFill&& on_fill) {
    while (order->shares != 0 && !levels->empty() && reaches(levels->begin()->first)) {
      const auto oldest = levels->begin()->second.begin();
      const uint32_t shares = std::min(order->shares, oldest->shares);
      on_fill(static_cast<const Order&>(*oldest), shares);
      order->shares -= shares;
      oldest->shares -= shares;
      if (oldest->shares == 0) TakeOut(levels, oldest);
    }
  }

  template <typename Levels>
  void Rest(Levels* levels, const Order& order) {
    Level& level = (*levels)[order.price];
    places_[order.reference] = level.insert(level.end(), order);
  }

  template <typename Levels>
  void TakeOut(Levels* levels, Level::iterator place) {
    places_.erase(place->reference);
    const auto level = levels->find(place->price);
    level->second.erase(place);
    if (level->second.empty()) levels->erase(level);
  }

  std::map<uint32_t, Level, std::greater<>> bids_;
  std::map<uint32_t, Level> asks_;
  std::unordered_map<uint64_t, Level::iterator> places_;
};

}  // namespace trading

#endif  // XTREME_SAMPLES_TRADING_ORDER_BOOK_H_
