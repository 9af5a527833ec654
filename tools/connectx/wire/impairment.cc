// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/impairment.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kReceiveSeed = 0x9e3779b97f4a7c15;  // Sets the two directions' luck apart.

using Bytes = std::vector<uint8_t>;

}  // namespace

absl::Status Impairment::Validate() const {
  const std::pair<const char*, double> rates[] = {{"loss", loss},
                                                  {"duplication", duplication},
                                                  {"corruption", corruption},
                                                  {"reordering", reordering}};
  for (const auto& [name, rate] : rates) {
    if (rate >= 0 && rate <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", rate, " asked, 0 to 1 offered"));
  }
  if (delay_ns < 0 || jitter_ns < 0 || reorder_hold_ns < 0) {
    return absl::InvalidArgumentError("delay, jitter and reorder hold: 0 ns or more");
  }
  return absl::OkStatus();
}

// Passes frames on and counts them.
struct ImpairedWire::Counting final : FrameSink {
  explicit Counting(FrameSink& sink) : sink(sink) {}
  void OnFrame(std::span<const uint8_t> frame, int64_t time_ns) override {
    ++delivered;
    sink.OnFrame(frame, time_ns);
  }

  FrameSink& sink;
  int delivered = 0;
};

// One direction: decides what happens to each frame and holds those that are not due.
class ImpairedWire::Lane {
 public:
  Lane(uint64_t seed, const Impairment& impairment) : impairment_(impairment), random_(seed) {}

  struct Held {
    Bytes bytes;
    int64_t time_ns;
  };

  // Judges a frame that comes at `now_ns` and bears the time `time_ns`. kGoesOn: at once,
  // as `frame` and `time_ns` then say; `spoilt` is where its bytes are if some changed.
  enum class Verdict { kGoesOn, kHeld, kLost };
  Verdict Admit(std::span<const uint8_t>& frame, int64_t& time_ns, int64_t now_ns, Bytes& spoilt);

  // Takes the next held frame that is due.
  std::optional<Held> TakeDue(int64_t now_ns);

  int64_t NextDeadline() const;
  void SetImpairment(const Impairment& impairment);
  void DropNext(uint64_t count);
  void DropFrame(uint64_t number);
  void AppendCounts(const char* direction, std::vector<NamedCount>& counts) const;

 private:
  struct Counts {
    uint64_t lost = 0;
    uint64_t dropped_asked = 0;
    uint64_t duplicated = 0;
    uint64_t corrupted = 0;
    uint64_t reordered = 0;
    uint64_t delayed = 0;
  };

  // What the dice say of one frame.
  struct Fate {
    bool lost;
    bool duplicated;
    bool corrupted;
    bool reordered;
    uint64_t bit;
    int64_t jitter_ns;
  };

  Fate Draw();
  bool DropAsked();
  // The time at which a frame that comes at `now_ns` leaves.
  int64_t DueTime(const Fate& fate, int64_t now_ns);
  void Hold(int64_t due_ns, std::span<const uint8_t> frame, int64_t time_ns);

  mutable std::mutex mutex_;  // Guards everything below.
  Impairment impairment_;
  std::mt19937_64 random_;
  uint64_t next_number_ = 0;
  uint64_t drop_next_ = 0;
  std::set<uint64_t> drop_numbers_;
  int64_t last_due_ns_ = std::numeric_limits<int64_t>::min();  // Of a frame that kept its place.
  std::multimap<int64_t, Held> held_;  // By due time; equal ones in the order they came.
  Counts counts_;
};

ImpairedWire::Lane::Verdict ImpairedWire::Lane::Admit(std::span<const uint8_t>& frame,
                                                      int64_t& time_ns, int64_t now_ns,
                                                      Bytes& spoilt) {
  const std::lock_guard lock(mutex_);
  const Fate fate = Draw();
  if (DropAsked()) {
    ++counts_.dropped_asked;
    return Verdict::kLost;
  }
  if (fate.lost) {
    ++counts_.lost;
    return Verdict::kLost;
  }
  if (fate.corrupted && !frame.empty()) {
    ++counts_.corrupted;
    spoilt.assign(frame.begin(), frame.end());
    const uint64_t bit = fate.bit % (spoilt.size() * 8);
    spoilt[bit / 8] ^= 1 << bit % 8;
    frame = spoilt;
  }
  const int64_t due_ns = DueTime(fate, now_ns);
  time_ns += due_ns - now_ns;
  const bool at_once = due_ns <= now_ns && (held_.empty() || held_.begin()->first > now_ns);
  if (!at_once) Hold(due_ns, frame, time_ns);
  if (fate.duplicated) {
    ++counts_.duplicated;
    Hold(due_ns, frame, time_ns);
  }
  return at_once ? Verdict::kGoesOn : Verdict::kHeld;
}

std::optional<ImpairedWire::Lane::Held> ImpairedWire::Lane::TakeDue(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (held_.empty() || held_.begin()->first > now_ns) return std::nullopt;
  Held due = std::move(held_.begin()->second);
  held_.erase(held_.begin());
  return due;
}

ImpairedWire::Lane::Fate ImpairedWire::Lane::Draw() {
  // The same number of draws whatever the rates; 53 bits make a double in [0, 1).
  const auto probability = [this] { return static_cast<double>(random_() >> 11) * 0x1p-53; };
  Fate fate;
  fate.lost = probability() < impairment_.loss;
  fate.duplicated = probability() < impairment_.duplication;
  fate.corrupted = probability() < impairment_.corruption;
  fate.reordered = probability() < impairment_.reordering;
  fate.bit = random_();
  fate.jitter_ns = static_cast<int64_t>(probability() * (impairment_.jitter_ns + 1));
  return fate;
}

bool ImpairedWire::Lane::DropAsked() {
  const bool by_number = drop_numbers_.erase(next_number_++) > 0;
  if (drop_next_ == 0) return by_number;
  --drop_next_;
  return true;
}

int64_t ImpairedWire::Lane::DueTime(const Fate& fate, int64_t now_ns) {
  int64_t due_ns = now_ns + impairment_.delay_ns + fate.jitter_ns;
  if (due_ns > now_ns) ++counts_.delayed;
  if (fate.reordered) {
    ++counts_.reordered;
    return due_ns + impairment_.reorder_hold_ns;
  }
  due_ns = std::max(due_ns, last_due_ns_);
  last_due_ns_ = due_ns;
  return due_ns;
}

void ImpairedWire::Lane::Hold(int64_t due_ns, std::span<const uint8_t> frame, int64_t time_ns) {
  held_.emplace(due_ns, Held{{frame.begin(), frame.end()}, time_ns});
}

int64_t ImpairedWire::Lane::NextDeadline() const {
  const std::lock_guard lock(mutex_);
  return held_.empty() ? kNoDeadline : held_.begin()->first;
}

void ImpairedWire::Lane::SetImpairment(const Impairment& impairment) {
  const std::lock_guard lock(mutex_);
  impairment_ = impairment;
}

void ImpairedWire::Lane::DropNext(uint64_t count) {
  const std::lock_guard lock(mutex_);
  drop_next_ += count;
}

void ImpairedWire::Lane::DropFrame(uint64_t number) {
  const std::lock_guard lock(mutex_);
  drop_numbers_.insert(number);
}

void ImpairedWire::Lane::AppendCounts(const char* direction,
                                      std::vector<NamedCount>& counts) const {
  const std::lock_guard lock(mutex_);
  const std::pair<const char*, uint64_t> rows[] = {
      {"lost", counts_.lost},
      {"dropped_asked", counts_.dropped_asked},
      {"duplicated", counts_.duplicated},
      {"corrupted", counts_.corrupted},
      {"reordered", counts_.reordered},
      {"delayed", counts_.delayed},
      {"held", held_.size()},
  };
  for (const auto& [name, count] : rows) {
    counts.push_back({absl::StrCat("impaired_", direction, "_", name), count});
  }
}

ImpairedWire::ImpairedWire(std::unique_ptr<Wire> inner, const Options& options)
    : inner_(std::move(inner)),
      on_lost_(options.on_lost),
      tx_(std::make_unique<Lane>(options.seed, options.transmit)),
      rx_(std::make_unique<Lane>(options.seed ^ kReceiveSeed, options.receive)) {}

ImpairedWire::~ImpairedWire() = default;

bool ImpairedWire::Admit(WireDirection direction, std::span<const uint8_t>& frame,
                         int64_t& time_ns, int64_t now_ns, Bytes& spoilt) {
  if (Unplugged(direction, frame, time_ns)) return false;
  const Lane::Verdict verdict = lane(direction).Admit(frame, time_ns, now_ns, spoilt);
  if (verdict == Lane::Verdict::kLost && on_lost_ != nullptr) on_lost_(direction, frame, time_ns);
  return verdict == Lane::Verdict::kGoesOn;
}

bool ImpairedWire::Unplugged(WireDirection direction, std::span<const uint8_t> frame,
                             int64_t time_ns) {
  if (connected()) return false;
  unplugged_[static_cast<int>(direction)].fetch_add(1, std::memory_order_relaxed);
  if (on_lost_ != nullptr) on_lost_(direction, frame, time_ns);
  return true;
}

bool ImpairedWire::Transmit(std::span<const uint8_t> frame, int64_t now_ns) {
  const std::lock_guard lock(transmit_mutex_);
  TransmitDue(now_ns);
  Bytes spoilt;
  int64_t time_ns = now_ns;
  const bool at_once = Admit(WireDirection::kTransmit, frame, time_ns, now_ns, spoilt);
  const bool taken = !at_once || inner_->Transmit(frame, time_ns);
  TransmitDue(now_ns);
  return taken;
}

bool ImpairedWire::TransmitDue(int64_t now_ns) {
  bool any = false;
  while (const auto due = tx_->TakeDue(now_ns)) {
    if (Unplugged(WireDirection::kTransmit, due->bytes, due->time_ns)) continue;
    inner_->Transmit(due->bytes, due->time_ns);
    any = true;
  }
  return any;
}

void ImpairedWire::Flush() {
  const std::lock_guard lock(transmit_mutex_);
  inner_->Flush();
}

int ImpairedWire::Receive(FrameSink& sink, int max, int64_t now_ns) {
  {
    const std::lock_guard lock(transmit_mutex_);
    if (TransmitDue(now_ns)) inner_->Flush();
  }
  Counting out(sink);
  ReceiveDue(out, max, now_ns);
  struct Admitting final : FrameSink {
    Admitting(ImpairedWire& wire, int64_t now_ns, FrameSink& out)
        : wire(wire), now_ns(now_ns), out(out) {}
    void OnFrame(std::span<const uint8_t> frame, int64_t time_ns) override {
      Bytes spoilt;
      if (wire.Admit(WireDirection::kReceive, frame, time_ns, now_ns, spoilt)) {
        out.OnFrame(frame, time_ns);
      }
    }
    ImpairedWire& wire;
    const int64_t now_ns;
    FrameSink& out;
  } admitting(*this, now_ns, out);
  // Again when it may have more: frames that were lost or are held are no reason to look later.
  for (bool more = true; more && out.delivered < max;) {
    const int wanted = max - out.delivered;
    more = inner_->Receive(admitting, wanted, now_ns) == wanted;
  }
  ReceiveDue(out, max, now_ns);
  return out.delivered;
}

void ImpairedWire::ReceiveDue(Counting& out, int max, int64_t now_ns) {
  while (out.delivered < max) {
    const auto due = rx_->TakeDue(now_ns);
    if (!due) return;
    if (Unplugged(WireDirection::kReceive, due->bytes, due->time_ns)) continue;
    out.OnFrame(due->bytes, due->time_ns);
  }
}

int64_t ImpairedWire::NextDeadline() const {
  return std::min({tx_->NextDeadline(), rx_->NextDeadline(), inner_->NextDeadline()});
}

std::vector<NamedCount> ImpairedWire::counters() const {
  std::vector<NamedCount> counts = inner_->counters();
  tx_->AppendCounts("tx", counts);
  rx_->AppendCounts("rx", counts);
  counts.push_back({"impaired_tx_unplugged", unplugged_[0].load()});
  counts.push_back({"impaired_rx_unplugged", unplugged_[1].load()});
  return counts;
}

ImpairedWire::Lane& ImpairedWire::lane(WireDirection direction) const {
  return direction == WireDirection::kTransmit ? *tx_ : *rx_;
}

void ImpairedWire::SetImpairment(WireDirection direction, const Impairment& impairment) {
  lane(direction).SetImpairment(impairment);
}

void ImpairedWire::DropNext(WireDirection direction, uint64_t count) {
  lane(direction).DropNext(count);
}

void ImpairedWire::DropFrame(WireDirection direction, uint64_t number) {
  lane(direction).DropFrame(number);
}

}  // namespace xtreme::connectx
