// SPDX-License-Identifier: Apache-2.0
//
// The wire that is a network interface: veth, bridge or a real card's, shared with the kernel and
// with other processes as a ConnectX is.
//
// Receive: the decider (decider.h) sends frames that match a rule to a private veth
// (private_veth.h), where a packet ring (packet_ring.h) taps them as a card would have received
// them: no longer than the MTU is then, checksums finished (a wrong one stays wrong), VLAN tag in
// place. Everything else stays the kernel's. Transmit: frames leave the interface as they are
// (packet_sender.h); one that a rule of another wire on this interface asks for reaches that wire
// too, as a card's functions reach each other, but never its sender. Invariant: nothing of it
// outlives the process for longer than the next Open on the same namespace. Needs CAP_NET_ADMIN and
// CAP_NET_RAW in the network namespace's own user namespace. Thread: as Wire says. All calls but
// Open work from a thread in any network namespace.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_NETIF_H_
#define XTREME_TOOLS_CONNECTX_WIRE_NETIF_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/time_of_day.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class Decider;
class PacketRing;
class PacketSender;
class PrivateVeth;

class NetworkInterface final : public Wire {
 public:
  struct Options {
    std::string interface;
    // What may wait for the device before frames are dropped: 16 MB hold some 10,000 full frames at
    // an MTU of 1,500, 1,800 at 9,000. 256 KB to 1 GB.
    size_t ring_bytes = 16 << 20;

    absl::Status Validate() const;
  };

  // Opens `interface` of the calling thread's network namespace, after removing what processes that
  // were killed have left in that namespace. A packet ring is made for the MTU that it has now; it
  // may grow, but what waits then is what a socket's buffer holds.
  // Errors: InvalidArgument (options), NotFound (no such interface), PermissionDenied,
  // ResourceExhausted, Internal with what the kernel said.
  static absl::StatusOr<std::unique_ptr<NetworkInterface>> Open(const Options& options);

  ~NetworkInterface() override;

  NetworkInterface(const NetworkInterface&) = delete;
  NetworkInterface& operator=(const NetworkInterface&) = delete;

  bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) override;
  void Flush() override;
  int Receive(FrameSink& sink, int max, int64_t now_ns) override;
  int fd() const override;
  bool Arm() override;
  absl::Status AddRule(const WireRule& rule) override;
  absl::Status RemoveRule(const WireRule& rule) override;
  bool up() const override;
  // The interface's own, as it is now, up to kMaxMtu; the last one when the interface is gone.
  uint32_t mtu() const override;
  // rx_dropped_ring are the frames for which the packet ring, or the buffer beside it, had no room.
  std::vector<NamedCount> counters() const override;

 private:
  NetworkInterface(const Options& options, uint32_t mtu);
  absl::Status Build(int interface_index);

  const Options options_;

  // In the order of their dependence: the decider's end comes first, then frames are the kernel's.
  std::unique_ptr<PrivateVeth> veth_;
  std::unique_ptr<PacketRing> ring_;
  std::unique_ptr<PacketSender> sender_;
  std::unique_ptr<Decider> decider_;

  TimeOfDay time_of_day_;  // The receiving thread's.
  // Written by the receiving thread.
  std::atomic<uint64_t> rx_frames_{0};
  std::atomic<uint64_t> rx_bytes_{0};
  std::atomic<uint64_t> rx_dropped_length_{0};

  // Added up by whoever asks for the counters, and by the receiving thread.
  mutable std::atomic<uint64_t> rx_dropped_ring_{0};
  mutable std::atomic<uint32_t> mtu_;  // As last seen by whoever asked.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_NETIF_H_
