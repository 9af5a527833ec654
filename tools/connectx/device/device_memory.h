// SPDX-License-Identifier: Apache-2.0
//
// On-device memory (MEMIC): a few pages in the NIC that programs map, write, register and send
// from.
//
// Invariant: an allocation has whole pages of its own, so that no program maps another's bytes.
// A card's window has twice as many pages as the memory fills: allocations smaller than a page run
// out of the one or of the other.
// Units: bytes, offsets from the window's start. Thread: the device's lock.
// Spec: ibv_alloc_dm(3); PRM ALLOC_MEMIC: sizes are multiples of 64 bytes.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_MEMORY_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

class DeviceMemoryTable {
 public:
  // `bytes` may be 0: a device without. Internal: no memfd or no mapping (errno in the message).
  static absl::StatusOr<std::unique_ptr<DeviceMemoryTable>> Create(uint64_t bytes);
  ~DeviceMemoryTable();
  DeviceMemoryTable(const DeviceMemoryTable&) = delete;
  DeviceMemoryTable& operator=(const DeviceMemoryTable&) = delete;

  // EOPNOTSUPP: the device has none. EINVAL: no bytes, or an alignment above a page. ENOMEM: no
  // room.
  int Alloc(uint64_t bytes, uint32_t alignment_log2, DeviceMemory* memory);
  // EINVAL: nothing was allocated at this offset.
  int Free(uint64_t offset);

  int fd() const { return fd_; }

 private:
  DeviceMemoryTable(uint64_t bytes, int fd, std::span<uint8_t> window);

  // The lowest run of free pages that takes `bytes`; the window's size if there is none.
  uint64_t FindRoom(uint64_t bytes) const;

  const uint64_t limit_bytes_;
  const int fd_;                     // -1: none.
  const std::span<uint8_t> window_;  // Twice the limit.
  std::map<uint64_t, uint64_t> allocations_;  // Offset to bytes, in multiples of 64.
  uint64_t allocated_bytes_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_MEMORY_H_
