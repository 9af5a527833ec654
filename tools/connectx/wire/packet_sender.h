// SPDX-License-Identifier: Apache-2.0
//
// Sends whole frames out of a network interface through a packet socket, many in one system call.
//
// Invariant: Add copies, so that the caller's memory is its own again; a frame leaves at the latest
// with the next Flush, or is dropped and counted.
// Why sendmmsg and not a transmit ring: a ring's slot stays taken until the last holder of the
// frame, over veth a peer's socket, lets go of it. Thread: one at a time; counts may be read by
// any.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_PACKET_SENDER_H_
#define XTREME_TOOLS_CONNECTX_WIRE_PACKET_SENDER_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class PacketSender {
 public:
  struct Counts {
    std::atomic<uint64_t> frames{0};
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> dropped_length{0};  // Shorter than a header, or above the MTU.
    std::atomic<uint64_t> dropped_full{0};    // The interface took no more for 10 ms.
    std::atomic<uint64_t> dropped_down{0};  // The interface is down or gone, or refused otherwise.
  };

  // Errors: PermissionDenied without CAP_NET_RAW, Internal.
  static absl::StatusOr<std::unique_ptr<PacketSender>> Create(int interface_index);
  ~PacketSender();

  PacketSender(const PacketSender&) = delete;
  PacketSender& operator=(const PacketSender&) = delete;

  // Marks what is sent from now on (SO_MARK). Where that is refused nothing is marked.
  void SetMark(uint32_t mark);

  // Takes a frame to send. False: its length is impossible, and was counted.
  bool Add(std::span<const uint8_t> frame);
  void Flush();

  // Has the interface's own filter pass the frames that `rule` asks for, as a card's steering
  // would; it ends with the socket. Any thread.
  absl::Status AddMembership(const WireRule& rule);
  void RemoveMembership(const WireRule& rule);

  const Counts& counts() const { return counts_; }
  int fd() const { return fd_; }

 private:
  static constexpr int kBatch = 32;

  PacketSender(int fd, int interface_index);
  // Sends from frame `first` on; returns how many the kernel took, or -1 with errno.
  int SendFrom(int first);
  void CountDrop(int error);
  int ChangeMembership(const WireRule& rule, int option);

  const int fd_;
  const int interface_index_;
  const std::unique_ptr<uint8_t[]> frames_;
  std::array<iovec, kBatch> pieces_{};
  std::array<mmsghdr, kBatch> messages_{};
  int held_ = 0;
  Counts counts_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_PACKET_SENDER_H_
