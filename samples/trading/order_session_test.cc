// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "samples/trading/matcher.h"
#include "samples/trading/order_session.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"

namespace trading {
namespace {

using State = OrderSession::State;

ouch::Message Terms() {
  ouch::Message terms;
  terms.shares = 100;
  terms.time_in_force = ouch::kMarketHours;
  terms.stock = feed::itch::MakeStock("XTRA");
  return terms;
}

ouch::Message Read(std::span<const uint8_t> packet) {
  ouch::Message message;
  const soup::Packet cut = soup::Next(packet);
  EXPECT_EQ(cut.verdict, soup::Verdict::kPacket);
  EXPECT_EQ(cut.type, soup::Type::kUnsequenced);
  EXPECT_EQ(cut.bytes(), packet.size());
  EXPECT_EQ(ouch::Parse(cut.payload, &message), ouch::Refusal::kNone);
  return message;
}

class OrderSessionTest : public testing::Test, public Market {
 protected:
  void Publish(const feed::itch::Message&) override {}
  void Tell(uint32_t, const ouch::Message& message) override { answers_.push_back(message); }

  // Sends an order; what the exchange says to it waits in answers_.
  uint64_t Send(char side, uint32_t price, int64_t now_ns = 0) {
    const ouch::Message order = Read(session_.Next(side, price));
    const uint64_t number = session_.OnSent(now_ns);
    matcher_.On(1, order, 0);
    return number;
  }
  void Answer() {
    for (const ouch::Message& answer : std::exchange(answers_, {})) session_.On(answer);
  }
  ouch::Message About(ouch::Type type, uint64_t number, uint32_t shares) {
    ouch::Message message = Read(session_.Next('B', 1));
    message.type = type;
    message.token[13] = static_cast<char>('0' + number);
    message.shares = shares;
    return message;
  }

  OrderSession session_{"R1", Terms()};
  Matcher matcher_{{"XTRA"}, this};
  std::vector<ouch::Message> answers_;
};

TEST_F(OrderSessionTest, OrdersAreTheTermsWithSidePriceAndATokenOfTheirOwn) {
  const ouch::Message first = Read(session_.Next('B', 1'000'000));
  EXPECT_EQ(first.shares, 100u);
  EXPECT_EQ(first.side, 'B');
  EXPECT_EQ(first.price, 1'000'000u);
  session_.OnSent(0);
  const ouch::Message second = Read(session_.Next('S', 990'000));
  EXPECT_EQ(second.side, 'S');
  EXPECT_NE(second.token, first.token);
}

TEST_F(OrderSessionTest, OrderThatWasNotSentUsesNoToken) {
  const ouch::Message refused = Read(session_.Next('B', 1));
  EXPECT_EQ(Read(session_.Next('B', 2)).token, refused.token);
}

TEST_F(OrderSessionTest, FillsAreFollowedToTheEnd) {
  const uint64_t sell = Send('S', 100);
  const uint64_t buy = Send('B', 100);
  EXPECT_EQ(session_.state(sell), State::kSent);
  EXPECT_EQ(session_.unanswered(), 2u);
  Answer();
  EXPECT_EQ(session_.state(sell), State::kFilled);
  EXPECT_EQ(session_.state(buy), State::kFilled);
  EXPECT_EQ(session_.counters().filled_shares, 200u);
  EXPECT_EQ(session_.unanswered(), 0u);
}

TEST_F(OrderSessionTest, RejectedOrderIsRejected) {
  const uint64_t order = Send('B', 0);
  Answer();
  EXPECT_EQ(session_.state(order), State::kRejected);
}

TEST_F(OrderSessionTest, NoOrderIsFilledBeyondItsShares) {
  const uint64_t order = Send('B', 100);
  Answer();
  EXPECT_EQ(session_.On(About(ouch::Type::kExecuted, order, 60)), order);
  EXPECT_EQ(session_.On(About(ouch::Type::kExecuted, order, 60)), OrderSession::kNone);
  EXPECT_EQ(session_.open_shares(order), 40u);
  EXPECT_EQ(session_.counters().inconsistent, 1u);
}

TEST_F(OrderSessionTest, OrdersOfOthersAreNotOurs) {
  Send('B', 100);
  ouch::Message other = About(ouch::Type::kAccepted, 0, 100);
  other.token[0] = 'Q';
  EXPECT_EQ(session_.On(other), OrderSession::kNone);
  EXPECT_EQ(session_.On(About(ouch::Type::kAccepted, 7, 100)), OrderSession::kNone);
  EXPECT_EQ(session_.counters().inconsistent, 2u);
}

// Whether the exchange had the order or not, after the reconnect it has it once.
TEST_F(OrderSessionTest, OrderOfUnknownFateIsSentAgainAsItWas) {
  const uint64_t known = Send('B', 100);  // Its answer is lost with the connection, for now.
  const ouch::Message lost = Read(session_.Next('B', 99));
  const uint64_t unknown = session_.OnSent(0);  // The exchange never sees it.
  std::vector<ouch::Message> again;
  session_.Recover(0, [&](std::span<const uint8_t> packet) { again.push_back(Read(packet)); });
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[1].token, lost.token);
  EXPECT_EQ(again[1].price, 99u);
  for (const ouch::Message& order : again) matcher_.On(1, order, 0);
  Answer();
  EXPECT_EQ(matcher_.counters().duplicates, 1u);
  EXPECT_EQ(matcher_.book(0).open_orders(), 2u);
  EXPECT_EQ(session_.state(known), State::kLive);
  EXPECT_EQ(session_.state(unknown), State::kLive);
  EXPECT_EQ(session_.counters().inconsistent, 0u);
}

TEST_F(OrderSessionTest, OrderThatIsTooOldIsCancelledInstead) {
  const ouch::Message order = Read(session_.Next('B', 100));
  session_.OnSent(1'000);
  std::vector<ouch::Message> sent;
  session_.Recover(1'001, [&](std::span<const uint8_t> packet) { sent.push_back(Read(packet)); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].type, ouch::Type::kCancelOrder);
  EXPECT_EQ(sent[0].token, order.token);
  EXPECT_EQ(sent[0].shares, 0u);
  EXPECT_EQ(session_.counters().given_up, 1u);
}

TEST_F(OrderSessionTest, AnsweredOrdersAreNotSentAgain) {
  Send('B', 100);
  Send('B', 99);
  Answer();
  int sent = 0;
  session_.Recover(0, [&](std::span<const uint8_t>) { ++sent; });
  EXPECT_EQ(sent, 0);
}

TEST(OrderTokenTest, RunsOfADayHaveTokensOfTheirOwn) {
  constexpr uint64_t kUnitNs = 62'500'000, kDayNs = 86'400'000'000'000;
  std::string before;
  for (uint64_t ns = 0; ns < kDayNs; ns += 61 * kUnitNs) {
    const std::string prefix = OrderSession::PrefixAt(ns);
    EXPECT_LT(before, prefix);
    before = prefix;
  }
  EXPECT_EQ(before.size(), OrderSession::kPrefixBytes);
  EXPECT_EQ(OrderSession::PrefixAt(0), "0000");
  EXPECT_EQ(OrderSession::PrefixAt(36 * kUnitNs), "0010");
}

}  // namespace
}  // namespace trading
