// SPDX-License-Identifier: Apache-2.0
//
// Frames that leave a network interface, read in place from a ring that the kernel writes
// (TPACKET_V2). The ring is memory of its own, so an ordinary user's small socket buffers do not
// bound the burst that it absorbs. Frames longer than its slots, when the interface's MTU has
// grown, pass by that buffer.
//
// Invariant: a slot is the kernel's while its status says TP_STATUS_KERNEL and ours otherwise.
// Units: nanoseconds of CLOCK_REALTIME, taken by the kernel when it wrote the slot.
// Thread: one at a time, except TakeDrops.
// Spec: packet(7), Linux Documentation/networking/packet_mmap.rst.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_PACKET_RING_H_
#define XTREME_TOOLS_CONNECTX_WIRE_PACKET_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class PacketRing {
 public:
  struct Options {
    int interface_index = 0;
    size_t max_frame_bytes = 0;  // What a slot holds; longer frames pass by the socket's buffer.
    size_t ring_bytes = 0;       // Rounded up to whole blocks of 256 KB.
  };

  struct Frame {
    std::span<const uint8_t> bytes;  // Valid until Pop.
    int64_t time_ns;
    size_t length;  // More than `bytes`: what did not fit a slot found no room in the buffer.
  };

  // Errors: PermissionDenied without CAP_NET_RAW, ResourceExhausted without the memory, Internal.
  static absl::StatusOr<std::unique_ptr<PacketRing>> Create(const Options& options);
  ~PacketRing();

  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;

  bool Empty() const;
  // The oldest frame; the ring must not be empty.
  Frame Front();
  // Gives the oldest frame's slot back to the kernel.
  void Pop();

  // Frames that the kernel dropped since the last call because the ring was full. Any thread.
  uint32_t TakeDrops();

  // Polls readable while a frame waits.
  int fd() const { return fd_; }

 private:
  explicit PacketRing(int fd) : fd_(fd) {}
  absl::Status Build(const Options& options);
  uint8_t* Slot() const;
  // Takes the copy of a frame that did not fit its slot, once for each that has one.
  void TakeCopy();

  const int fd_;
  size_t slot_bytes_ = 0;
  size_t slots_per_block_ = 0;
  size_t slots_ = 0;
  uint8_t* ring_ = nullptr;
  size_t ring_bytes_ = 0;
  size_t next_ = 0;  // The slot that the kernel fills next, or has filled.

  // Of the oldest frame, when it did not fit its slot.
  bool copy_taken_ = false;
  size_t copy_bytes_ = 0;
  std::array<uint8_t, kMaxFrameBytes> copy_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_PACKET_RING_H_
