// SPDX-License-Identifier: Apache-2.0
//
// order_gateway: from a tick to an order on one ring. Follows a feed on two lines with requests for
// what both lost, keeps the book of a stock, takes what is offered at a better price, and sends the
// order by OUCH over SoupBinTCP: at once or not at all. The last line it prints is "orders=N ...".
//
// How the ring waits, and every other setting of it, comes from the environment (XTREME_WAIT=...).

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "api/xtreme.hpp"
#include "fmt/format.h"
#include "samples/arguments.h"
#include "samples/feed/handler.h"
#include "samples/gateway/order_line.h"
#include "samples/gateway/taker.h"
#include "samples/receiver/feed_ring.h"
#include "samples/receiver/process.h"

namespace {

using Handler = feed::Handler<xtreme::Packet>;

constexpr char kProgram[] = "order_gateway";
constexpr size_t kHoldByReference = 256;  // Datagrams; above, they are copied.
constexpr int64_t kWaitNs = 1'000'000;

struct Options {
  receiver::FeedRing::Options feed = {.lines = {"233.54.12.111:26477", "233.54.12.112:26477"},
                                      .request_line = Handler::retransmission()};
  std::string orders_to;
  std::string stock = "XTRA";
  uint32_t shares = 100;
  gateway::Taker::Options taker;
  double timeout_s = 60;
};

std::optional<int> ParseCommandLine(int argc, char** argv, Options* options) {
  CLI::App app("Takes what a feed offers at a better price, on a ring of a ConnectX.");
  app.add_option("--interface", options->feed.interface, "Interface of feed and orders")
      ->required();
  app.add_option("--orders-to", options->orders_to, "A.B.C.D:PORT that takes orders")->required();
  app.add_option("--line-a", options->feed.lines[0], "Group and port of line A")
      ->capture_default_str();
  app.add_option("--line-b", options->feed.lines[1], "Group and port of line B")
      ->capture_default_str();
  app.add_option("--request-to", options->feed.request_to,
                 "A.B.C.D:PORT that is asked for what both lines lost");
  app.add_option("--stock", options->stock, "The stock to trade")->capture_default_str();
  app.add_option("--shares", options->shares, "Of each order")->capture_default_str();
  app.add_option("--orders", options->taker.orders, "Most orders")->capture_default_str();
  app.add_option("--interval-ns", options->taker.interval_ns, "Least time between two")
      ->capture_default_str();
  app.add_option("--timeout", options->timeout_s, "Seconds until the run has failed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  return samples::ParseArguments(app, argc, argv);
}

class Gateway {
 public:
  Gateway(const Options& options, receiver::FeedRing* feed, const xtreme_address& server)
      : options_(options),
        feed_(feed),
        handler_({.arbiter = {.hold_by_reference = kHoldByReference},
                  .requester = Asking(options),
                  .symbols = {options_.stock}}),
        taker_(options.taker),
        line_({.server = server, .terms = Terms(options)}, &feed->ring()) {}

  gateway::OrderLine& line() { return line_; }
  const Handler& handler() const { return handler_; }
  // The exchange has ended its day, and nothing of it is missing.
  bool Done() const { return line_.ended() && handler_.Done(); }
  // Why it cannot go on; empty when it can.
  const std::string& failure() const { return failure_; }

  // One turn of the loop.
  void Turn() {
    for (xtreme::Completion& completion : feed_->ring().Wait(kWaitNs)) {
      if (line_.On(completion)) continue;
      if (completion.kind() == xtreme::kPacket) OnDatagram(&completion);
      if (completion.kind() == xtreme::kRing) receiver::Print(receiver::Describe(completion));
      if (completion.kind() != xtreme::kOpDone) continue;
      feed_->OnOpDone();
      if (completion.status != 0) failure_ = completion.text;
    }
    if (const std::string news = line_.TakeNews(); !news.empty()) receiver::Print(news);
    if (feed_->pending()) return;
    if (const auto request = handler_.NextRequest(Now())) feed_->Ask(*request);
  }

 private:
  static trading::ouch::Message Terms(const Options& options) {
    trading::ouch::Message terms;
    terms.stock = feed::itch::MakeStock(options.stock);
    terms.shares = options.shares;
    terms.time_in_force = trading::ouch::kImmediateOrCancel;
    return terms;
  }
  static feed::Requester::Options Asking(const Options& options) {
    feed::Requester::Options asking;
    if (options.feed.request_to.empty()) asking.tries = 0;
    return asking;
  }
  static Handler::Times Now() { return {.now_ns = receiver::MonotonicNs()}; }

  void OnDatagram(xtreme::Completion* packet) {
    handler_.OnDatagram(packet->user_data, packet->bytes(), Now(),
                        [packet] { return packet->Keep(); });
    const int64_t now_ns = feed_->ring().now_ns();
    const auto intent = taker_.On(handler_.books().Top(options_.stock), now_ns);
    if (intent) line_.Fire(intent->side, intent->price, packet->hw_time_ns);
  }

  const Options options_;
  receiver::FeedRing* const feed_;
  Handler handler_;
  gateway::Taker taker_;
  gateway::OrderLine line_;
  std::string failure_;
};

void Report(Gateway* gateway) {
  const gateway::OrderLine& line = gateway->line();
  const trading::OrderSession::Counters& orders = line.orders().counters();
  const feed::Histogram& times = line.tick_to_trade();
  const auto us = [&times](double part) { return static_cast<double>(times.Quantile(part)) / 1e3; };
  receiver::Print(fmt::format(
      "tick-to-trade of {} orders, from the device's receive time of the tick's datagram to the\n"
      "device's time when the order's send was complete: p50 {:.1f}, p90 {:.1f}, p99 {:.1f}, "
      "most {:.1f} us\n",
      times.count(), us(0.5), us(0.9), us(0.99), us(1)));
  receiver::Print(fmt::format(
      "orders={} accepted={} fills={} filled_shares={} canceled={} rejected={} unanswered={} "
      "sent_again={} given_up={} inconsistent={} repeated={} connections={} refused_sends={} "
      "down={} messages={} missing={}\n",
      orders.sent, orders.accepted, orders.fills, orders.filled_shares, orders.canceled,
      orders.rejected, line.orders().unanswered(), orders.sent_again, orders.given_up,
      orders.inconsistent, line.repeated(), line.counters().connections,
      line.counters().refused_sends, line.counters().down,
      gateway->handler().arbiter().counters().messages, gateway->handler().counters().missing));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto ended = ParseCommandLine(argc, argv, &options)) return *ended;
  auto server = xtreme::ParseAddress(options.orders_to);
  if (!server) return receiver::Refuse(kProgram, server.error().message);
  receiver::CatchSignals();
  receiver::FeedRing feed;
  if (const std::string wrong = feed.Open(options.feed); !wrong.empty()) {
    return receiver::Refuse(kProgram, wrong);
  }
  Gateway gateway(options, &feed, *server);
  const int64_t end_ns =
      receiver::MonotonicNs() + static_cast<int64_t>(options.timeout_s * receiver::kSecondNs);
  const auto over = [&] {
    return receiver::Stopped() || !gateway.failure().empty() || receiver::MonotonicNs() > end_ns;
  };
  while (feed.pending() && !over()) gateway.Turn();
  if (!feed.pending()) receiver::Print("ready\n");
  if (const std::string wrong = gateway.line().Connect(); !wrong.empty()) {
    return receiver::Refuse(kProgram, wrong);
  }
  while (!gateway.Done() && !over()) gateway.Turn();
  Report(&gateway);
  if (!gateway.failure().empty()) return receiver::Refuse(kProgram, gateway.failure());
  return gateway.Done() ? EXIT_SUCCESS : EXIT_FAILURE;
}
