// SPDX-License-Identifier: Apache-2.0
//
// SoupBinTCP: packets in a TCP stream, a login, heartbeats, and numbered messages one way.
//
// A packet is a 16-bit length of what follows, a type, and a payload. What a server sends as
// sequenced data is numbered by counting, from the number that the login agreed on; what a client
// sends is not numbered. Numbers in payloads are decimal text. Big endian. Nothing here reads
// beyond its span; only a packet that arrives in pieces is copied.
// Source: Nasdaq, "SoupBinTCP", version 3.00.

#ifndef XTREME_SAMPLES_TRADING_SOUP_BIN_TCP_H_
#define XTREME_SAMPLES_TRADING_SOUP_BIN_TCP_H_

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/feed/big_endian.h"

namespace trading::soup {

inline constexpr size_t kHeaderBytes = 3;  // Length and type.
inline constexpr size_t kMostPayloadBytes = 0xffff - 1;
inline constexpr int64_t kHeartbeatNs = 1'000'000'000;  // Of silence, then a heartbeat is due.
inline constexpr int64_t kDeadNs = 15'000'000'000;      // Of silence, then the other end is gone.

enum class Type : char {
  kDebug = '+',
  // From the server.
  kLoginAccepted = 'A',
  kLoginRejected = 'J',
  kSequenced = 'S',
  kServerHeartbeat = 'H',
  kEndOfSession = 'Z',
  // From the client.
  kLoginRequest = 'L',
  kUnsequenced = 'U',
  kClientHeartbeat = 'R',
  kLogout = 'O',
};

enum class RejectReason : char { kNotAuthorized = 'A', kNoSuchSession = 'S' };

using Session = std::array<char, 10>;  // Padded with spaces on the left; all spaces: the current.

struct LoginRequest {
  std::array<char, 6> user;       // Padded on the right.
  std::array<char, 10> password;  // Padded on the right.
  Session session;
  uint64_t sequence = 0;  // Of the first message wanted; 0: from the newest on.
};

struct LoginAccepted {
  Session session;
  uint64_t sequence = 0;  // Of the first message that will come.
};

// The exact payload of a type; none for what may have any.
constexpr std::optional<size_t> PayloadBytes(Type type) {
  switch (type) {
    case Type::kLoginRequest: return 46;
    case Type::kLoginAccepted: return 30;
    case Type::kLoginRejected: return 1;
    case Type::kServerHeartbeat:
    case Type::kClientHeartbeat:
    case Type::kEndOfSession:
    case Type::kLogout: return 0;
    default: return std::nullopt;
  }
}

enum class Verdict : uint8_t {
  kPacket,
  kIncomplete,   // More of the stream is needed.
  kNoType,       // Refused: a length of 0.
  kUnknownType,  // Refused.
  kWrongLength,  // Refused: not that of its type.
};

struct Packet {
  Verdict verdict = Verdict::kIncomplete;
  Type type = Type::kDebug;
  std::span<const uint8_t> payload;

  bool refused() const { return verdict > Verdict::kIncomplete; }
  size_t bytes() const { return kHeaderBytes + payload.size(); }
};

inline bool IsKnown(char type) {
  return std::string_view("+AJSHZLURO").find(type) != std::string_view::npos;
}

// The packet at the front of `stream`.
inline Packet Next(std::span<const uint8_t> stream) {
  Packet packet;
  if (stream.size() < 2) return packet;
  const size_t length = feed::ReadBig<2>(stream.data());
  const auto refuse = [&packet](Verdict why) {
    packet.verdict = why;
    return packet;
  };
  if (length == 0) return refuse(Verdict::kNoType);
  if (stream.size() < kHeaderBytes) return packet;
  if (!IsKnown(static_cast<char>(stream[2]))) return refuse(Verdict::kUnknownType);
  packet.type = static_cast<Type>(stream[2]);
  const auto exact = PayloadBytes(packet.type);
  if (exact && *exact != length - 1) return refuse(Verdict::kWrongLength);
  if (stream.size() < 2 + length) return packet;
  packet.payload = stream.subspan(kHeaderBytes, length - 1);
  return refuse(Verdict::kPacket);
}

// --- Payloads -----------------------------------------------------------------------------------

namespace detail {

// Decimal digits behind spaces; nothing for anything else.
inline std::optional<uint64_t> ReadNumber(const uint8_t* from, size_t width) {
  const char* at = reinterpret_cast<const char*>(from);
  const char* end = at + width;
  at = std::find_if(at, end, [](char c) { return c != ' '; });
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(at, end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

inline void WriteNumber(uint64_t value, size_t width, uint8_t* to) {
  std::array<char, 20> digits;
  const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const auto count = static_cast<size_t>(end - digits.data());
  memset(to, ' ', width);
  memcpy(to + width - count, digits.data(), count);
}

}  // namespace detail

// `text` padded with spaces on the right; cut when longer.
template <size_t kWidth>
std::array<char, kWidth> PadRight(std::string_view text) {
  std::array<char, kWidth> padded;
  padded.fill(' ');
  memcpy(padded.data(), text.data(), std::min(text.size(), kWidth));
  return padded;
}

inline Session MakeSession(std::string_view name) {
  Session session;
  session.fill(' ');
  const size_t count = std::min(name.size(), session.size());
  memcpy(session.data() + session.size() - count, name.data(), count);
  return session;
}

// Nothing: the sequence number is no number. `packet` is of that type.
inline std::optional<LoginRequest> ReadLoginRequest(const Packet& packet) {
  const uint8_t* at = packet.payload.data();
  const auto sequence = detail::ReadNumber(at + 26, 20);
  if (!sequence) return std::nullopt;
  LoginRequest request;
  memcpy(request.user.data(), at, 6);
  memcpy(request.password.data(), at + 6, 10);
  memcpy(request.session.data(), at + 16, 10);
  request.sequence = *sequence;
  return request;
}

inline std::optional<LoginAccepted> ReadLoginAccepted(const Packet& packet) {
  const auto sequence = detail::ReadNumber(packet.payload.data() + 10, 20);
  if (!sequence) return std::nullopt;
  LoginAccepted accepted;
  memcpy(accepted.session.data(), packet.payload.data(), 10);
  accepted.sequence = *sequence;
  return accepted;
}

// --- Writing ------------------------------------------------------------------------------------

// What stands before a payload of `bytes` (at most kMostPayloadBytes).
inline std::array<uint8_t, kHeaderBytes> Header(Type type, size_t bytes) {
  std::array<uint8_t, kHeaderBytes> header;
  feed::WriteBig<2>(bytes + 1, header.data());
  header[2] = static_cast<uint8_t>(type);
  return header;
}

// A packet without payload.
inline std::array<uint8_t, kHeaderBytes> Emit(Type type) { return Header(type, 0); }

inline std::array<uint8_t, kHeaderBytes + 46> Emit(const LoginRequest& request) {
  std::array<uint8_t, kHeaderBytes + 46> packet;
  const auto header = Header(Type::kLoginRequest, 46);
  memcpy(packet.data(), header.data(), header.size());
  memcpy(packet.data() + 3, request.user.data(), 6);
  memcpy(packet.data() + 9, request.password.data(), 10);
  memcpy(packet.data() + 19, request.session.data(), 10);
  detail::WriteNumber(request.sequence, 20, packet.data() + 29);
  return packet;
}

inline std::array<uint8_t, kHeaderBytes + 30> Emit(const LoginAccepted& accepted) {
  std::array<uint8_t, kHeaderBytes + 30> packet;
  const auto header = Header(Type::kLoginAccepted, 30);
  memcpy(packet.data(), header.data(), header.size());
  memcpy(packet.data() + 3, accepted.session.data(), 10);
  detail::WriteNumber(accepted.sequence, 20, packet.data() + 13);
  return packet;
}

inline std::array<uint8_t, kHeaderBytes + 1> Emit(RejectReason reason) {
  const auto header = Header(Type::kLoginRejected, 1);
  return {header[0], header[1], header[2], static_cast<uint8_t>(reason)};
}

// --- The stream ---------------------------------------------------------------------------------

// Cuts what arrives into packets. Once something was refused the stream is broken: where the next
// packet begins is not known any more.
class Stream {
 public:
  // Calls `visit(packet)` for each packet that is complete now; its payload is valid during the
  // call. The last word: kIncomplete, or why the stream is broken.
  template <typename Visit>
  Verdict On(std::span<const uint8_t> bytes, Visit&& visit) {
    while (!partial_.empty() && !bytes.empty() && !broken()) {
      bytes = bytes.subspan(Complete(bytes));
      const Packet packet = Next(partial_);
      if (packet.verdict == Verdict::kPacket) {
        // The visitor may bring the connection to its end, and this stream to its beginning.
        const std::vector<uint8_t> whole = std::exchange(partial_, {});
        visit(Next(whole));
      } else if (packet.refused()) {
        broken_ = packet.verdict;
      }
    }
    while (!broken()) {
      const Packet packet = Next(bytes);
      if (packet.verdict == Verdict::kIncomplete) break;
      if (packet.refused()) return broken_ = packet.verdict;
      bytes = bytes.subspan(packet.bytes());
      visit(packet);
    }
    if (!broken()) partial_.insert(partial_.end(), bytes.begin(), bytes.end());
    return broken_;
  }

  bool broken() const { return broken_ != Verdict::kIncomplete; }

 private:
  // Adds to the partial packet what it lacks of its header, or else of its payload; how many bytes.
  size_t Complete(std::span<const uint8_t> bytes) {
    size_t whole = kHeaderBytes;
    if (partial_.size() >= kHeaderBytes) whole = 2 + feed::ReadBig<2>(partial_.data());
    const size_t taken = std::min(bytes.size(), whole - partial_.size());
    partial_.insert(partial_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(taken));
    return taken;
  }

  std::vector<uint8_t> partial_;
  Verdict broken_ = Verdict::kIncomplete;
};

}  // namespace trading::soup

#endif  // XTREME_SAMPLES_TRADING_SOUP_BIN_TCP_H_
