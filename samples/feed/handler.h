// SPDX-License-Identifier: Apache-2.0
//
// Handler: what a feed handler does with datagrams, whoever receives them: parse, arbitrate between
// the lines, apply to the books, measure, say what to ask for.
//
// `Reference` keeps a datagram's bytes while it is held (see Arbiter). Clocks: `now_ns` for waiting
// and rates, any clock; `midnight_ns` the time of day in nanoseconds, as the publisher stamps it.
// No I/O. Threads: one.

#ifndef XTREME_SAMPLES_FEED_HANDLER_H_
#define XTREME_SAMPLES_FEED_HANDLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/feed/arbiter.h"
#include "samples/feed/book.h"
#include "samples/feed/histogram.h"
#include "samples/feed/requester.h"

namespace feed {

template <typename Reference>
class Handler {
 public:
  struct Options {
    typename Arbiter<Reference>::Options arbiter;
    Requester::Options requester;
    std::vector<std::string_view> symbols;  // Empty: all.
  };
  struct Counters {
    uint64_t refused_datagrams = 0;  // Not MoldUDP64.
    uint64_t refused_messages = 0;   // Not ITCH 5.0, or of a type that is not decoded.
    uint64_t recovered_by_request = 0;  // Messages.
    uint64_t missing = 0;               // Messages given up.
  };
  struct Times {
    int64_t now_ns = 0;
    uint64_t midnight_ns = 0;
    uint64_t device_ns = 0;  // Since the device received it; 0: unknown.
  };

  explicit Handler(const Options& options)
      : arbiter_(options.arbiter), requester_(options.requester), books_(options.symbols) {}

  static constexpr size_t retransmission() { return Arbiter<Reference>::retransmission(); }

  // A datagram of `line`; `keep()` makes a Reference to it when it has to be held.
  template <typename Keep>
  void OnDatagram(size_t line, std::span<const uint8_t> bytes, const Times& times, Keep&& keep) {
    const mold::Packet packet = mold::Parse(bytes);
    if (!packet.ok()) {
      ++counters_.refused_datagrams;
      return;
    }
    if (times.device_ns != 0) from_device_.Record(times.device_ns);
    const uint64_t sessions = arbiter_.sessions();
    const uint64_t undelivered = arbiter_.highest() - arbiter_.next();
    const Verdict verdict = arbiter_.On(line, packet, times.now_ns);
    if (arbiter_.sessions() != sessions) {
      // What the session before has not delivered will not come any more.
      counters_.missing += undelivered;
      books_.Clear();
    }
    if (verdict == Verdict::kNext) Deliver(line, packet, times);
    if (verdict == Verdict::kAhead) arbiter_.Hold(line, packet, keep());
    if (arbiter_.held() > 0) DeliverHeld(times);
  }

  // The request to send now; call it after each batch and at least every millisecond.
  std::optional<mold::Request> NextRequest(const Times& times) {
    if (!arbiter_.has_session()) return std::nullopt;
    const auto gap = arbiter_.FirstGap();
    switch (requester_.Next(gap.first, gap.end, times.now_ns)) {
      case Requester::Action::kNothing: return std::nullopt;
      case Requester::Action::kGiveUp:
        counters_.missing += arbiter_.SkipTo(gap.end);
        DeliverHeld(times);
        return std::nullopt;
      case Requester::Action::kAsk: break;
    }
    return mold::Request{arbiter_.session(), gap.first, requester_.range().count};
  }

  // The session ended and nothing is missing any more.
  bool Done() const { return arbiter_.ended() && !arbiter_.FirstGap().open(); }

  const Arbiter<Reference>& arbiter() const { return arbiter_; }
  const Requester& requester() const { return requester_; }
  const Books& books() const { return books_; }
  const Counters& counters() const { return counters_; }
  // From the publisher's send time, per message as it is delivered; from the device's receive time,
  // per datagram.
  const Histogram& from_publisher() const { return from_publisher_; }
  const Histogram& from_device() const { return from_device_; }

 private:
  static constexpr uint64_t kDayNs = 86'400'000'000'000;

  void Deliver(size_t line, const mold::Packet& packet, const Times& times) {
    const uint64_t first = packet.header.sequence + arbiter_.AlreadyDelivered(packet.header);
    packet.ForEach([&](uint64_t sequence, std::span<const uint8_t> bytes) {
      if (sequence >= first) Apply(bytes, times);
    });
    const uint64_t end = packet.header.sequence + packet.header.messages();
    if (line == retransmission() && end > first) counters_.recovered_by_request += end - first;
    arbiter_.Delivered(packet.header);
  }

  void DeliverHeld(const Times& times) {
    while (auto held = arbiter_.TakeHeld()) Deliver(held->line, held->packet, times);
  }

  void Apply(std::span<const uint8_t> bytes, const Times& times) {
    itch::Message message;
    if (itch::Parse(bytes, &message) != itch::Refusal::kNone) {
      ++counters_.refused_messages;
      return;
    }
    // A publisher just before midnight and we just after it.
    from_publisher_.Record((times.midnight_ns + kDayNs - message.time_ns) % kDayNs);
    books_.Apply(message);
  }

  Arbiter<Reference> arbiter_;
  Requester requester_;
  Books books_;
  Counters counters_;
  Histogram from_publisher_;
  Histogram from_device_;
};

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_HANDLER_H_
