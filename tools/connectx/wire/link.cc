// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/connectx/wire/frame_ring.h"

namespace xtreme::connectx {
namespace {

constexpr int kMaxEnds = 64;

// One thread writes each counter, so a load and a store do; others only read it.
void Add(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

uint64_t Read(const std::atomic<uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

// What the ends share, and what outlives each of them: the rings, and how to wake a receiver.
class LinkEnd::Cable {
 public:
  // Says whether an end is there to receive, and wakes it.
  struct alignas(64) Port {
    std::atomic<bool> plugged{true};
    // The receiver sets `armed`; the sender that takes it back writes wake_fd.
    std::atomic<bool> armed{false};
    std::atomic<bool> signalled{false};
    int wake_fd = -1;
  };

  Cable(int ends, uint32_t slots) : ports_(ends) {
    for (int pair = 0; pair < ends * ends; ++pair) {
      const bool to_itself = pair / ends == pair % ends;
      rings_.push_back(to_itself ? nullptr : std::make_unique<FrameRing>(slots));
    }
  }

  ~Cable() {
    for (const Port& port : ports_) {
      if (port.wake_fd >= 0) close(port.wake_fd);
    }
  }

  absl::Status OpenWakeDescriptors() {
    for (Port& port : ports_) {
      port.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      if (port.wake_fd < 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("create an eventfd for a link end: ", std::strerror(errno)));
      }
    }
    return absl::OkStatus();
  }

  int ends() const { return static_cast<int>(ports_.size()); }
  Port& port(int index) { return ports_[index]; }
  FrameRing& ring(int from, int to) { return *rings_[from * ends() + to]; }

  bool plugged(int port) const { return ports_[port].plugged.load(std::memory_order_acquire); }

 private:
  std::vector<std::unique_ptr<FrameRing>> rings_;
  std::vector<Port> ports_;
};

absl::Status LinkOptions::Validate() const {
  if (std::has_single_bit(slots) && slots <= 65536) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("link slots: ", slots, " asked, a power of two up to 65536 offered"));
}

LinkEnd::LinkEnd(std::shared_ptr<Cable> cable, int port) : cable_(std::move(cable)), port_(port) {}

LinkEnd::~LinkEnd() { SetPlugged(false); }

int LinkEnd::fd() const { return cable_->port(port_).wake_fd; }

bool LinkEnd::Transmit(std::span<const uint8_t> frame, int64_t now_ns) {
  if (frame.size() < kEthernetHeaderBytes || frame.size() > kMaxFrameBytes) {
    Add(tx_dropped_length_);
    return false;
  }
  if (!up()) {
    Add(tx_dropped_down_);
    return false;
  }
  bool taken = false;
  for (int peer = 0; peer < cable_->ends(); ++peer) {
    if (peer != port_ && cable_->plugged(peer)) taken |= SendTo(peer, frame, now_ns);
  }
  if (!taken) return false;
  Add(tx_frames_);
  Add(tx_bytes_, frame.size());
  return true;
}

bool LinkEnd::SendTo(int peer, std::span<const uint8_t> frame, int64_t now_ns) {
  if (!cable_->ring(port_, peer).Push(frame, now_ns)) {
    Add(tx_dropped_full_);
    return false;
  }
  Cable::Port& port = cable_->port(peer);
  // Both sides exchange the same word, so one comes first: either we see that the receiver armed,
  // or its exchange in Arm acquires our push. A receiver never sleeps on a frame.
  if (port.armed.exchange(false, std::memory_order_acq_rel)) {
    eventfd_write(port.wake_fd, 1);
    // After the write: a receiver that sees the flag finds the descriptor set, and clears both.
    port.signalled.store(true, std::memory_order_release);
  }
  return true;
}

int LinkEnd::Receive(FrameSink& sink, int max, int64_t) {
  Cable::Port& port = cable_->port(port_);
  if (port.signalled.load(std::memory_order_acquire)) {
    port.signalled.store(false, std::memory_order_relaxed);
    eventfd_t ignored;
    eventfd_read(port.wake_fd, &ignored);
  }
  int delivered = 0;
  for (int turn = 0; turn < cable_->ends() && delivered < max; ++turn) {
    const int peer = next_peer_;
    next_peer_ = peer + 1 == cable_->ends() ? 0 : peer + 1;
    if (peer != port_) delivered += ReceiveFrom(peer, sink, max - delivered);
  }
  return delivered;
}

int LinkEnd::ReceiveFrom(int peer, FrameSink& sink, int max) {
  FrameRing& ring = cable_->ring(peer, port_);
  int delivered = 0;
  while (delivered < max && !ring.Empty()) {
    const FrameRing::Frame frame = ring.Front();
    if (cable_->plugged(port_)) {
      sink.OnFrame(frame.bytes, frame.time_ns);
      Add(rx_frames_);
      Add(rx_bytes_, frame.bytes.size());
      ++delivered;
    } else {
      Add(rx_dropped_down_);
    }
    ring.Pop();
  }
  return delivered;
}

bool LinkEnd::Arm() {
  Cable::Port& port = cable_->port(port_);
  port.armed.exchange(true, std::memory_order_acq_rel);
  for (int peer = 0; peer < cable_->ends(); ++peer) {
    if (peer == port_ || cable_->ring(peer, port_).Empty()) continue;
    port.armed.store(false, std::memory_order_relaxed);
    return false;
  }
  return true;
}

bool LinkEnd::up() const {
  if (!cable_->plugged(port_)) return false;
  for (int peer = 0; peer < cable_->ends(); ++peer) {
    if (peer != port_ && cable_->plugged(peer)) return true;
  }
  return false;
}

void LinkEnd::SetPlugged(bool plugged) {
  cable_->port(port_).plugged.store(plugged, std::memory_order_release);
}

std::vector<NamedCount> LinkEnd::counters() const {
  return {
      {"tx_frames", Read(tx_frames_)},
      {"tx_bytes", Read(tx_bytes_)},
      {"tx_dropped_full", Read(tx_dropped_full_)},
      {"tx_dropped_down", Read(tx_dropped_down_)},
      {"tx_dropped_length", Read(tx_dropped_length_)},
      {"rx_frames", Read(rx_frames_)},
      {"rx_bytes", Read(rx_bytes_)},
      {"rx_dropped_down", Read(rx_dropped_down_)},
  };
}

absl::StatusOr<std::array<std::unique_ptr<LinkEnd>, 2>> MakeLink(const LinkOptions& options) {
  auto hub = MakeHub(2, options);
  if (!hub.ok()) return hub.status();
  return std::array<std::unique_ptr<LinkEnd>, 2>{std::move((*hub)[0]), std::move((*hub)[1])};
}

absl::StatusOr<std::vector<std::unique_ptr<LinkEnd>>> MakeHub(int ends,
                                                              const LinkOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (ends < 2 || ends > kMaxEnds) {
    return absl::InvalidArgumentError(absl::StrCat("hub ends: ", ends, " asked, 2 to 64 offered"));
  }
  auto cable = std::make_shared<LinkEnd::Cable>(ends, options.slots);
  if (absl::Status status = cable->OpenWakeDescriptors(); !status.ok()) return status;
  std::vector<std::unique_ptr<LinkEnd>> result;
  for (int port = 0; port < ends; ++port) result.emplace_back(new LinkEnd(cable, port));
  return result;
}

}  // namespace xtreme::connectx
