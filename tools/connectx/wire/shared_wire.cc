// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/shared_wire.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kMacBytes = 6;
// Of frames that a full port refuses, every so many leads to the question whether it lives.
constexpr uint32_t kRefusalsPerLook = 16;

constexpr uint32_t kAttached = 1;

uint8_t GenerationOf(uint32_t state) { return static_cast<uint8_t>(state >> 1); }

// One thread writes each counter; others only read it.
void Add(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

absl::Status SharedWire::Options::Validate() const {
  // Of the directories that these are, the files are others'.
  if (segment.empty() || segment == "." || segment == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("shared wire: '", segment, "' names no segment"));
  }
  if (SharedSegment::Shape{ports, ring_bytes}.Valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shared wire: ", ports, " ports with rings of ", ring_bytes,
                   " bytes asked, 2 to 64 and a power of two from 16 KB to 16 MB offered"));
}

absl::StatusOr<std::unique_ptr<SharedWire>> SharedWire::Open(const Options& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  const bool is_path = options.segment.find('/') != std::string::npos;
  const std::string directory =
      is_path ? options.segment : absl::StrCat("/dev/shm/", options.segment);
  auto segment = SharedSegment::Open(directory, {options.ports, options.ring_bytes});
  if (!segment.ok()) return segment.status();
  return std::unique_ptr<SharedWire>(new SharedWire(*std::move(segment)));
}

SharedWire::SharedWire(std::unique_ptr<SharedSegment> segment) : segment_(std::move(segment)) {
  const size_t own = segment_->own_port();
  for (size_t peer = 0; peer < segment_->shape().ports; ++peer) {
    producers_.emplace_back(segment_->indices(own, peer), segment_->ring(own, peer));
    consumers_.emplace_back(segment_->indices(peer, own), segment_->ring(peer, own));
  }
  segment_->Attach();
}

SharedWire::~SharedWire() = default;

bool SharedWire::Transmit(std::span<const uint8_t> frame, int64_t now_ns) {
  if (frame.size() < kEthernetHeaderBytes || frame.size() > kMaxFrameBytes) {
    Add(tx_dropped_length_);
    return false;
  }
  const uint8_t own = segment_->own_port();
  const uint32_t own_state = segment_->port(own).state.load(std::memory_order_relaxed);
  segment_->stations().Learn(frame.subspan<kMacBytes, kMacBytes>(),
                             {.port = own, .generation = GenerationOf(own_state)});
  const std::optional<size_t> to = PortOf(frame.first<kMacBytes>());
  if (to == own) {
    Add(tx_filtered_);
  } else if (to.has_value()) {
    if (!SendTo(*to, frame, now_ns)) return false;
  } else {
    if (!Flood(frame, now_ns)) return false;
    Add(tx_flooded_);
  }
  Add(tx_frames_);
  Add(tx_bytes_, frame.size());
  return true;
}

std::optional<size_t> SharedWire::PortOf(std::span<const uint8_t, 6> mac) const {
  const std::optional<MacTable::Station> station = segment_->stations().Find(mac);
  // Any member may have written this entry.
  if (!station.has_value() || station->port >= producers_.size()) return std::nullopt;
  const uint32_t state = segment_->port(station->port).state.load(std::memory_order_acquire);
  const bool valid = (state & kAttached) != 0 && GenerationOf(state) == station->generation;
  return valid ? std::optional<size_t>(station->port) : std::nullopt;
}

bool SharedWire::Flood(std::span<const uint8_t> frame, int64_t now_ns) {
  bool refused = false;
  bool taken = false;
  for (size_t peer = 0; peer < producers_.size(); ++peer) {
    const uint32_t state = segment_->port(peer).state.load(std::memory_order_acquire);
    if (peer == segment_->own_port() || (state & kAttached) == 0) continue;
    (SendTo(peer, frame, now_ns) ? taken : refused) = true;
  }
  // A switch without other stations takes every frame, to no avail.
  return taken || !refused;
}

bool SharedWire::SendTo(size_t peer, std::span<const uint8_t> frame, int64_t now_ns) {
  SharedPort& port = segment_->port(peer);
  if (!producers_[peer].Push(frame, now_ns)) {
    Add(tx_dropped_full_);
    if (refused_++ % kRefusalsPerLook == 0) DetachIfDead(peer);
    return false;
  }
  // Both sides change the same word, so one comes first: either we see that the receiver armed, or
  // its exchange in Arm acquires our push. A receiver never sleeps on a frame.
  uint32_t sleep = port.armed.fetch_or(0, std::memory_order_acq_rel);
  if (sleep == 0) return true;
  // Woken first: who dies between the two lines leaves a receiver that the next sender wakes again.
  segment_->Wake(peer);
  // Only this sleep: the receiver may be about to begin another.
  port.armed.compare_exchange_strong(sleep, 0, std::memory_order_relaxed);
  return true;
}

void SharedWire::DetachIfDead(size_t peer) {
  SharedPort& port = segment_->port(peer);
  uint32_t state = port.state.load(std::memory_order_acquire);
  if (segment_->Lives(peer)) return;
  // Only that generation: somebody may have claimed the port meanwhile.
  port.state.compare_exchange_strong(state, state & ~kAttached, std::memory_order_relaxed);
}

int SharedWire::Receive(FrameSink& sink, int max, int64_t now_ns) {
  if (armed_) {
    armed_ = false;
    segment_->port(segment_->own_port()).armed.store(0, std::memory_order_relaxed);
    segment_->DrainWakes();
  }
  int delivered = 0;
  for (size_t turn = 0; turn < consumers_.size() && delivered < max; ++turn) {
    const size_t peer = next_peer_;
    next_peer_ = peer + 1 == consumers_.size() ? 0 : peer + 1;
    if (peer == segment_->own_port()) continue;
    delivered += ReceiveFrom(peer, sink, max - delivered, now_ns);
  }
  return delivered;
}

int SharedWire::ReceiveFrom(size_t peer, FrameSink& sink, int max, int64_t now_ns) {
  SharedRingConsumer::Frame frame;
  for (int delivered = 0; delivered < max;) {
    const SharedRingConsumer::Result result = consumers_[peer].Pop(frame_, &frame);
    if (result == SharedRingConsumer::Result::kEmpty) return delivered;
    if (result == SharedRingConsumer::Result::kCorrupt ||
        frame.bytes.size() < kEthernetHeaderBytes) {
      Add(rx_dropped_corrupt_);
      return delivered;  // Who writes nonsense without end does not keep us.
    }
    sink.OnFrame(frame.bytes, std::min(frame.time_ns, now_ns));
    Add(rx_frames_);
    Add(rx_bytes_, frame.bytes.size());
    ++delivered;
  }
  return max;
}

bool SharedWire::Arm() {
  std::atomic<uint32_t>& armed = segment_->port(segment_->own_port()).armed;
  if (++sleep_number_ == 0) ++sleep_number_;
  armed.exchange(sleep_number_, std::memory_order_acq_rel);
  armed_ = true;
  return std::all_of(consumers_.begin(), consumers_.end(),
                     [](const SharedRingConsumer& consumer) { return consumer.Empty(); });
}

std::vector<NamedCount> SharedWire::counters() const {
  return {
      {"tx_frames", tx_frames_.load()},
      {"tx_bytes", tx_bytes_.load()},
      {"tx_flooded", tx_flooded_.load()},
      {"tx_filtered", tx_filtered_.load()},
      {"tx_dropped_full", tx_dropped_full_.load()},
      {"tx_dropped_length", tx_dropped_length_.load()},
      {"rx_frames", rx_frames_.load()},
      {"rx_bytes", rx_bytes_.load()},
      {"rx_dropped_corrupt", rx_dropped_corrupt_.load()},
  };
}

}  // namespace xtreme::connectx
