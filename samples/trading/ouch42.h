// SPDX-License-Identifier: Apache-2.0
//
// Nasdaq OUCH 4.2: orders in, and what became of them out, one message each.
//
// Lengths are exact; one flat struct holds any message, what a type does not have is 0. An order is
// known by the token that its owner gave it, which is used once a day: the exchange passes over an
// order whose token it has seen, so that one may be sent again when its fate is not known. Prices
// are in 1/10,000 dollar. Big endian.
// Source: Nasdaq, "O*U*C*H", version 4.2.

#ifndef XTREME_SAMPLES_TRADING_OUCH42_H_
#define XTREME_SAMPLES_TRADING_OUCH42_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "samples/feed/big_endian.h"
#include "samples/feed/itch50.h"

namespace trading::ouch {

using feed::itch::Stock;
using Token = std::array<char, 14>;  // Letters and digits, padded with spaces on the right.

enum class Type : char {
  // From the client.
  kEnterOrder = 'O',
  kCancelOrder = 'X',
  // From the exchange.
  kSystemEvent = 'S',
  kAccepted = 'A',
  kExecuted = 'E',
  kCanceled = 'C',
  kRejected = 'J',
};

// Time in force.
inline constexpr uint32_t kImmediateOrCancel = 0;
inline constexpr uint32_t kMarketHours = 99'998;
inline constexpr uint32_t kSystemHours = 99'999;

inline constexpr uint32_t kMostShares = 999'999;
inline constexpr uint32_t kMostPrice = 1'999'999'900;

// `code` of what the exchange says.
inline constexpr char kLive = 'L';                // Accepted.
inline constexpr char kDead = 'D';                // Accepted, and over at once.
inline constexpr char kAddedLiquidity = 'A';      // Executed.
inline constexpr char kRemovedLiquidity = 'R';    // Executed.
inline constexpr char kCanceledByUser = 'U';      // Canceled.
inline constexpr char kCanceledImmediately = 'I'; // Canceled: what was not executed at once.
inline constexpr char kInvalidStock = 'S';        // Rejected.
inline constexpr char kInvalidPrice = 'X';        // Rejected.
inline constexpr char kTooManyShares = 'Z';       // Rejected.
inline constexpr char kOtherReason = 'O';         // Rejected.

struct Message {
  Type type = Type::kSystemEvent;
  char side = 0;           // O A: 'B' or 'S'.
  char code = 0;           // S: event. A: order state. E: liquidity. C J: reason.
  uint32_t shares = 0;     // O A: of the order. X: to be left. E: executed. C: taken off.
  uint32_t price = 0;      // O A: limit. E: of the execution.
  uint32_t time_in_force = 0;  // O A.
  uint32_t minimum = 0;    // O A: shares to execute at once, or none.
  uint64_t time_ns = 0;    // From the exchange: since midnight.
  uint64_t reference = 0;  // A: the order's number in the feed.
  uint64_t match = 0;      // E.
  Token token{};           // All but S.
  Stock stock{};           // O A.
  std::array<char, 4> firm = {' ', ' ', ' ', ' '};  // O A.
};

// The exact length of a message of `type`; 0 for a type that is not decoded here.
constexpr size_t LengthOf(char type) {
  switch (static_cast<Type>(type)) {
    case Type::kEnterOrder: return 49;
    case Type::kCancelOrder: return 19;
    case Type::kSystemEvent: return 10;
    case Type::kAccepted: return 66;
    case Type::kExecuted: return 40;
    case Type::kCanceled: return 28;
    case Type::kRejected: return 24;
  }
  return 0;
}

constexpr bool IsFromClient(Type type) {
  return type == Type::kEnterOrder || type == Type::kCancelOrder;
}

enum class Refusal : uint8_t { kNone, kEmpty, kUnknownType, kWrongLength };

// Where an order that is sent again and again differs: for one that is built ahead.
inline constexpr size_t kTokenAt = 1;
inline constexpr size_t kSideAt = 15;
inline constexpr size_t kPriceAt = 28;

namespace detail {

// Side, shares, stock, price, time in force, firm: how O and A go on behind the token.
inline void ReadTerms(const uint8_t* at, Message* message) {
  message->side = static_cast<char>(at[0]);
  message->shares = static_cast<uint32_t>(feed::ReadBig<4>(at + 1));
  memcpy(message->stock.data(), at + 5, 8);
  message->price = static_cast<uint32_t>(feed::ReadBig<4>(at + 13));
  message->time_in_force = static_cast<uint32_t>(feed::ReadBig<4>(at + 17));
  memcpy(message->firm.data(), at + 21, 4);
}

inline void WriteTerms(const Message& message, uint8_t* at) {
  at[0] = static_cast<uint8_t>(message.side);
  feed::WriteBig<4>(message.shares, at + 1);
  memcpy(at + 5, message.stock.data(), 8);
  feed::WriteBig<4>(message.price, at + 13);
  feed::WriteBig<4>(message.time_in_force, at + 17);
  memcpy(at + 21, message.firm.data(), 4);
}

inline void ReadFromExchange(const uint8_t* at, Message* message) {
  message->time_ns = feed::ReadBig<8>(at + 1);
  if (message->type != Type::kSystemEvent) memcpy(message->token.data(), at + 9, 14);
  switch (message->type) {
    case Type::kSystemEvent: message->code = static_cast<char>(at[9]); break;
    case Type::kAccepted:
      ReadTerms(at + 23, message);
      message->reference = feed::ReadBig<8>(at + 49);
      message->minimum = static_cast<uint32_t>(feed::ReadBig<4>(at + 59));
      message->code = static_cast<char>(at[64]);
      break;
    case Type::kExecuted:
      message->shares = static_cast<uint32_t>(feed::ReadBig<4>(at + 23));
      message->price = static_cast<uint32_t>(feed::ReadBig<4>(at + 27));
      message->code = static_cast<char>(at[31]);
      message->match = feed::ReadBig<8>(at + 32);
      break;
    case Type::kCanceled:
      message->shares = static_cast<uint32_t>(feed::ReadBig<4>(at + 23));
      message->code = static_cast<char>(at[27]);
      break;
    default: message->code = static_cast<char>(at[23]); break;  // Rejected.
  }
}

inline void WriteFromExchange(const Message& message, uint8_t* at) {
  feed::WriteBig<8>(message.time_ns, at + 1);
  if (message.type != Type::kSystemEvent) memcpy(at + 9, message.token.data(), 14);
  switch (message.type) {
    case Type::kSystemEvent: at[9] = static_cast<uint8_t>(message.code); break;
    case Type::kAccepted:
      WriteTerms(message, at + 23);
      at[48] = 'Y';  // Displayed.
      feed::WriteBig<8>(message.reference, at + 49);
      at[57] = 'P';  // Principal.
      at[58] = 'N';  // No sweep between markets.
      feed::WriteBig<4>(message.minimum, at + 59);
      at[63] = 'N';  // No cross.
      at[64] = static_cast<uint8_t>(message.code);
      at[65] = ' ';
      break;
    case Type::kExecuted:
      feed::WriteBig<4>(message.shares, at + 23);
      feed::WriteBig<4>(message.price, at + 27);
      at[31] = static_cast<uint8_t>(message.code);
      feed::WriteBig<8>(message.match, at + 32);
      break;
    case Type::kCanceled:
      feed::WriteBig<4>(message.shares, at + 23);
      at[27] = static_cast<uint8_t>(message.code);
      break;
    default: at[23] = static_cast<uint8_t>(message.code); break;  // Rejected.
  }
}

}  // namespace detail

// Reads one message. On refusal `message` is not touched.
inline Refusal Parse(std::span<const uint8_t> bytes, Message* message) {
  if (bytes.empty()) return Refusal::kEmpty;
  const size_t length = LengthOf(static_cast<char>(bytes[0]));
  if (length == 0) return Refusal::kUnknownType;
  if (bytes.size() != length) return Refusal::kWrongLength;
  const uint8_t* at = bytes.data();
  *message = Message();
  message->type = static_cast<Type>(at[0]);
  if (!IsFromClient(message->type)) {
    detail::ReadFromExchange(at, message);
    return Refusal::kNone;
  }
  memcpy(message->token.data(), at + kTokenAt, 14);
  if (message->type == Type::kCancelOrder) {
    message->shares = static_cast<uint32_t>(feed::ReadBig<4>(at + 15));
  } else {
    detail::ReadTerms(at + kSideAt, message);
    message->minimum = static_cast<uint32_t>(feed::ReadBig<4>(at + 43));
  }
  return Refusal::kNone;
}

inline constexpr size_t kMostBytes = 66;

// Writes a message; its length.
inline size_t Emit(const Message& message, std::span<uint8_t, kMostBytes> bytes) {
  uint8_t* at = bytes.data();
  at[0] = static_cast<uint8_t>(message.type);
  if (!IsFromClient(message.type)) {
    detail::WriteFromExchange(message, at);
    return LengthOf(static_cast<char>(message.type));
  }
  memcpy(at + kTokenAt, message.token.data(), 14);
  if (message.type == Type::kCancelOrder) {
    feed::WriteBig<4>(message.shares, at + 15);
  } else {
    detail::WriteTerms(message, at + kSideAt);
    at[40] = 'Y';  // Displayed.
    at[41] = 'P';  // Principal.
    at[42] = 'N';  // No sweep between markets.
    feed::WriteBig<4>(message.minimum, at + 43);
    at[47] = 'N';  // No cross.
    at[48] = 'N';  // Not a retail customer's.
  }
  return LengthOf(static_cast<char>(message.type));
}

}  // namespace trading::ouch

#endif  // XTREME_SAMPLES_TRADING_OUCH42_H_
