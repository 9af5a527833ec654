// SPDX-License-Identifier: Apache-2.0
//
// Books: the top of book of the stocks asked for, from ITCH messages in order.
//
// Every open order of such a stock is kept by its reference number; each stock keeps its shares by
// price level on both sides. Invariant: a level is there exactly while open orders stand at it.
// Units: shares; prices in 1/10,000 dollar. Not for gaps: a message that was lost leaves the book
// wrong, and what refers to an order never seen is counted.

#ifndef XTREME_SAMPLES_FEED_BOOK_H_
#define XTREME_SAMPLES_FEED_BOOK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "samples/feed/itch50.h"

namespace feed {

struct Quote {
  uint32_t price = 0;  // 0: nobody.
  uint64_t shares = 0;
  bool operator==(const Quote&) const = default;
};

struct TopOfBook {
  Quote bid;
  Quote ask;
  bool operator==(const TopOfBook&) const = default;
};

class Books {
 public:
  // `stocks`: names to follow; empty: all.
  explicit Books(const std::vector<std::string_view>& stocks) : all_(stocks.empty()) {
    for (std::string_view name : stocks) wanted_.push_back(itch::MakeStock(name));
  }

  void Apply(const itch::Message& message) {
    switch (message.type) {
      case itch::Type::kAddOrder:
      case itch::Type::kAddOrderAttributed: return Add(message);
      case itch::Type::kExecuted:
      case itch::Type::kExecutedWithPrice:
      case itch::Type::kCancel: return Reduce(message.order, message.shares);
      case itch::Type::kDelete: return Reduce(message.order, ~uint64_t{0});
      case itch::Type::kReplace: return Replace(message);
      default: return;
    }
  }

  // Another session begins with no orders.
  void Clear() {
    orders_.clear();
    books_.clear();
  }

  TopOfBook Top(std::string_view name) const {
    for (const auto& [locate, book] : books_) {
      if (book.stock == itch::MakeStock(name)) return book.Top();
    }
    return {};
  }

  size_t open_orders() const { return orders_.size(); }
  // Messages about orders that are not known: of other stocks, or added in a gap.
  uint64_t unknown_orders() const { return unknown_orders_; }

 private:
  struct Book {
    TopOfBook Top() const {
      TopOfBook top;
      if (!bids.empty()) top.bid = {bids.begin()->first, bids.begin()->second};
      if (!asks.empty()) top.ask = {asks.begin()->first, asks.begin()->second};
      return top;
    }
    void Change(char side, uint32_t price, int64_t shares) {
      side == 'B' ? ChangeLevel(&bids, price, shares) : ChangeLevel(&asks, price, shares);
    }
    template <typename Levels>
    static void ChangeLevel(Levels* levels, uint32_t price, int64_t shares) {
      const auto level = levels->try_emplace(price, 0).first;
      level->second += shares;
      if (level->second == 0) levels->erase(level);
    }

    itch::Stock stock;
    std::map<uint32_t, uint64_t, std::greater<>> bids;
    std::map<uint32_t, uint64_t> asks;
  };
  struct Order {
    uint16_t locate;
    char side;
    uint32_t price;
    uint64_t shares;
  };

  bool Wanted(const itch::Stock& stock) const {
    return all_ || std::find(wanted_.begin(), wanted_.end(), stock) != wanted_.end();
  }

  void Add(const itch::Message& message) {
    if (!Wanted(message.stock) || message.shares == 0) return;
    const Order order = {message.locate, message.side, message.price, message.shares};
    if (!orders_.try_emplace(message.order, order).second) return;
    Book& book = books_[message.locate];
    book.stock = message.stock;
    book.Change(order.side, order.price, static_cast<int64_t>(order.shares));
  }

  // Takes up to `shares` off an order, which ends when none are left.
  void Reduce(uint64_t reference, uint64_t shares) {
    const auto found = orders_.find(reference);
    if (found == orders_.end()) {
      ++unknown_orders_;
      return;
    }
    Order& order = found->second;
    const uint64_t off = std::min(shares, order.shares);
    books_[order.locate].Change(order.side, order.price, -static_cast<int64_t>(off));
    order.shares -= off;
    if (order.shares == 0) orders_.erase(found);
  }

  void Replace(const itch::Message& message) {
    const auto found = orders_.find(message.order);
    if (found == orders_.end()) {
      ++unknown_orders_;
      return;
    }
    Order order = found->second;
    Reduce(message.order, order.shares);
    order.price = message.price;
    order.shares = message.shares;
    if (order.shares == 0 || !orders_.try_emplace(message.new_order, order).second) return;
    books_[order.locate].Change(order.side, order.price, static_cast<int64_t>(order.shares));
  }

  const bool all_;
  std::vector<itch::Stock> wanted_;
  std::unordered_map<uint64_t, Order> orders_;
  std::map<uint16_t, Book> books_;
  uint64_t unknown_orders_ = 0;
};

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_BOOK_H_
