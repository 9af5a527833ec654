// SPDX-License-Identifier: Apache-2.0
//
// Sequence numbers: 32 bits that wrap. RFC 9293 section 3.4.
//
// The invariant: two numbers that are compared are less than 2^31 apart, as those of one connection
// are, whose window is at most 2^30 (RFC 7323 section 2.3). Then "before" is the sign of their
// difference. It is no order over all numbers, so nothing is sorted by it without a common base.
// Host order.
#ifndef XTREME_STACK_TCP_SEQUENCE_H_
#define XTREME_STACK_TCP_SEQUENCE_H_

#include <cstdint>

namespace xtreme::tcp {

class Seq {
 public:
  constexpr Seq() = default;
  constexpr explicit Seq(uint32_t value) : value_(value) {}

  constexpr uint32_t value() const { return value_; }

  friend constexpr bool operator==(Seq, Seq) = default;
  friend constexpr bool operator<(Seq a, Seq b) { return a - b < 0; }
  friend constexpr bool operator<=(Seq a, Seq b) { return a - b <= 0; }
  friend constexpr bool operator>(Seq a, Seq b) { return a - b > 0; }
  friend constexpr bool operator>=(Seq a, Seq b) { return a - b >= 0; }

  // How far `a` is ahead of `b`; negative when it is behind.
  friend constexpr int32_t operator-(Seq a, Seq b) {
    return static_cast<int32_t>(a.value_ - b.value_);
  }
  friend constexpr Seq operator+(Seq a, uint32_t bytes) { return Seq(a.value_ + bytes); }
  friend constexpr Seq operator-(Seq a, uint32_t bytes) { return Seq(a.value_ - bytes); }
  constexpr Seq& operator+=(uint32_t bytes) { return *this = *this + bytes; }
  constexpr Seq& operator-=(uint32_t bytes) { return *this = *this - bytes; }

 private:
  uint32_t value_ = 0;
};

// The bytes from `from` to before `to`, which is not before it.
constexpr uint32_t Distance(Seq from, Seq to) { return to.value() - from.value(); }

constexpr Seq Earlier(Seq a, Seq b) { return a < b ? a : b; }
constexpr Seq Later(Seq a, Seq b) { return a < b ? b : a; }

// Whether `number` is one of the `window` numbers from `next` on.
constexpr bool InWindow(Seq number, Seq next, uint32_t window) {
  return Distance(next, number) < window;
}

// The table of acceptability: whether a segment that takes `length` numbers (SEG.LEN: payload, SYN
// and FIN) from `sequence` on has any business with a receiver that expects `next` and has room for
// `window`. RFC 9293 section 3.10.7.4, first check; but one without any may also stand where the
// window ends, as with Linux. Who has filled a window acknowledges from there, and where both ends
// have, and each lacks some of it, neither would hear the other.
constexpr bool IsAcceptable(Seq sequence, uint32_t length, Seq next, uint32_t window) {
  if (length == 0) return Distance(next, sequence) <= window;
  if (window == 0) return false;
  return InWindow(sequence, next, window) || InWindow(sequence + (length - 1), next, window);
}

// What an acknowledgement number says to a sender.
enum class AckPlace : uint8_t {
  kTooOld,     // so far behind that only a blind injector sends it: RFC 5961 section 5.2
  kDuplicate,  // behind or at SND.UNA: nothing new
  kNew,        // SND.UNA < SEG.ACK =< SND.NXT
  kUnsent,     // of what was never sent
};

// `max_window` is the largest window that the peer ever offered (MAX.SND.WND).
constexpr AckPlace PlaceAck(Seq ack, Seq una, Seq nxt, uint32_t max_window) {
  if (ack > nxt) return AckPlace::kUnsent;
  if (ack > una) return AckPlace::kNew;
  return Distance(ack, una) <= max_window ? AckPlace::kDuplicate : AckPlace::kTooOld;
}

// Whether the timestamp `a` is older than `b`; they wrap as sequence numbers do. RFC 7323 section
// 5.2.
constexpr bool IsOlderTimestamp(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SEQUENCE_H_
