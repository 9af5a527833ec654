// SPDX-License-Identifier: Apache-2.0
//
// A strategy small enough to read at a glance: it hears prices from a multicast feed and, at the
// first one below its limit, sends one order on the same ring.
//
// A price is "PRICE n" and an order "BUY n". Thread: the ring's.

#ifndef XTREME_SAMPLES_EXTERNAL_STRATEGY_H_
#define XTREME_SAMPLES_EXTERNAL_STRATEGY_H_

#include <cstdint>
#include <cstdlib>
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
    if (text.rfind("PRICE ", 0) != 0) return;
    ++heard_;
    const long price = std::strtol(text.c_str() + 6, nullptr, 10);
    if (bought_ || price >= limit_) return;
    const std::string order = "BUY " + std::to_string(price);
    const auto* bytes = reinterpret_cast<const uint8_t*>(order.data());
    bought_ = orders_.Send({bytes, order.size()}, {.now_or_fail = true}) >= 0;
  }

  int heard() const { return heard_; }
  bool bought() const { return bought_; }

 private:
  xtreme::UdpSocket feed_;
  xtreme::UdpSocket orders_;
  const long limit_;
  int heard_ = 0;
  bool bought_ = false;
};

#endif  // XTREME_SAMPLES_EXTERNAL_STRATEGY_H_
