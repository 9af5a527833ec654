// SPDX-License-Identifier: Apache-2.0
//
// Taker: a strategy that takes what is offered at a better price than a moment ago: buys when the
// best ask falls, sells when the best bid rises.
//
// No I/O; time is an argument. Units: nanoseconds; prices in 1/10,000 dollar.

#ifndef XTREME_SAMPLES_GATEWAY_TAKER_H_
#define XTREME_SAMPLES_GATEWAY_TAKER_H_

#include <cstdint>
#include <optional>

#include "samples/feed/book.h"

namespace gateway {

class Taker {
 public:
  struct Options {
    uint64_t orders = 1'000;           // The most it wants.
    int64_t interval_ns = 5'000'000;   // The least time between two.
  };
  struct Intent {
    char side;
    uint32_t price;
    bool operator==(const Intent&) const = default;
  };

  explicit Taker(const Options& options) : options_(options) {}

  // The top of the book after a message; what to do about it now.
  std::optional<Intent> On(const feed::TopOfBook& top, int64_t now_ns) {
    const feed::TopOfBook before = last_;
    last_ = top;
    const bool may = wanted_ < options_.orders && now_ns - last_ns_ >= options_.interval_ns;
    if (!may || before.bid.price == 0 || before.ask.price == 0) return std::nullopt;
    if (top.ask.price != 0 && top.ask.price < before.ask.price) {
      return Want({'B', top.ask.price}, now_ns);
    }
    if (top.bid.price > before.bid.price) return Want({'S', top.bid.price}, now_ns);
    return std::nullopt;
  }

  // Whether it wants no more.
  bool finished() const { return wanted_ == options_.orders; }

 private:
  Intent Want(const Intent& intent, int64_t now_ns) {
    ++wanted_;
    last_ns_ = now_ns;
    return intent;
  }

  const Options options_;
  feed::TopOfBook last_;
  int64_t last_ns_ = INT64_MIN / 2;
  uint64_t wanted_ = 0;
};

}  // namespace gateway

#endif  // XTREME_SAMPLES_GATEWAY_TAKER_H_
