// SPDX-License-Identifier: Apache-2.0
//
// exchange: a small exchange on ordinary kernel sockets. It matches the orders of seeded traders
// and of whoever connects (OUCH 4.2 over SoupBinTCP), publishes what happens to its books (ITCH 5.0
// over MoldUDP64 on two lines, each with its own loss), and answers requests for what was lost. The
// last line it prints is "published=N ...".

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "samples/arguments.h"
#include "samples/market/exchange.h"
#include "samples/market/order_port.h"
#include "samples/publisher/feed.h"
#include "samples/publisher/line_sockets.h"

namespace {

constexpr int64_t kHeartbeatNs = 50'000'000;

volatile sig_atomic_t stopped = 0;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void Pause() {
  const timespec wait = {.tv_sec = 0, .tv_nsec = 20'000};
  nanosleep(&wait, nullptr);
}

// Trades until the day is over, then goes on answering until nobody has asked for `linger_ns`.
// `await`: the day begins with the first client.
void Run(market::Exchange* exchange, market::OrderPort* port, publisher::Feed* feed, bool await,
         int64_t linger_ns) {
  int64_t heartbeat_ns = 0;
  int64_t quiet_since_ns = NowNs();
  bool ended = false;
  while (!stopped) {
    const int64_t now_ns = NowNs();
    const uint64_t before = feed->counters().published;
    if (!await || port->counters().connections > 0) exchange->Trade(now_ns);
    port->Serve(now_ns);
    const bool published = feed->counters().published != before;
    if (feed->AnswerRequests() > 0 || published) quiet_since_ns = now_ns;
    if (exchange->finished() && !ended && now_ns - quiet_since_ns >= linger_ns / 2) {
      port->EndSession();
      ended = true;
    }
    if (now_ns - heartbeat_ns >= kHeartbeatNs) {
      feed->Heartbeat(ended);
      heartbeat_ns = now_ns;
    }
    if (ended && now_ns - quiet_since_ns >= linger_ns) return;
    Pause();
  }
}

void PrintReady() {
  fmt::print("ready\n");
  std::fflush(stdout);
}

void Report(const publisher::Feed::Counters& feed, const market::Exchange& exchange,
            const market::OrderPort::Counters& port) {
  const trading::Matcher::Counters& traded = exchange.counters();
  fmt::print("published={} datagrams={} lost_a={} lost_b={} requests={} resent={} orders={} "
             "fills={} rejected={} duplicates={} client_orders={} client_shares={} connections={} "
             "cut={} late={}\n",
             feed.published, feed.datagrams, feed.lost[0], feed.lost[1], feed.requests,
             feed.resent, traded.orders, traded.fills, traded.rejected, traded.duplicates,
             exchange.client_counters().orders, exchange.client_counters().shares,
             port.connections, port.cut, port.late);
}

int Fail(const std::string& what) {
  fmt::print(stderr, "exchange: {}\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  market::Exchange::Options options;
  market::OrderPort::Options orders;
  publisher::Feed::Options lines;
  std::string line_a = "233.54.12.111:26477", line_b = "233.54.12.112:26477";
  uint16_t request_port = 26400;
  double linger_s = 2, loss_percent = 0;
  CLI::App app("A small exchange: ITCH by multicast, orders by OUCH 4.2 over SoupBinTCP.");
  app.add_option("--address", orders.address, "Address of the interface to send from")
      ->required();
  app.add_option("--line-a", line_a, "Group and port of line A")->capture_default_str();
  app.add_option("--line-b", line_b, "Group and port of line B")->capture_default_str();
  app.add_option("--request-port", request_port, "UDP port that answers requests")
      ->capture_default_str();
  app.add_option("--order-port", orders.port, "TCP port for orders")->capture_default_str();
  app.add_option("--messages", options.messages, "Messages to publish until the day is over")
      ->capture_default_str();
  app.add_option("--rate", options.messages_per_second, "Messages a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--loss", loss_percent, "Datagrams that each line loses on purpose, per cent")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--seed", options.seed, "Seed of the traders and of the losses")
      ->capture_default_str();
  app.add_option("--cut-before", orders.cut_before,
                 "Cut the connection instead of taking an account's order number N");
  app.add_option("--cut-after", orders.cut_after,
                 "Cut the connection instead of answering an account's order number N");
  app.add_option("--linger", linger_s, "Seconds to go on answering after the last request")
      ->capture_default_str();
  bool await = false;
  app.add_flag("--await-client", await, "Begin the day when the first client connects");
  if (const auto ended = samples::ParseArguments(app, argc, argv)) return *ended;

  for (int signal_number : {SIGINT, SIGTERM}) {
    signal(signal_number, [](int) { stopped = 1; });
  }
  const auto a = publisher::ParseEndpoint(line_a), b = publisher::ParseEndpoint(line_b);
  if (!a || !b) {
    const std::string& wrong = a ? line_b : line_a;
    return samples::RefuseArguments("exchange", "a line is GROUP:PORT, not '" + wrong + "'");
  }
  lines.lines = {*a, *b};
  lines.loss = loss_percent / 100;
  lines.seed = options.seed;
  publisher::LineSockets sockets;
  if (std::string wrong = sockets.Open(orders.address, request_port); !wrong.empty()) {
    return Fail(wrong);
  }
  publisher::Feed feed(lines, &sockets);
  market::Exchange exchange(options, &feed);
  market::OrderPort port(orders, &exchange);
  if (std::string wrong = port.Open(); !wrong.empty()) return Fail(wrong);
  PrintReady();
  Run(&exchange, &port, &feed, await, static_cast<int64_t>(linger_s * 1e9));
  Report(feed.counters(), exchange, port.counters());
  return sockets.counters().failed_sends == 0 ? 0 : 1;
}
