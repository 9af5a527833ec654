// SPDX-License-Identifier: Apache-2.0
//
// Nasdaq TotalView-ITCH 5.0: what happens to every order of the market, one message each.
//
// A message is its type, a stock's locate code, a tracking number, a 48-bit time in nanoseconds
// since midnight, and fields by type; lengths are exact. One flat struct holds any of them: what a
// type does not have is 0. Prices are in 1/10,000 dollar. Big endian.
// Source: Nasdaq, "Nasdaq TotalView-ITCH 5.0", sections 1.1 to 1.9.

#ifndef XTREME_SAMPLES_FEED_ITCH50_H_
#define XTREME_SAMPLES_FEED_ITCH50_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "samples/feed/big_endian.h"

namespace feed::itch {

enum class Type : char {
  kSystemEvent = 'S',
  kStockDirectory = 'R',
  kTradingAction = 'H',
  kAddOrder = 'A',
  kAddOrderAttributed = 'F',
  kExecuted = 'E',
  kExecutedWithPrice = 'C',
  kCancel = 'X',
  kDelete = 'D',
  kReplace = 'U',
  kTrade = 'P',
  kCrossTrade = 'Q',
};

using Stock = std::array<char, 8>;  // Padded with spaces on the right.

inline Stock MakeStock(std::string_view name) {
  Stock stock;
  stock.fill(' ');
  memcpy(stock.data(), name.data(), name.size() < stock.size() ? name.size() : stock.size());
  return stock;
}

inline std::string ToString(const Stock& stock) {
  const std::string_view padded(stock.data(), stock.size());
  return std::string(padded.substr(0, padded.find_last_not_of(' ') + 1));
}

struct Message {
  Type type = Type::kSystemEvent;
  char side = 0;   // 'B' or 'S': A F P.
  char code = 0;   // S: event. H: trading state. C: printable. Q: cross type.
  uint16_t locate = 0;
  uint16_t tracking = 0;
  uint64_t time_ns = 0;    // Since midnight, 48 bits.
  uint64_t order = 0;      // A F E C X D P; U: the one replaced.
  uint64_t new_order = 0;  // U.
  uint64_t match = 0;      // E C P Q.
  uint64_t shares = 0;     // A F P U: of the order. E C: executed. X: cancelled. Q: crossed.
  uint32_t price = 0;      // A F C U P Q.
  Stock stock{};           // R H A F P Q.
};

// The exact length of a message of `type`; 0 for a type that is not decoded here.
constexpr size_t LengthOf(char type) {
  switch (static_cast<Type>(type)) {
    case Type::kSystemEvent: return 12;
    case Type::kStockDirectory: return 39;
    case Type::kTradingAction: return 25;
    case Type::kAddOrder: return 36;
    case Type::kAddOrderAttributed: return 40;
    case Type::kExecuted: return 31;
    case Type::kExecutedWithPrice: return 36;
    case Type::kCancel: return 23;
    case Type::kDelete: return 19;
    case Type::kReplace: return 35;
    case Type::kTrade: return 44;
    case Type::kCrossTrade: return 40;
  }
  return 0;
}

enum class Refusal : uint8_t {
  kNone,
  kEmpty,
  kUnknownType,  // Passed over by those who do not need it: ITCH has more types.
  kWrongLength,
};

namespace detail {

inline Stock ReadStock(const uint8_t* at) {
  Stock stock;
  memcpy(stock.data(), at, stock.size());
  return stock;
}

// Order reference, side, shares, stock, price: how A, F and P go on.
inline void ReadOrder(const uint8_t* at, Message* message) {
  message->order = ReadBig<8>(at + 11);
  message->side = static_cast<char>(at[19]);
  message->shares = ReadBig<4>(at + 20);
  message->stock = ReadStock(at + 24);
  message->price = static_cast<uint32_t>(ReadBig<4>(at + 32));
}

// Order reference, shares, match number: how E and C go on; X without the last.
inline void ReadExecution(const uint8_t* at, Message* message) {
  message->order = ReadBig<8>(at + 11);
  message->shares = ReadBig<4>(at + 19);
}

inline void ReadReplace(const uint8_t* at, Message* message) {
  message->order = ReadBig<8>(at + 11);
  message->new_order = ReadBig<8>(at + 19);
  message->shares = ReadBig<4>(at + 27);
  message->price = static_cast<uint32_t>(ReadBig<4>(at + 31));
}

inline void ReadCross(const uint8_t* at, Message* message) {
  message->shares = ReadBig<8>(at + 11);
  message->stock = ReadStock(at + 19);
  message->price = static_cast<uint32_t>(ReadBig<4>(at + 27));
  message->match = ReadBig<8>(at + 31);
  message->code = static_cast<char>(at[39]);
}

inline void ReadBody(const uint8_t* at, Message* message) {
  switch (message->type) {
    case Type::kSystemEvent: message->code = static_cast<char>(at[11]); break;
    case Type::kStockDirectory: message->stock = ReadStock(at + 11); break;
    case Type::kTradingAction:
      message->stock = ReadStock(at + 11);
      message->code = static_cast<char>(at[19]);
      break;
    case Type::kAddOrder:
    case Type::kAddOrderAttributed: ReadOrder(at, message); break;
    case Type::kTrade:
      ReadOrder(at, message);
      message->match = ReadBig<8>(at + 36);
      break;
    case Type::kExecuted:
      ReadExecution(at, message);
      message->match = ReadBig<8>(at + 23);
      break;
    case Type::kExecutedWithPrice:
      ReadExecution(at, message);
      message->match = ReadBig<8>(at + 23);
      message->code = static_cast<char>(at[31]);
      message->price = static_cast<uint32_t>(ReadBig<4>(at + 32));
      break;
    case Type::kCancel: ReadExecution(at, message); break;
    case Type::kDelete: message->order = ReadBig<8>(at + 11); break;
    case Type::kReplace: ReadReplace(at, message); break;
    case Type::kCrossTrade: ReadCross(at, message); break;
  }
}

}  // namespace detail

// Reads one message. On refusal `message` is not touched.
inline Refusal Parse(std::span<const uint8_t> bytes, Message* message) {
  if (bytes.empty()) return Refusal::kEmpty;
  const size_t length = LengthOf(static_cast<char>(bytes[0]));
  if (length == 0) return Refusal::kUnknownType;
  if (bytes.size() != length) return Refusal::kWrongLength;
  *message = Message();
  message->type = static_cast<Type>(bytes[0]);
  message->locate = static_cast<uint16_t>(ReadBig<2>(bytes.data() + 1));
  message->tracking = static_cast<uint16_t>(ReadBig<2>(bytes.data() + 3));
  message->time_ns = ReadBig<6>(bytes.data() + 5);
  detail::ReadBody(bytes.data(), message);
  return Refusal::kNone;
}

inline constexpr size_t kMostBytes = 44;

// Writes the types that make up a book: S, R, A, E, X, D, U. The message's length; 0: another type.
inline size_t Emit(const Message& message, std::span<uint8_t, kMostBytes> bytes) {
  memset(bytes.data(), 0, bytes.size());
  uint8_t* at = bytes.data();
  at[0] = static_cast<uint8_t>(message.type);
  WriteBig<2>(message.locate, at + 1);
  WriteBig<2>(message.tracking, at + 3);
  WriteBig<6>(message.time_ns, at + 5);
  WriteBig<8>(message.order, at + 11);
  switch (message.type) {
    case Type::kSystemEvent: at[11] = static_cast<uint8_t>(message.code); break;
    case Type::kStockDirectory: memcpy(at + 11, message.stock.data(), 8); break;
    case Type::kAddOrder:
      at[19] = static_cast<uint8_t>(message.side);
      WriteBig<4>(message.shares, at + 20);
      memcpy(at + 24, message.stock.data(), 8);
      WriteBig<4>(message.price, at + 32);
      break;
    case Type::kExecuted:
      WriteBig<4>(message.shares, at + 19);
      WriteBig<8>(message.match, at + 23);
      break;
    case Type::kCancel: WriteBig<4>(message.shares, at + 19); break;
    case Type::kDelete: break;
    case Type::kReplace:
      WriteBig<8>(message.new_order, at + 19);
      WriteBig<4>(message.shares, at + 27);
      WriteBig<4>(message.price, at + 31);
      break;
    default: return 0;
  }
  return LengthOf(static_cast<char>(message.type));
}

}  // namespace feed::itch

#endif  // XTREME_SAMPLES_FEED_ITCH50_H_
