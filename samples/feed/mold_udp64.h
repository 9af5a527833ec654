// SPDX-License-Identifier: Apache-2.0
//
// MoldUDP64: numbered messages in multicast datagrams, and requests for those that were lost.
//
// A downstream packet is a session (10 characters), the sequence number of its first message and a
// count of messages, each behind a 16-bit length. Count 0 is a heartbeat (the sequence is the next
// one to come), 0xffff the end of the session. A request is the same 20 bytes: session, first
// message wanted, how many. Big endian. Nothing here reads beyond its span or allocates.
// Source: Nasdaq, "MoldUDP64 Protocol Specification", version 1.00.

#ifndef XTREME_SAMPLES_FEED_MOLD_UDP64_H_
#define XTREME_SAMPLES_FEED_MOLD_UDP64_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "samples/feed/big_endian.h"

namespace feed::mold {

inline constexpr size_t kHeaderBytes = 20;
inline constexpr size_t kSessionBytes = 10;
inline constexpr uint16_t kEndOfSession = 0xffff;

using Session = std::array<char, kSessionBytes>;

// `name` padded with spaces on the right; cut when longer.
inline Session MakeSession(std::string_view name) {
  Session session;
  session.fill(' ');
  memcpy(session.data(), name.data(), name.size() < kSessionBytes ? name.size() : kSessionBytes);
  return session;
}

enum class Refusal : uint8_t {
  kNone,
  kShortHeader,     // Fewer than 20 bytes.
  kShortMessages,   // The messages announced do not fit in the datagram.
  kTrailingBytes,   // Bytes behind the last message.
};

struct Header {
  Session session;
  uint64_t sequence = 0;  // Of the first message; of the next one in a heartbeat.
  uint16_t count = 0;

  bool heartbeat() const { return count == 0; }
  bool end_of_session() const { return count == kEndOfSession; }
  uint16_t messages() const { return end_of_session() ? 0 : count; }
};

// A downstream packet whose messages have been checked to lie within it.
struct Packet {
  Refusal refusal = Refusal::kNone;
  Header header;
  std::span<const uint8_t> blocks;  // Length-prefixed messages.

  bool ok() const { return refusal == Refusal::kNone; }

  // Calls `visit(sequence, message)` for each message in order.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    const uint8_t* at = blocks.data();
    for (uint16_t i = 0; i < header.messages(); ++i) {
      const size_t length = ReadBig<2>(at);
      visit(header.sequence + i, std::span<const uint8_t>(at + 2, length));
      at += 2 + length;
    }
  }
};

inline Header ReadHeader(const uint8_t* bytes) {
  Header header;
  memcpy(header.session.data(), bytes, kSessionBytes);
  header.sequence = ReadBig<8>(bytes + 10);
  header.count = static_cast<uint16_t>(ReadBig<2>(bytes + 18));
  return header;
}

// Reads a datagram. On refusal only `refusal` means anything.
inline Packet Parse(std::span<const uint8_t> datagram) {
  Packet packet;
  if (datagram.size() < kHeaderBytes) {
    packet.refusal = Refusal::kShortHeader;
    return packet;
  }
  packet.header = ReadHeader(datagram.data());
  packet.blocks = datagram.subspan(kHeaderBytes);
  size_t at = 0;
  for (uint16_t i = 0; i < packet.header.messages(); ++i) {
    const size_t left = packet.blocks.size() - at;
    if (left < 2 || left - 2 < ReadBig<2>(packet.blocks.data() + at)) {
      packet.refusal = Refusal::kShortMessages;
      return packet;
    }
    at += 2 + ReadBig<2>(packet.blocks.data() + at);
  }
  if (at != packet.blocks.size()) packet.refusal = Refusal::kTrailingBytes;
  return packet;
}

// A request for `count` messages from `sequence` on.
struct Request {
  Session session;
  uint64_t sequence = 0;
  uint16_t count = 0;
};

inline std::array<uint8_t, kHeaderBytes> Emit(const Request& request) {
  std::array<uint8_t, kHeaderBytes> bytes;
  memcpy(bytes.data(), request.session.data(), kSessionBytes);
  WriteBig<8>(request.sequence, bytes.data() + 10);
  WriteBig<2>(request.count, bytes.data() + 18);
  return bytes;
}

// False: not 20 bytes long.
inline bool Parse(std::span<const uint8_t> datagram, Request* request) {
  if (datagram.size() != kHeaderBytes) return false;
  const Header header = ReadHeader(datagram.data());
  *request = {header.session, header.sequence, header.count};
  return true;
}

// Fills a datagram of at most `limit` bytes with messages.
class Builder {
 public:
  static constexpr size_t kMostBytes = 1472;  // One Ethernet frame of MTU 1,500.

  // `limit`: 20 .. kMostBytes.
  explicit Builder(const Session& session, size_t limit = kMostBytes) : limit_(limit) {
    memcpy(bytes_.data(), session.data(), kSessionBytes);
    Begin(1);
  }

  // Starts an empty datagram whose first message is `sequence`.
  void Begin(uint64_t sequence) {
    WriteBig<8>(sequence, bytes_.data() + 10);
    sequence_ = sequence;
    count_ = 0;
    size_ = kHeaderBytes;
  }
  // False: no room; the datagram is as it was.
  bool Add(std::span<const uint8_t> message) {
    if (size_ + 2 + message.size() > limit_ || count_ == kEndOfSession - 1) return false;
    WriteBig<2>(message.size(), bytes_.data() + size_);
    memcpy(bytes_.data() + size_ + 2, message.data(), message.size());
    size_ += 2 + message.size();
    ++count_;
    return true;
  }
  // The datagram so far: a heartbeat when nothing was added.
  std::span<const uint8_t> Finish() {
    WriteBig<2>(count_, bytes_.data() + 18);
    return {bytes_.data(), size_};
  }
  // An end-of-session datagram; the messages added are forgotten.
  std::span<const uint8_t> FinishSession() {
    WriteBig<2>(kEndOfSession, bytes_.data() + 18);
    return {bytes_.data(), kHeaderBytes};
  }

  uint64_t sequence() const { return sequence_; }
  uint16_t count() const { return count_; }

 private:
  std::array<uint8_t, kMostBytes> bytes_;
  size_t limit_;
  size_t size_ = kHeaderBytes;
  uint64_t sequence_ = 1;
  uint16_t count_ = 0;
};

}  // namespace feed::mold

#endif  // XTREME_SAMPLES_FEED_MOLD_UDP64_H_
