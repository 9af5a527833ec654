// SPDX-License-Identifier: Apache-2.0
//
// Exchange: a matcher whose feed goes out by multicast and whose answers go into the outboxes of
// accounts, beside the orders of everybody else.
//
// Account 0 is everybody else; a client gets an account with its first login. Units: nanoseconds.
// Threads: one.

#ifndef XTREME_SAMPLES_MARKET_EXCHANGE_H_
#define XTREME_SAMPLES_MARKET_EXCHANGE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "samples/market/flow.h"
#include "samples/publisher/feed.h"
#include "samples/trading/matcher.h"
#include "samples/trading/ouch42.h"
#include "samples/trading/soup_session.h"

namespace market {

class Exchange final : public trading::Market {
 public:
  struct Options {
    std::vector<std::string_view> stocks = {"XTRA", "XTRB", "XTRC", "XTRD"};
    uint64_t seed = 1;
    uint64_t messages = 100'000;         // Of the feed; then the day is over.
    double messages_per_second = 20'000;  // Of the feed, about.
  };

  // `feed` outlives it.
  Exchange(const Options& options, publisher::Feed* feed)
      : options_(options),
        feed_(feed),
        flow_(options.seed, options.stocks),
        matcher_(options.stocks, this) {}

  // Lets everybody else trade what is due at `now_ns` (the first call starts the clock).
  void Trade(int64_t now_ns) {
    if (start_ns_ < 0) start_ns_ = now_ns;
    const double elapsed = static_cast<double>(now_ns - start_ns_) / 1e9;
    const auto due = std::min<uint64_t>(
        options_.messages, static_cast<uint64_t>(elapsed * options_.messages_per_second));
    for (int i = 0; i < kMostAtOnce && feed_->counters().published < due; ++i) {
      matcher_.On(kEverybody, flow_.Next(), publisher::MidnightNs());
      if (i % kPerDatagram == kPerDatagram - 1) feed_->Flush();
    }
    feed_->Flush();
  }
  bool finished() const { return feed_->counters().published >= options_.messages; }

  struct Account {
    std::array<char, 6> user;
    trading::soup::Outbox outbox{"DAY1"};
    uint64_t orders = 0;  // Messages of the client.
  };
  // The account of a user, which is opened for who has none; any password will do.
  Account* LogIn(const trading::soup::LoginRequest& request) {
    for (Account& account : accounts_) {
      if (account.user == request.user) return &account;
    }
    accounts_.push_back({.user = request.user});
    return &accounts_.back();
  }
  // A client's message. What it does to the market is published at once.
  void OnOrder(Account* account, std::span<const uint8_t> payload) {
    trading::ouch::Message message;
    if (trading::ouch::Parse(payload, &message) != trading::ouch::Refusal::kNone) return;
    matcher_.On(NumberOf(account), message, publisher::MidnightNs());
    feed_->Flush();
  }

  const trading::Matcher::Counters& counters() const { return matcher_.counters(); }
  // Of all clients: everybody else's are in counters() only.
  struct ClientCounters {
    uint64_t orders = 0;  // Accepted.
    uint64_t shares = 0;  // Executed.
  };
  const ClientCounters& client_counters() const { return client_counters_; }

 private:
  static constexpr uint32_t kEverybody = 0;
  static constexpr int kMostAtOnce = 512;
  static constexpr int kPerDatagram = 8;

  uint32_t NumberOf(const Account* account) const {
    const auto found = std::find_if(accounts_.begin(), accounts_.end(),
                                    [=](const Account& each) { return &each == account; });
    return static_cast<uint32_t>(found - accounts_.begin()) + 1;
  }

  void Publish(const feed::itch::Message& message) override { feed_->Add(message); }
  void Tell(uint32_t account, const trading::ouch::Message& message) override {
    if (account == kEverybody) return;
    client_counters_.orders += message.type == trading::ouch::Type::kAccepted;
    if (message.type == trading::ouch::Type::kExecuted) client_counters_.shares += message.shares;
    std::array<uint8_t, trading::ouch::kMostBytes> bytes;
    const size_t length = trading::ouch::Emit(message, bytes);
    accounts_[account - 1].outbox.Append(std::span(bytes).first(length));
  }

  const Options options_;
  publisher::Feed* const feed_;
  Flow flow_;
  trading::Matcher matcher_;
  std::deque<Account> accounts_;  // Account N at N - 1; they do not move.
  ClientCounters client_counters_;
  int64_t start_ns_ = -1;
};

}  // namespace market

#endif  // XTREME_SAMPLES_MARKET_EXCHANGE_H_
