// SPDX-License-Identifier: Apache-2.0
//
// Market: a plausible stream of ITCH messages: orders come, trade, shrink, move and go, around
// prices that wander. The same seed gives the same messages, their times excepted.

#ifndef XTREME_SAMPLES_PUBLISHER_MARKET_H_
#define XTREME_SAMPLES_PUBLISHER_MARKET_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "samples/feed/itch50.h"

namespace publisher {

class Market {
 public:
  Market(uint64_t seed, int stocks) : random_(seed) {
    for (int i = 0; i < stocks; ++i) {
      stocks_.push_back({feed::itch::MakeStock(Name(i)), 1'000'000u + 10'000u * i});
    }
  }

  // "XTRA", "XTRB", ... "XTAA"...
  static std::string Name(int number) {
    return std::string("XT") + static_cast<char>('R' + number / 26) +
           static_cast<char>('A' + number % 26);
  }

  // The next message, its time not set.
  feed::itch::Message Next() {
    using feed::itch::Type;
    const uint64_t dice = random_() % 100;
    if (orders_.size() < 100 || (dice < 45 && orders_.size() < 50'000)) return Add();
    const size_t at = random_() % orders_.size();
    if (dice < 55) return Reduce(at, Type::kExecuted);
    if (dice < 60) return Reduce(at, Type::kCancel);
    if (dice < 75) return Replace(at);
    return Remove(at);
  }

 private:
  struct Stock {
    feed::itch::Stock name;
    uint32_t price;
  };
  struct Order {
    uint64_t reference;
    uint32_t shares;
    uint16_t locate;
    char side;
  };

  feed::itch::Message About(feed::itch::Type type, const Order& order) {
    feed::itch::Message message;
    message.type = type;
    message.locate = order.locate;
    message.order = order.reference;
    return message;
  }

  uint32_t Price(uint16_t locate, char side) {
    Stock& stock = stocks_[locate];
    stock.price += static_cast<uint32_t>(random_() % 3) * 100 - 100;
    const auto away = static_cast<uint32_t>(random_() % 20 + 1) * 100;
    return side == 'B' ? stock.price - away : stock.price + away;
  }

  feed::itch::Message Add() {
    Order order;
    order.reference = next_reference_++;
    order.shares = static_cast<uint32_t>(random_() % 10 + 1) * 100;
    order.locate = static_cast<uint16_t>(random_() % stocks_.size());
    order.side = random_() % 2 ? 'B' : 'S';
    orders_.push_back(order);
    feed::itch::Message message = About(feed::itch::Type::kAddOrder, order);
    message.side = order.side;
    message.shares = order.shares;
    message.stock = stocks_[order.locate].name;
    message.price = Price(order.locate, order.side);
    return message;
  }

  feed::itch::Message Reduce(size_t at, feed::itch::Type type) {
    feed::itch::Message message = About(type, orders_[at]);
    message.shares = random_() % orders_[at].shares + 1;
    message.match = type == feed::itch::Type::kExecuted ? next_match_++ : 0;
    orders_[at].shares -= static_cast<uint32_t>(message.shares);
    if (orders_[at].shares == 0) Forget(at);
    return message;
  }

  feed::itch::Message Replace(size_t at) {
    Order& order = orders_[at];
    feed::itch::Message message = About(feed::itch::Type::kReplace, order);
    order.reference = message.new_order = next_reference_++;
    message.shares = order.shares;
    message.price = Price(order.locate, order.side);
    return message;
  }

  feed::itch::Message Remove(size_t at) {
    const feed::itch::Message message = About(feed::itch::Type::kDelete, orders_[at]);
    Forget(at);
    return message;
  }

  void Forget(size_t at) {
    orders_[at] = orders_.back();
    orders_.pop_back();
  }

  std::mt19937_64 random_;
  std::vector<Stock> stocks_;
  std::vector<Order> orders_;
  uint64_t next_reference_ = 1;
  uint64_t next_match_ = 1;
};

}  // namespace publisher

#endif  // XTREME_SAMPLES_PUBLISHER_MARKET_H_
