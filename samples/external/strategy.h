// SPDX-License-Identifier: Apache-2.0
//
// A strategy small enough to read at a glance: it hears numbered prices from a multicast feed, asks
// for those that were lost, and at the first one below its limit sends one order, all on one ring.
//
// The feed says "PRICE number price", and "NEXT number" when it has nothing to say. The strategy
// answers "AGAIN number count" and "BUY price". Thread: the ring's.

#ifndef XTREME_SAMPLES_EXTERNAL_STRATEGY_H_
#define XTREME_SAMPLES_EXTERNAL_STRATEGY_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "api/xtreme.hpp"

class Strategy {
 public:
  Strategy(xtreme::UdpSocket feed, xtreme::UdpSocket orders, long limit)
      : feed_(std::move(feed)), orders_(std::move(orders)), limit_(limit) {}

  // Takes one completion of the ring.
  void On(const xtreme::Completion& completion) {
    if (completion.kind() != xtreme::kPacket) return;
    const std::string text(completion.bytes().begin(), completion.bytes().end());
    long number = 0;
    long price = 0;
    if (std::sscanf(text.c_str(), "PRICE %ld %ld", &number, &price) == 2) {
      OnPrice(number, price);
    } else if (std::sscanf(text.c_str(), "NEXT %ld", &number) == 1) {
      OnNext(number);
    }
  }

  long heard() const { return next_ - 1; }       // In order, without a gap.
  long missed() const { return missed_; }        // Were not there when a later one was.
  long recovered() const { return recovered_; }  // Of these: came when they were asked for.
  bool bought() const { return bought_; }

 private:
  void OnPrice(long number, long price) {
    if (number < next_ || !early_.emplace(number, price).second) return;  // Known.
    recovered_ += number < expected_;
    Miss(number);
    expected_ = std::max(expected_, number + 1);
    for (auto at = early_.begin(); at != early_.end() && at->first == next_; ++next_) {
      Act(at->second);
      at = early_.erase(at);
    }
  }

  void OnNext(long number) {
    if (number > expected_) {
      Miss(number);
    } else if (next_ < expected_) {  // The request was lost, or what it asked for.
      Ask(next_, (early_.empty() ? expected_ : early_.begin()->first) - next_);
    }
  }

  // All before `number` were sent.
  void Miss(long number) {
    if (number <= expected_) return;
    missed_ += number - expected_;
    Ask(expected_, number - expected_);
    expected_ = number;
  }

  void Ask(long first, long count) {
    Send("AGAIN " + std::to_string(first) + " " + std::to_string(count));
  }

  void Act(long price) {
    if (bought_ || price >= limit_) return;
    bought_ = Send("BUY " + std::to_string(price));
  }

  bool Send(const std::string& text) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    return orders_.Send({bytes, text.size()}, {.now_or_fail = true}) >= 0;
  }

  xtreme::UdpSocket feed_;
  xtreme::UdpSocket orders_;
  const long limit_;
  std::map<long, long> early_;  // Prices behind a gap, by number.
  long next_ = 1;               // The first that is missing.
  long expected_ = 1;           // Behind the last that is known to have been sent.
  long missed_ = 0;
  long recovered_ = 0;
  bool bought_ = false;
};

#endif  // XTREME_SAMPLES_EXTERNAL_STRATEGY_H_
