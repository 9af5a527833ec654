// SPDX-License-Identifier: Apache-2.0
//
// The wire between processes: each SharedWire is one port of a switch that lives in shared memory
// (shared_segment.h). The switch learns addresses; it sends a frame where its destination was seen,
// and floods groups, broadcasts and what it does not know.
//
// Invariant: between two ports frames keep their order; nothing is locked and nobody waits for
// anybody, so a member may be killed at any instruction: its frames are whole or not there, and its
// port is free again. A frame that it sent but announced to nobody waits for the next one.
// Units: nanoseconds of the callers' clocks; a frame arrives when it was sent, by the sender's
// clock, but not later than the receiver's now. Devices on real clocks agree on that time.
// Thread: as Wire says.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_SHARED_WIRE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_SHARED_WIRE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/shared_ring.h"
#include "tools/connectx/wire/shared_segment.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class SharedWire final : public Wire {
 public:
  struct Options {
    // The segment: the path of a directory, which need not exist, or a plain name for one in
    // /dev/shm. Every wire with the same segment is on the same switch.
    std::string segment;
    // Of the switch, if this wire is the first on it: 2 to 64.
    uint32_t ports = 16;
    // What waits between two ports before frames are dropped; a power of two, 16 KB to 16 MB, if
    // this wire is the first. Each port takes `ports` times this of memory.
    uint32_t ring_bytes = 512 << 10;

    absl::Status Validate() const;
  };

  // Errors: InvalidArgument (options), and those of SharedSegment::Open.
  static absl::StatusOr<std::unique_ptr<SharedWire>> Open(const Options& options);
  // What waits at this port is lost. The last wire of a segment removes it.
  ~SharedWire() override;

  SharedWire(const SharedWire&) = delete;
  SharedWire& operator=(const SharedWire&) = delete;

  // False only when no port took it that should have.
  bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) override;
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override { return segment_->wake_fd(); }
  bool Arm() override;
  // A switch is shared with no kernel: all frames arrive, whatever the rules.
  absl::Status AddRule(const WireRule&) override { return absl::OkStatus(); }
  absl::Status RemoveRule(const WireRule&) override { return absl::OkStatus(); }
  // The link is that to the switch, which is always there.
  bool up() const override { return true; }
  // tx_flooded are those of tx_frames that went to every port, tx_filtered those that went nowhere
  // because their station is on this port; rx_dropped_corrupt are records that made no sense.
  std::vector<NamedCount> counters() const override;

  // Which port of the switch this is.
  int port() const { return segment_->own_port(); }

 private:
  explicit SharedWire(std::unique_ptr<SharedSegment> segment);

  // Where the switch has seen a station; nothing: it floods.
  std::optional<size_t> PortOf(std::span<const uint8_t, 6> mac) const;
  bool Flood(std::span<const uint8_t> frame, int64_t now_ns);
  bool SendTo(size_t peer, std::span<const uint8_t> frame, int64_t now_ns);
  // Takes a port that no process holds off the switch.
  void DetachIfDead(size_t peer);
  int ReceiveFrom(size_t peer, FrameSink& sink, int max, int64_t now_ns);

  const std::unique_ptr<SharedSegment> segment_;

  // Written by the transmitting thread.
  std::vector<SharedRingProducer> producers_;  // By port that they send to.
  uint32_t refused_ = 0;
  std::atomic<uint64_t> tx_frames_{0};
  std::atomic<uint64_t> tx_bytes_{0};
  std::atomic<uint64_t> tx_flooded_{0};
  std::atomic<uint64_t> tx_filtered_{0};
  std::atomic<uint64_t> tx_dropped_full_{0};
  std::atomic<uint64_t> tx_dropped_length_{0};

  // Written by the receiving thread.
  std::vector<SharedRingConsumer> consumers_;  // By port that they receive from.
  size_t next_peer_ = 0;
  uint32_t sleep_number_ = 0;
  bool armed_ = false;
  std::atomic<uint64_t> rx_frames_{0};
  std::atomic<uint64_t> rx_bytes_{0};
  std::atomic<uint64_t> rx_dropped_corrupt_{0};
  std::array<uint8_t, kMaxFrameBytes> frame_;  // Where a sender can change nothing any more.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_SHARED_WIRE_H_
