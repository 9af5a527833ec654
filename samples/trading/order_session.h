// SPDX-License-Identifier: Apache-2.0
//
// OrderSession: what an order gateway knows of its orders, across connections.
//
// An order's packet (OUCH in SoupBinTCP) is built ahead; what is fired is patched. Invariants: a
// token is of one order only, so an order whose fate is not known after a reconnect is sent again
// as it was, and the exchange passes it over if it has it (the guard against duplicates); an order
// that is too old for that is cancelled instead, which is as harmless. No order is filled beyond
// its shares. No I/O; time is an argument. Units: shares, nanoseconds. Threads: one.

#ifndef XTREME_SAMPLES_TRADING_ORDER_SESSION_H_
#define XTREME_SAMPLES_TRADING_ORDER_SESSION_H_

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "samples/trading/ouch42.h"
#include "samples/trading/soup_bin_tcp.h"

namespace trading {

class OrderSession {
 public:
  static constexpr size_t kPrefixBytes = 4;
  static constexpr size_t kOrderBytes = ouch::LengthOf('O');
  using Packet = std::array<uint8_t, soup::kHeaderBytes + kOrderBytes>;

  enum class State : uint8_t {
    kSent,       // Not answered yet.
    kLive,       // Accepted, not filled.
    kFilled,     // All of it.
    kCanceled,   // What was not filled.
    kRejected,
  };
  struct Counters {
    uint64_t sent = 0;
    uint64_t accepted = 0;
    uint64_t fills = 0;
    uint64_t filled_shares = 0;
    uint64_t canceled = 0;
    uint64_t rejected = 0;
    uint64_t sent_again = 0;
    uint64_t given_up = 0;      // Cancelled after a reconnect instead of sent again.
    uint64_t inconsistent = 0;  // Messages about no order of ours, or that cannot be.
    bool operator==(const Counters&) const = default;
  };

  // A prefix for a run that begins at that time of day: another one 62.5 ms later, for tokens are
  // of one day, and a gateway that is started again must not use those of before.
  static std::string PrefixAt(uint64_t time_of_day_ns) {
    std::string prefix(kPrefixBytes, '0');
    uint64_t units = time_of_day_ns / 62'500'000;
    for (size_t i = prefix.size(); i-- > 0; units /= 36) {
      prefix[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[units % 36];
    }
    return prefix;
  }

  // `prefix`, of up to 4 letters and digits, makes the tokens of this run differ from those of
  // others of the account. `terms` are those of every order, but for side and price.
  OrderSession(std::string_view prefix, const ouch::Message& terms) {
    ouch::Message order = terms;
    order.type = ouch::Type::kEnterOrder;
    order.token.fill('0');
    memcpy(order.token.data(), prefix.data(), std::min(prefix.size(), kPrefixBytes));
    shares_ = order.shares;
    prefix_ = order.token;
    std::array<uint8_t, ouch::kMostBytes> bytes;
    ouch::Emit(order, bytes);
    const auto header = soup::Header(soup::Type::kUnsequenced, kOrderBytes);
    memcpy(next_.data(), header.data(), header.size());
    memcpy(next_.data() + header.size(), bytes.data(), kOrderBytes);
  }

  // The packet of the next order, valid until the next call: nothing has been sent yet.
  const Packet& Next(char side, uint32_t price) {
    uint8_t* order = next_.data() + soup::kHeaderBytes;
    const ouch::Token token = TokenOf(orders_.size());
    memcpy(order + ouch::kTokenAt, token.data(), token.size());
    order[ouch::kSideAt] = static_cast<uint8_t>(side);
    feed::WriteBig<4>(price, order + ouch::kPriceAt);
    return next_;
  }
  // That packet was sent: the order exists. Its number.
  uint64_t OnSent(int64_t now_ns) {
    orders_.push_back({next_, now_ns, State::kSent, shares_});
    ++counters_.sent;
    return orders_.size() - 1;
  }

  // A message of the exchange, in sequence. The number of the order it is about, or kNone.
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t On(const ouch::Message& message) {
    if (message.type == ouch::Type::kSystemEvent) return kNone;
    const uint64_t number = NumberOf(message.token);
    if (number == kNone || !Apply(message, &orders_[number])) {
      ++counters_.inconsistent;
      return kNone;
    }
    return number;
  }

  // After a new login: calls `send(packet)` for each order that was not answered, with the order as
  // it was or, when it was sent before `oldest_ns`, with a cancel.
  template <typename Send>
  void Recover(int64_t oldest_ns, Send&& send) {
    for (; answered_ < orders_.size(); ++answered_) {
      if (orders_[answered_].state == State::kSent) break;
    }
    for (size_t i = answered_; i < orders_.size(); ++i) {
      const Sent& order = orders_[i];
      if (order.state != State::kSent) continue;
      if (order.sent_ns >= oldest_ns) {
        ++counters_.sent_again;
        send(std::span<const uint8_t>(order.packet));
      } else {
        ++counters_.given_up;
        send(std::span<const uint8_t>(CancelOf(i)));
      }
    }
  }

  State state(uint64_t number) const { return orders_[number].state; }
  uint32_t open_shares(uint64_t number) const { return orders_[number].open; }
  int64_t sent_ns(uint64_t number) const { return orders_[number].sent_ns; }
  size_t orders() const { return orders_.size(); }
  // Orders of which no answer came yet.
  size_t unanswered() const { return counters_.sent - counters_.accepted - counters_.rejected; }
  const Counters& counters() const { return counters_; }

 private:
  struct Sent {
    Packet packet;
    int64_t sent_ns = 0;
    State state = State::kSent;
    uint32_t open = 0;  // Shares.
  };
  static constexpr size_t kDigits = sizeof(ouch::Token) - kPrefixBytes;
  using CancelPacket = std::array<uint8_t, soup::kHeaderBytes + ouch::LengthOf('X')>;

  ouch::Token TokenOf(uint64_t number) const {
    ouch::Token token = prefix_;
    for (size_t i = token.size(); i > kPrefixBytes; number /= 10) {
      token[--i] = static_cast<char>('0' + number % 10);
    }
    return token;
  }

  uint64_t NumberOf(const ouch::Token& token) const {
    uint64_t number = 0;
    const char* digits = token.data() + kPrefixBytes;
    const auto [end, error] = std::from_chars(digits, digits + kDigits, number);
    const bool ours = memcmp(token.data(), prefix_.data(), kPrefixBytes) == 0 &&
                      error == std::errc() && end == digits + kDigits;
    return ours && number < orders_.size() ? number : kNone;
  }

  CancelPacket CancelOf(uint64_t number) const {
    ouch::Message cancel;
    cancel.type = ouch::Type::kCancelOrder;
    cancel.token = TokenOf(number);
    std::array<uint8_t, ouch::kMostBytes> bytes;
    const size_t length = ouch::Emit(cancel, bytes);
    const auto header = soup::Header(soup::Type::kUnsequenced, length);
    CancelPacket packet;
    memcpy(packet.data(), header.data(), header.size());
    memcpy(packet.data() + header.size(), bytes.data(), length);
    return packet;
  }

  bool Apply(const ouch::Message& message, Sent* order) {
    switch (message.type) {
      case ouch::Type::kAccepted:
        if (order->state != State::kSent) return false;
        order->state = message.code == ouch::kDead ? State::kCanceled : State::kLive;
        ++counters_.accepted;
        return true;
      case ouch::Type::kRejected:
        if (order->state != State::kSent) return false;
        order->state = State::kRejected;
        ++counters_.rejected;
        return true;
      case ouch::Type::kExecuted:
        if (!Take(message.shares, State::kFilled, order)) return false;
        ++counters_.fills;
        counters_.filled_shares += message.shares;
        return true;
      case ouch::Type::kCanceled:
        if (!Take(message.shares, State::kCanceled, order)) return false;
        ++counters_.canceled;
        return true;
      default: return false;
    }
  }

  // Takes shares off a live order, which is `after` when none are left.
  static bool Take(uint32_t shares, State after, Sent* order) {
    if (order->state != State::kLive || shares > order->open) return false;
    order->open -= shares;
    if (order->open == 0) order->state = after;
    return true;
  }

  Packet next_;
  ouch::Token prefix_;
  uint32_t shares_ = 0;
  std::vector<Sent> orders_;  // By number.
  size_t answered_ = 0;       // All orders before it are.
  Counters counters_;
};

}  // namespace trading

#endif  // XTREME_SAMPLES_TRADING_ORDER_SESSION_H_
