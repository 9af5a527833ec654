// SPDX-License-Identifier: Apache-2.0
//
// Flow: the orders of everybody else on an exchange: they come around prices that wander, cross now
// and then, and are cancelled. The same seed gives the same messages.

#ifndef XTREME_SAMPLES_MARKET_FLOW_H_
#define XTREME_SAMPLES_MARKET_FLOW_H_

#include <cstdint>
#include <deque>
#include <random>
#include <string_view>
#include <vector>

#include "samples/trading/ouch42.h"

namespace market {

class Flow {
 public:
  Flow(uint64_t seed, const std::vector<std::string_view>& stocks) : random_(seed) {
    for (const std::string_view name : stocks) {
      stocks_.push_back({feed::itch::MakeStock(name), 1'000'000});
    }
  }

  // The next order or cancel.
  trading::ouch::Message Next() {
    const bool cancel = orders_.size() > kFewOrders && random_() % 100 < 48;
    return cancel || orders_.size() > kManyOrders ? Cancel() : Enter();
  }

 private:
  static constexpr size_t kFewOrders = 100;
  static constexpr size_t kManyOrders = 5'000;
  static constexpr uint32_t kTick = 100;  // A cent.

  struct Stock {
    feed::itch::Stock name;
    uint32_t price;
  };

  trading::ouch::Token NextToken() {
    trading::ouch::Token token;
    uint64_t number = next_token_++;
    for (size_t i = token.size(); i-- > 0; number /= 10) {
      token[i] = static_cast<char>('0' + number % 10);
    }
    return token;
  }

  trading::ouch::Message Enter() {
    Stock& stock = stocks_[random_() % stocks_.size()];
    stock.price += static_cast<uint32_t>(random_() % 3) * kTick - kTick;
    // Some reach over to the other side.
    const auto away = static_cast<uint32_t>(random_() % 20) * kTick;
    trading::ouch::Message order;
    order.type = trading::ouch::Type::kEnterOrder;
    order.token = NextToken();
    order.side = random_() % 2 ? 'B' : 'S';
    order.price = order.side == 'B' ? stock.price + kTick - away : stock.price - kTick + away;
    order.shares = static_cast<uint32_t>(random_() % 10 + 1) * 100;
    order.time_in_force = trading::ouch::kMarketHours;
    order.stock = stock.name;
    orders_.push_back(order.token);
    return order;
  }

  // Of an order that may be gone already; mostly of an old one.
  trading::ouch::Message Cancel() {
    trading::ouch::Message cancel;
    cancel.type = trading::ouch::Type::kCancelOrder;
    cancel.token = orders_.front();
    orders_.pop_front();
    return cancel;
  }

  std::mt19937_64 random_;
  std::vector<Stock> stocks_;
  std::deque<trading::ouch::Token> orders_;
  uint64_t next_token_ = 1;
};

}  // namespace market

#endif  // XTREME_SAMPLES_MARKET_FLOW_H_
