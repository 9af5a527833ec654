// SPDX-License-Identifier: Apache-2.0
//
// The exchange as it is, in a network namespace; in another, at the other end of a veth pair, a
// client on kernel sockets, and the feed handler that follows its feed.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "samples/trading/order_session.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_session.h"
#include "tests/net/kernel_tcp.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::samples {
namespace {

using Command = std::vector<std::string>;
using State = trading::OrderSession::State;

constexpr char kExchangeAddress[] = "10.9.0.1";
constexpr uint16_t kOrderPort = 26'500;

uint64_t Named(const std::string& output, const std::string& name) {
  const size_t at = output.rfind(name + "=");
  if (at == output.npos) {
    ADD_FAILURE() << "no " << name << " in: " << output;
    return 0;
  }
  return std::strtoull(output.c_str() + at + name.size() + 1, nullptr, 10);
}

trading::ouch::Message Terms() {
  trading::ouch::Message terms;
  terms.shares = 100;
  terms.stock = feed::itch::MakeStock("XTRA");
  terms.time_in_force = trading::ouch::kMarketHours;
  return terms;
}

// An order session over kernel sockets, one step at a time.
class Client {
 public:
  void Connect() {
    socket_ = net::KernelTcp::Connect(kExchangeAddress, kOrderPort);
    session_.Disconnect();
    Send(session_.Connect(0));
  }
  // Sends an order far from everybody else's prices; its number.
  uint64_t Order() {
    Send(orders_.Next('B', 100));
    return orders_.OnSent(0);
  }
  void SendAgain() {
    orders_.Recover(0, [this](std::span<const uint8_t> packet) { Send(packet); });
  }
  // Receives until the connection ends, or the exchange said so much.
  void ReceiveUntil(uint64_t sequence) {
    while (session_.next_sequence() < sequence) {
      const std::string byte = socket_.Receive(1);
      if (byte.empty()) return;
      const auto value = static_cast<uint8_t>(byte[0]);
      session_.On({&value, 1}, 0, [this](uint64_t, std::span<const uint8_t> payload) {
        trading::ouch::Message message;
        trading::ouch::Parse(payload, &message);
        orders_.On(message);
      });
    }
  }

  const trading::OrderSession& orders() const { return orders_; }
  uint64_t next_sequence() const { return session_.next_sequence(); }

 private:
  template <typename Bytes>
  void Send(const Bytes& bytes) {
    socket_.Send(std::string(bytes.begin(), bytes.end()));
  }

  net::KernelTcp socket_;
  trading::soup::ClientSession session_{"test", "secret"};
  trading::OrderSession orders_{"T", Terms()};
};

class ExchangeTest : public testing::Test {
 protected:
  void SetUp() override {
    auto exchange = net::Namespace::Create();
    auto client = net::Namespace::Create();
    ASSERT_TRUE(exchange.ok() && client.ok()) << exchange.status() << client.status();
    exchange_ = *std::move(exchange);
    client_ = *std::move(client);
    ASSERT_TRUE(net::ConnectByVeth(*exchange_, "feed0", *client_, "feed1").ok());
    ASSERT_TRUE(exchange_->AddAddress("feed0", std::string(kExchangeAddress) + "/24").ok());
    ASSERT_TRUE(client_->AddAddress("feed1", "10.9.0.2/24").ok());
    inside_ = std::make_unique<net::Namespace::Inside>(*client_);
  }

  std::unique_ptr<Program> StartExchange(const Command& options) {
    Command command = {"samples/exchange", "--address", kExchangeAddress};
    command.insert(command.end(), options.begin(), options.end());
    const net::Namespace::Inside inside(*exchange_);
    auto program = std::make_unique<Program>(command);
    EXPECT_TRUE(program->ReadUntil("ready")) << program->output();
    return program;
  }

  std::unique_ptr<net::Namespace> exchange_;
  std::unique_ptr<net::Namespace> client_;
  std::unique_ptr<net::Namespace::Inside> inside_;
};

TEST_F(ExchangeTest, OrderIsAnsweredAndTheDayEnds) {
  auto exchange = StartExchange({"--messages=2000", "--rate=2000", "--linger=0.2"});
  Client client;
  client.Connect();
  const uint64_t order = client.Order();
  client.ReceiveUntil(2);
  EXPECT_EQ(client.orders().state(order), State::kLive);
  client.ReceiveUntil(~uint64_t{0});
  EXPECT_EQ(exchange->Wait(), 0);
  EXPECT_EQ(Named(exchange->output(), "connections"), 1u);
  EXPECT_GT(Named(exchange->output(), "fills"), 10u);
}

TEST_F(ExchangeTest, ConnectionThatIsCutAfterAnOrderHasItsAnswerWaiting) {
  auto exchange =
      StartExchange({"--messages=2000", "--rate=2000", "--linger=0.2", "--cut-after=2"});
  Client client;
  client.Connect();
  client.Order();
  client.ReceiveUntil(2);
  const uint64_t order = client.Order();
  client.ReceiveUntil(3);
  ASSERT_EQ(client.orders().state(order), State::kSent);
  client.Connect();
  client.SendAgain();  // Before the answer is there: it is passed over.
  client.ReceiveUntil(3);
  EXPECT_EQ(client.orders().state(order), State::kLive);
  client.ReceiveUntil(~uint64_t{0});
  EXPECT_EQ(exchange->Wait(), 0);
  EXPECT_EQ(Named(exchange->output(), "duplicates"), 1u);
  EXPECT_EQ(Named(exchange->output(), "cut"), 1u);
  EXPECT_EQ(client.orders().counters().inconsistent, 0u);
}

TEST_F(ExchangeTest, OrderThatWasLostWithItsConnectionIsTakenWhenSentAgain) {
  auto exchange =
      StartExchange({"--messages=2000", "--rate=2000", "--linger=0.2", "--cut-before=1"});
  Client client;
  client.Connect();
  const uint64_t order = client.Order();
  client.ReceiveUntil(2);
  ASSERT_EQ(client.next_sequence(), 1u);
  client.Connect();
  client.SendAgain();
  client.ReceiveUntil(2);
  EXPECT_EQ(client.orders().state(order), State::kLive);
  client.ReceiveUntil(~uint64_t{0});
  EXPECT_EQ(exchange->Wait(), 0);
  EXPECT_EQ(Named(exchange->output(), "duplicates"), 0u);
}

TEST_F(ExchangeTest, FeedOfItsBookIsFollowedThroughLosses) {
  const std::string json = std::string(std::getenv("TEST_TMPDIR")) + "/figures.json";
  Program handler({"samples/feed_handler_kernel", "--interface", "feed1", "--quiet", "--json", json,
                   "--timeout", "60", "--request-to", "10.9.0.1:26400"});
  ASSERT_TRUE(handler.ReadUntil("ready")) << handler.output();
  auto exchange = StartExchange(
      {"--messages=20000", "--rate=5000", "--loss=2", "--seed=3", "--linger=1"});
  EXPECT_EQ(exchange->Wait(), 0);
  EXPECT_EQ(handler.Wait(), 0);
  const auto handled = nlohmann::json::parse(std::ifstream(json), nullptr, false);
  EXPECT_EQ(handled["messages"], Named(exchange->output(), "published"));
  EXPECT_EQ(handled["missing"], 0);
  EXPECT_GT(handled["recovered_by_line"], 0);
}

TEST_F(ExchangeTest, WrongAddressIsRefused) {
  const net::Namespace::Inside inside(*exchange_);
  EXPECT_EQ(Program({"samples/exchange", "--address", "10.9.0.99"}).Wait(), 1);
}

}  // namespace
}  // namespace xtreme::samples
