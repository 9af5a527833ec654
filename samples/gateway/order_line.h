// SPDX-License-Identifier: Apache-2.0
//
// OrderLine: an order session (OUCH in SoupBinTCP) on a TCP connection of a ring. It logs in, keeps
// the session alive by the ring's timers, and reconnects: where the sequence stood, with the orders
// of unknown fate sent again under their tokens.
//
// An order leaves at once or not at all. It is a prepared send: built ahead down to the frame,
// patched and fired; now and then the way that it takes is walked without sending (a warm send).
// Units: nanoseconds. Threads: the ring's owner.

#ifndef XTREME_SAMPLES_GATEWAY_ORDER_LINE_H_
#define XTREME_SAMPLES_GATEWAY_ORDER_LINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "samples/feed/histogram.h"
#include "samples/trading/order_session.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_session.h"

namespace gateway {

class OrderLine {
 public:
  struct Options {
    xtreme_address server = {};
    std::string user = "xtreme";
    std::string password = "xtreme";
    trading::ouch::Message terms;            // Of every order, but for side and price.
    int64_t resend_ns = 1'000'000'000;       // Orders older than this are not sent again.
    int64_t reconnect_ns = 100'000'000;      // Before it connects again.
  };
  struct Counters {
    uint64_t refused_sends = 0;  // Orders that could not leave at once.
    uint64_t down = 0;           // Orders that nobody was there to take.
    uint64_t connections = 0;    // Logged in.
    uint64_t heartbeats = 0;
  };

  // `ring` outlives it.
  OrderLine(const Options& options, xtreme::Ring* ring);

  // "" or what failed.
  std::string Connect();
  // A completion of the ring; true: it was about this.
  bool On(const xtreme::Completion& completion);
  // Sends an order that reacts to what the device received at `tick_ns` (0: unknown).
  void Fire(char side, uint32_t price, int64_t tick_ns);
  // The next lines for a human; empty when there is nothing new.
  std::string TakeNews() { return std::exchange(news_, {}); }

  bool up() const { return session_.state() == trading::soup::ClientSession::State::kOpen; }
  // The exchange has ended the session, or will not have us.
  bool ended() const { return ended_; }
  const trading::OrderSession& orders() const { return orders_; }
  const Counters& counters() const { return counters_; }
  // From the device's receive time of the tick to the completion of the order's send.
  const feed::Histogram& tick_to_trade() const { return tick_to_trade_; }
  uint64_t repeated() const { return session_.repeated(); }

 private:
  enum Timer : uint64_t { kKeepAlive = 1, kReconnect = 2 };

  void OnBytes(std::span<const uint8_t> bytes);
  void OnMessage(std::span<const uint8_t> payload);
  void OnLoggedIn();
  void OnWire(const xtreme::Completion& wire);
  void OnTimer(uint64_t which);
  void OnTerminated(const xtreme::Completion& end);
  void KeepAlive();
  template <typename Bytes>
  void Send(const Bytes& bytes);
  void SetTimer(Timer which, int64_t deadline_ns);

  const Options options_;
  xtreme::Ring* const ring_;
  xtreme::TcpSocket socket_;
  xtreme::Prepared order_;  // Of this connection, once it is logged in.
  trading::soup::ClientSession session_;
  trading::OrderSession orders_;
  std::vector<int64_t> ticks_ns_;  // By order.
  feed::Histogram tick_to_trade_;
  Counters counters_;
  std::string news_;
  bool ended_ = false;
};

}  // namespace gateway

#endif  // XTREME_SAMPLES_GATEWAY_ORDER_LINE_H_
