// SPDX-License-Identifier: Apache-2.0
//
// StreamEnd: one end of a TCP stream that carries what a plan says, whoever moves the bytes: what
// it may send now, and whether what came is what the other end was to send.
//
// No I/O. Units: bytes. Threads: one an end.

#ifndef XTREME_TESTS_E2E_STREAM_END_H_
#define XTREME_TESTS_E2E_STREAM_END_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace xtreme::e2e {

// What a connection carries.
struct Plan {
  uint64_t from_ring = 0;
  uint64_t from_kernel = 0;
  uint32_t message = 64 * 1024;  // Most bytes of one send.
  bool lock_step = false;        // The ring sends a message, the kernel one back, and so on.
  bool kernel_after_end = false;  // The kernel sends when the ring has sent all and said so.
};

// Bytes that depend on the seed, in pieces of any length, and their hash (FNV-1a).
class Pattern {
 public:
  explicit Pattern(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  void Fill(std::span<uint8_t> bytes) {
    for (uint8_t& byte : bytes) byte = Next();
  }

 private:
  uint8_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint8_t>(state_ >> 32);
  }
  uint64_t state_;
};

class Hash {
 public:
  void Add(std::span<const uint8_t> bytes) {
    for (const uint8_t byte : bytes) value_ = (value_ ^ byte) * 0x100000001b3;
    bytes_ += bytes.size();
  }
  uint64_t bytes() const { return bytes_; }
  bool operator==(const Hash&) const = default;

 private:
  uint64_t value_ = 0xcbf29ce484222325;
  uint64_t bytes_ = 0;
};

class StreamEnd {
 public:
  // `number` tells the connections of a test apart; both ends name the same.
  StreamEnd(const Plan& plan, bool is_ring, uint64_t number)
      : plan_(plan),
        is_ring_(is_ring),
        total_(is_ring ? plan.from_ring : plan.from_kernel),
        outgoing_(number * 2 + is_ring),
        incoming_(number * 2 + !is_ring) {}

  // What may be sent now; empty: nothing.
  std::span<const uint8_t> ToSend() {
    if (ready_.empty()) Refill();
    return ready_;
  }
  void Sent(size_t bytes) {
    sent_ += bytes;
    ready_ = ready_.subspan(bytes);
  }
  // True once: all is sent, and the other end is to be told.
  bool TakeShutdown() {
    const bool now = sent_ == total_ && MaySend() && !shut_down_;
    shut_down_ = shut_down_ || now;
    return now;
  }

  void Received(std::span<const uint8_t> bytes) { received_.Add(bytes); }
  void OnEnd() { ended_ = true; }

  bool ended() const { return ended_; }
  // Both directions are through.
  bool Done() const { return ended_ && shut_down_; }
  // "" or what is wrong with what came.
  std::string Verdict() {
    const uint64_t expected = is_ring_ ? plan_.from_kernel : plan_.from_ring;
    const std::string count = std::to_string(received_.bytes()) + " of " +
                              std::to_string(expected) + " bytes came";
    if (received_.bytes() != expected || !ended_) return count + (ended_ ? "" : ", and no end");
    Hash whole;
    std::array<uint8_t, 4096> piece;
    while (whole.bytes() < expected) {
      const auto length = std::min<uint64_t>(piece.size(), expected - whole.bytes());
      incoming_.Fill(std::span(piece).first(length));
      whole.Add(std::span(piece).first(length));
    }
    return whole == received_ ? "" : count + ", and not those that were sent";
  }

 private:
  bool MaySend() const { return is_ring_ || !plan_.kernel_after_end || ended_; }

  void Refill() {
    uint64_t most = std::min<uint64_t>({total_ - sent_, plan_.message, piece_.size()});
    if (plan_.lock_step) {
      const uint64_t allowed = received_.bytes() + (is_ring_ ? plan_.message : 0);
      most = std::min(most, allowed - std::min(allowed, sent_));
    }
    if (!MaySend() || most == 0) return;
    outgoing_.Fill(std::span(piece_).first(most));
    ready_ = std::span<const uint8_t>(piece_).first(most);
  }

  const Plan plan_;
  const bool is_ring_;
  const uint64_t total_;
  Pattern outgoing_;
  Pattern incoming_;
  std::array<uint8_t, 64 * 1024> piece_;
  std::span<const uint8_t> ready_;
  uint64_t sent_ = 0;
  bool shut_down_ = false;
  bool ended_ = false;
  Hash received_;
};

}  // namespace xtreme::e2e

#endif  // XTREME_TESTS_E2E_STREAM_END_H_
