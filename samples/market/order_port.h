// SPDX-License-Identifier: Apache-2.0
//
// OrderPort: the TCP port of an exchange, on kernel sockets: SoupBinTCP sessions whose messages are
// OUCH.
//
// On purpose, for who wants to see a gateway recover, it cuts a connection when so many messages of
// its account have come: before the last of them was looked at, or after, when its answers have not
// been sent. Units: nanoseconds. Threads: one.

#ifndef XTREME_SAMPLES_MARKET_ORDER_PORT_H_
#define XTREME_SAMPLES_MARKET_ORDER_PORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "samples/market/exchange.h"
#include "samples/trading/soup_session.h"

namespace market {

class OrderPort {
 public:
  struct Options {
    std::string address;
    uint16_t port = 26'500;
    uint64_t cut_before = 0;  // The message that is lost with its connection; 0: none.
    uint64_t cut_after = 0;   // The message whose answers are.
  };
  struct Counters {
    uint64_t connections = 0;
    uint64_t cut = 0;
    uint64_t late = 0;  // Orders that came after the day was over: passed over.
  };

  // `exchange` outlives it.
  OrderPort(const Options& options, Exchange* exchange) : options_(options), exchange_(exchange) {}
  ~OrderPort();
  OrderPort(const OrderPort&) = delete;
  OrderPort& operator=(const OrderPort&) = delete;

  // "" or what failed.
  std::string Open();
  // Accepts, receives and sends what there is, without waiting.
  void Serve(int64_t now_ns);
  // The day is over: every client is told, also who logs in later, and no order is taken any more.
  void EndSession();

  size_t connections() const { return connections_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  struct Connection {
    int fd = -1;
    trading::soup::ServerConnection session;
    Exchange::Account* account = nullptr;
    std::vector<uint8_t> unsent;
    bool cut = false;
    bool told_end = false;
  };

  void Accept(int64_t now_ns);
  // False: the connection is over.
  bool Serve(Connection* connection, int64_t now_ns);
  void Receive(Connection* connection, std::span<const uint8_t> bytes, int64_t now_ns);
  void OnMessage(Connection* connection, std::span<const uint8_t> payload);
  static void TellEnd(Connection* connection);
  static bool Send(Connection* connection);

  const Options options_;
  Exchange* const exchange_;
  int listen_fd_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
  Counters counters_;
  bool ended_ = false;
};

}  // namespace market

#endif  // XTREME_SAMPLES_MARKET_ORDER_PORT_H_
