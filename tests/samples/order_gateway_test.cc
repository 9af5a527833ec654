// SPDX-License-Identifier: Apache-2.0
//
// From the tick to the fill: the exchange on kernel sockets in one network namespace, the gateway
// on a software ConnectX in another, at the other end of a veth pair.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::samples {
namespace {

using Command = std::vector<std::string>;

uint64_t Named(const std::string& output, const std::string& name) {
  const size_t at = output.rfind(" " + name + "=");
  if (at == output.npos) {
    ADD_FAILURE() << "no " << name << " in: " << output;
    return 0;
  }
  return std::strtoull(output.c_str() + at + name.size() + 2, nullptr, 10);
}

class OrderGatewayTest : public testing::Test {
 protected:
  void SetUp() override {
    auto exchange = net::Namespace::Create();
    auto gateway = net::Namespace::Create();
    ASSERT_TRUE(exchange.ok() && gateway.ok()) << exchange.status() << gateway.status();
    exchange_ = *std::move(exchange);
    gateway_ = *std::move(gateway);
    ASSERT_TRUE(net::ConnectByVeth(*exchange_, "feed0", *gateway_, "feed1").ok());
    ASSERT_TRUE(exchange_->AddAddress("feed0", "10.9.0.1/24").ok());
    ASSERT_TRUE(gateway_->AddAddress("feed1", "10.9.0.2/24").ok());
  }

  // A day of an exchange that this gateway trades on, until both have ended.
  void Trade(const Command& exchange_options, const Command& gateway_options) {
    Command exchange = {"samples/exchange", "--address",  "10.9.0.1",       "--await-client",
                        "--messages=20000", "--rate=5000", "--linger=0.5"};
    exchange.insert(exchange.end(), exchange_options.begin(), exchange_options.end());
    Command gateway = {"tools/connectx/preload/launch", "--interface=feed1", "--",
                       "samples/order_gateway", "--interface", "feed1", "--orders-to",
                       "10.9.0.1:26500", "--request-to", "10.9.0.1:26400", "--timeout", "60",
                       "--interval-ns", "0"};
    gateway.insert(gateway.end(), gateway_options.begin(), gateway_options.end());
    auto market = Start(*exchange_, exchange);
    ASSERT_TRUE(market->ReadUntil("ready")) << market->output();
    auto trader = Start(*gateway_, gateway);
    EXPECT_EQ(trader->Wait(), 0) << trader->output();
    EXPECT_EQ(market->Wait(), 0) << market->output();
    market_ = market->output();
    trader_ = " " + trader->output();
  }

  static std::unique_ptr<Program> Start(const net::Namespace& space, const Command& command) {
    const net::Namespace::Inside inside(space);
    return std::make_unique<Program>(command);
  }

  std::unique_ptr<net::Namespace> exchange_;
  std::unique_ptr<net::Namespace> gateway_;
  std::string market_;  // What they printed.
  std::string trader_;
};

TEST_F(OrderGatewayTest, TicksBecomeOrdersAndOrdersFills) {
  ASSERT_NO_FATAL_FAILURE(Trade({}, {"--orders", "100"}));
  EXPECT_NE(trader_.find("orders=100 accepted=100 "), trader_.npos) << trader_;
  EXPECT_NE(trader_.find("tick-to-trade of 100 orders"), trader_.npos) << trader_;
  EXPECT_GT(Named(trader_, "fills"), 50u);
  EXPECT_EQ(Named(trader_, "filled_shares"), Named(market_, "client_shares"));
  EXPECT_EQ(Named(trader_, "connections"), 1u);
  EXPECT_EQ(Named(trader_, "inconsistent"), 0u);
}

TEST_F(OrderGatewayTest, SessionGoesOnAfterItsConnectionsWereCut) {
  // One connection takes an order with it, the other the answers to one.
  ASSERT_NO_FATAL_FAILURE(Trade({"--cut-before=20", "--cut-after=40", "--loss=1", "--seed=3"},
                                {"--orders", "100"}));
  EXPECT_EQ(Named(market_, "cut"), 2u);
  EXPECT_EQ(Named(trader_, "connections"), 3u);
  EXPECT_GE(Named(trader_, "sent_again"), 1u);
  EXPECT_EQ(Named(trader_, "unanswered"), 0u);
  EXPECT_EQ(Named(trader_, "inconsistent"), 0u);
  EXPECT_EQ(Named(trader_, "missing"), 0u);
  // No order was lost, and none was taken twice.
  EXPECT_EQ(Named(trader_, "accepted"), Named(market_, "client_orders"));
  EXPECT_EQ(Named(trader_, "filled_shares"), Named(market_, "client_shares"));
}

TEST_F(OrderGatewayTest, WrongArgumentsAreRefused) {
  EXPECT_NE(Start(*gateway_, {"samples/order_gateway"})->Wait(), 0);
  EXPECT_EQ(Start(*gateway_, {"samples/order_gateway", "--interface", "feed1", "--orders-to",
                              "nowhere"})->Wait(), 1);
}

}  // namespace
}  // namespace xtreme::samples
