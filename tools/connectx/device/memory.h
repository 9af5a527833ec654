// SPDX-License-Identifier: Apache-2.0
//
// Registered memory: what an lkey and an address in a WQE mean in the program.
//
// Invariant: Translate answers only for ranges that lie whole in one region of the asking PD.
// Units: bytes. Thread: the device's lock.
// Spec: the terminator of scatter lists, MLX5_INVALID_LKEY (0x100), is never a region's key.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_MEMORY_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

class MemoryTable {
 public:
  explicit MemoryTable(uint32_t limit) : limit_(limit), regions_(kFirstIndex) {}

  // EINVAL: no memory, or its addresses wrap around. ENOMEM: the limit.
  int Register(const MemoryRequest& request, MemoryKeys* keys);
  // EINVAL: no such key. A key comes back with another low byte, so a stale one is not valid.
  int Deregister(uint32_t lkey);

  // The program's memory behind a data segment; nullptr when the key, the PD, the range or the
  // access is wrong.
  uint8_t* Translate(uint32_t pd, uint32_t lkey, uint64_t address, uint32_t length,
                     bool write) const {
    const uint32_t index = lkey >> 8;
    if (index >= regions_.size()) return nullptr;
    const Region& region = regions_[index];
    const uint64_t offset = address - region.iova;
    if (region.lkey != lkey || region.pd != pd || offset > region.length) return nullptr;
    if (length > region.length - offset || (write && !region.local_write)) return nullptr;
    return region.start + offset;
  }

  bool Uses(uint32_t pd) const;

 private:
  static constexpr uint32_t kFirstIndex = 16;
  static constexpr uint32_t kNoKey = 0xffffffff;

  struct Region {
    uint8_t* start = nullptr;
    uint64_t length = 0;
    uint64_t iova = 0;
    uint32_t lkey = kNoKey;
    uint32_t pd = 0;
    bool local_write = false;
    uint8_t next_low_byte = 0;
  };

  const uint32_t limit_;
  std::vector<Region> regions_;
  std::vector<uint32_t> free_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_MEMORY_H_
