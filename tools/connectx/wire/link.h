// SPDX-License-Identifier: Apache-2.0
//
// The in-memory wire: ends of one cable, or of a hub that floods, in one process.
//
// Invariant: between two ends frames keep their order, and each is delivered, or counted as dropped
// by the end that dropped it. Nothing is allocated per frame; a frame is copied once, into the
// ring, and the receiver's sink reads it there.
// Units: nanoseconds of the clock the callers hand in: a frame arrives at the time it was sent.
// Thread: each end may live on a thread of its own, or all of them on one (step mode).

#ifndef XTREME_TOOLS_CONNECTX_WIRE_LINK_H_
#define XTREME_TOOLS_CONNECTX_WIRE_LINK_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct LinkOptions {
  // Frames that each direction between two ends holds before it drops; a power of two, 1 to 65,536.
  // A slot takes about 9 KB, touched when first used.
  uint32_t slots = 1024;

  absl::Status Validate() const;
};

class LinkEnd final : public Wire {
 public:
  ~LinkEnd() override;

  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  // At a hub: false only when no other end took the frame.
  bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) override;
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override;
  bool Arm() override;
  // A cable is shared with no kernel: all frames arrive, whatever the rules.
  absl::Status AddRule(const WireRule&) override { return absl::OkStatus(); }
  absl::Status RemoveRule(const WireRule&) override { return absl::OkStatus(); }
  // This end is plugged in, and so is at least one other.
  bool up() const override;
  std::vector<NamedCount> counters() const override;

  // Pulls this end out of the cable, or plugs it in again. Frames on their way to an unplugged end
  // are lost, and counted there at its next Receive. Any thread.
  void SetPlugged(bool plugged);

 private:
  friend absl::StatusOr<std::vector<std::unique_ptr<LinkEnd>>> MakeHub(int ends,
                                                                       const LinkOptions& options);
  class Cable;

  LinkEnd(std::shared_ptr<Cable> cable, int port);

  bool SendTo(int peer, std::span<const uint8_t> frame, int64_t now_ns);
  int ReceiveFrom(int peer, FrameSink& sink, int max);

  const std::shared_ptr<Cable> cable_;
  const int port_;

  // Written by the transmitting thread.
  std::atomic<uint64_t> tx_frames_{0};
  std::atomic<uint64_t> tx_bytes_{0};
  std::atomic<uint64_t> tx_dropped_full_{0};
  std::atomic<uint64_t> tx_dropped_down_{0};
  std::atomic<uint64_t> tx_dropped_length_{0};

  // Written by the receiving thread.
  int next_peer_ = 0;
  std::atomic<uint64_t> rx_frames_{0};
  std::atomic<uint64_t> rx_bytes_{0};
  std::atomic<uint64_t> rx_dropped_down_{0};
};

// Two ends of one cable: what one transmits the other receives.
// Errors: InvalidArgument (options), ResourceExhausted (no descriptor left).
absl::StatusOr<std::array<std::unique_ptr<LinkEnd>, 2>> MakeLink(const LinkOptions& options = {});

// `ends` (2 to 64) ends of a hub: what one transmits every other plugged end receives. A receiver
// serves its senders in turn; there is no order between frames of different senders.
absl::StatusOr<std::vector<std::unique_ptr<LinkEnd>>> MakeHub(int ends,
                                                              const LinkOptions& options = {});

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_LINK_H_
