// SPDX-License-Identifier: Apache-2.0
//
// Arbiter: one gapless sequence out of several lines that each may lose, repeat and reorder.
//
// Invariant: next() is the first message not delivered yet; what On() calls kNext holds it. What is
// ahead is held, by reference while few are held and by copy above that, and comes out by
// TakeHeld() as soon as nothing before it is missing. Bounded: when the hold is full, the farthest
// ahead is dropped and counted; it can still be asked for again.
// Units: messages, nanoseconds as the caller counts them. No I/O, no clock. Threads: one.

#ifndef XTREME_SAMPLES_FEED_ARBITER_H_
#define XTREME_SAMPLES_FEED_ARBITER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "samples/feed/mold_udp64.h"

namespace feed {

enum class Verdict : uint8_t {
  kNext,        // Begins at or before next(), ends after it: deliver what is new of it.
  kAhead,       // Something before it is missing: hold it.
  kOld,         // All of it was delivered before.
  kHeartbeat,   // Says only what comes next.
  kEnd,         // End of session; says what would come next.
};

// `Reference` keeps a packet's bytes alive while it exists: it is movable and has bytes().
template <typename Reference>
class Arbiter {
 public:
  struct Options {
    size_t lines = 2;
    size_t hold_by_reference = 256;   // Packets; above: copied.
    size_t hold_at_most = 65'536;     // Packets.
    int64_t stale_after_ns = 1'000'000'000;
  };

  struct Counters {
    uint64_t packets = 0;
    uint64_t old = 0;
    uint64_t ahead = 0;
    uint64_t held_by_copy = 0;
    uint64_t hold_overflow = 0;   // Dropped because the hold was full.
    uint64_t gaps = 0;            // Times something was seen to be missing.
    uint64_t messages = 0;        // Delivered.
    uint64_t copied_bytes = 0;
    uint64_t sessions = 0;
    uint64_t strangers = 0;       // Packets of another session while this one went on.
  };

  struct Line {
    uint64_t packets = 0;
    uint64_t wins = 0;           // Packets that this line brought first.
    uint64_t recovered = 0;      // Messages it brought after another line had skipped them.
    uint64_t next = 0;           // The message that this line would bring next.
    uint64_t lost = 0;           // Messages that this line skipped.
    int64_t last_seen_ns = 0;
  };

  // A packet that was ahead and whose turn has come.
  struct Held {
    mold::Packet packet;
    size_t line = 0;
    Reference reference;         // Empty when it was copied.
    std::vector<uint8_t> copy;
  };

  explicit Arbiter(const Options& options) : options_(options), lines_(options.lines) {}

  // What to do with a packet of `line` (less than Options::lines, or retransmission()). A packet of
  // another session starts everything again at that session's first message: sessions() tells.
  // While the session goes on (it has not ended, nor have all lines been silent for stale_after_ns)
  // such a packet is a straggler of the one before, or somebody else's: passed over.
  Verdict On(size_t line, const mold::Packet& packet, int64_t now_ns) {
    ++counters_.packets;
    const mold::Header& header = packet.header;
    const bool other_session = !session_ || *session_ != header.session;
    if (other_session && line == retransmission()) {  // The answer to what nobody asks any more.
      ++counters_.old;
      return Verdict::kOld;
    }
    if (other_session && !MayStart(now_ns)) {
      ++counters_.strangers;
      return Verdict::kOld;
    }
    if (other_session) StartSession(header);
    NoteLine(line, header, now_ns);
    return Judge(line, header);
  }

  // How many of the packet's first messages are already delivered: pass them over.
  uint64_t AlreadyDelivered(const mold::Header& header) const {
    return header.sequence < next_ ? next_ - header.sequence : 0;
  }

  // After a packet was delivered: everything before its end is done.
  void Delivered(const mold::Header& header) {
    const uint64_t end = header.sequence + header.messages();
    if (end <= next_) return;
    counters_.messages += end - next_;
    next_ = end;
    highest_ = std::max(highest_, next_);
  }

  // Keeps a packet that is ahead. `packet` was parsed from `reference.bytes()`.
  void Hold(size_t line, const mold::Packet& packet, Reference reference) {
    const uint64_t sequence = packet.header.sequence;
    const auto twin = held_.find(sequence);
    if (twin != held_.end() && twin->second.packet.header.count >= packet.header.count) return;
    if (twin == held_.end() && held_.size() >= options_.hold_at_most) {
      ++counters_.hold_overflow;
      const auto farthest = std::prev(held_.end());
      if (farthest->first <= sequence) return;
      Drop(farthest);
    }
    if (twin != held_.end()) Drop(twin);
    Held held{packet, line, {}, {}};
    if (references_ < options_.hold_by_reference) {
      held.reference = std::move(reference);
      ++references_;
    } else {
      held.copy.assign(packet.blocks.begin(), packet.blocks.end());
      held.packet.blocks = held.copy;
      ++counters_.held_by_copy;
      counters_.copied_bytes += packet.blocks.size();
    }
    held_.emplace(sequence, std::move(held));
  }

  // The next held packet whose turn has come; nothing when there is none.
  std::optional<Held> TakeHeld() {
    while (!held_.empty() && held_.begin()->first <= next_) {
      const auto first = held_.begin();
      const mold::Header header = first->second.packet.header;
      Held held = std::move(first->second);
      if (held.copy.empty()) --references_;
      else held.packet.blocks = held.copy;
      held_.erase(first);
      if (header.sequence + header.messages() > next_) return held;
    }
    return std::nullopt;
  }

  // The messages that are missing now: [first, end). Nothing missing: first == end.
  struct Gap {
    uint64_t first = 0;
    uint64_t end = 0;
    bool open() const { return first != end; }
  };
  Gap FirstGap() const {
    const uint64_t end = held_.empty() ? highest_ : std::min(held_.begin()->first, highest_);
    return {next_, std::max(end, next_)};
  }

  // Gives up what is missing before `sequence`: it counts as skipped, not as delivered.
  uint64_t SkipTo(uint64_t sequence) {
    const uint64_t skipped = sequence > next_ ? sequence - next_ : 0;
    next_ += skipped;
    highest_ = std::max(highest_, next_);
    return skipped;
  }

  // Whether a line has been silent for longer than Options::stale_after_ns.
  bool Stale(size_t line, int64_t now_ns) const {
    return now_ns - lines_[line].last_seen_ns > options_.stale_after_ns;
  }

  // The line number of packets that were asked for.
  static constexpr size_t retransmission() { return ~size_t{0}; }

  uint64_t next() const { return next_; }
  uint64_t highest() const { return highest_; }  // One past the last message known to exist.
  size_t held() const { return held_.size(); }
  bool ended() const { return ended_; }
  const mold::Session& session() const { return *session_; }
  bool has_session() const { return session_.has_value(); }
  uint64_t sessions() const { return counters_.sessions; }
  const Counters& counters() const { return counters_; }
  const Line& line(size_t number) const { return lines_[number]; }

 private:
  bool MayStart(int64_t now_ns) const {
    bool silent = true;
    for (size_t i = 0; i < lines_.size(); ++i) silent = silent && Stale(i, now_ns);
    return !session_ || ended_ || silent;
  }

  void StartSession(const mold::Header& header) {
    session_ = header.session;
    ++counters_.sessions;
    next_ = highest_ = 1;
    ended_ = false;
    held_.clear();
    references_ = 0;
    for (Line& each : lines_) each.next = 1;
  }

  void NoteLine(size_t number, const mold::Header& header, int64_t now_ns) {
    const uint64_t end = header.sequence + header.messages();
    if (number == retransmission()) return;
    Line& line = lines_[number];
    ++line.packets;
    line.last_seen_ns = now_ns;
    if (header.sequence > line.next) line.lost += header.sequence - line.next;
    line.next = std::max(line.next, end);
    if (end > next_ && header.sequence > highest_) ++counters_.gaps;
    if (end > highest_ && !header.heartbeat()) ++line.wins;
    if (end > next_ && header.sequence < highest_ && !IsHeld(header.sequence)) {
      line.recovered += std::min(end, highest_) - std::max(header.sequence, next_);
    }
    highest_ = std::max(highest_, end);
  }

  bool IsHeld(uint64_t sequence) const {
    auto after = held_.upper_bound(sequence);
    if (after == held_.begin()) return false;
    const mold::Header& header = std::prev(after)->second.packet.header;
    return sequence < header.sequence + header.messages();
  }

  Verdict Judge(size_t line, const mold::Header& header) {
    if (header.end_of_session()) {
      if (line != retransmission()) ended_ = true;
      return Verdict::kEnd;
    }
    if (header.heartbeat()) return Verdict::kHeartbeat;
    if (header.sequence + header.messages() <= next_) {
      ++counters_.old;
      return Verdict::kOld;
    }
    if (header.sequence <= next_) return Verdict::kNext;
    ++counters_.ahead;
    return Verdict::kAhead;
  }

  void Drop(typename std::map<uint64_t, Held>::iterator held) {
    if (held->second.copy.empty()) --references_;
    held_.erase(held);
  }

  const Options options_;
  std::optional<mold::Session> session_;
  uint64_t next_ = 1;
  uint64_t highest_ = 1;
  bool ended_ = false;
  std::map<uint64_t, Held> held_;  // By first message.
  size_t references_ = 0;          // Of those, the ones held by reference.
  std::vector<Line> lines_;
  Counters counters_;
};

}  // namespace feed

#endif  // XTREME_SAMPLES_FEED_ARBITER_H_
