// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/memory.h"

#include <algorithm>
#include <cerrno>

namespace xtreme::connectx {

int MemoryTable::Register(const MemoryRequest& request, MemoryKeys* keys) {
  if (request.start == nullptr) return EINVAL;
  if (request.iova + request.length < request.iova) return EINVAL;
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (regions_.size() - kFirstIndex < limit_) {
    index = static_cast<uint32_t>(regions_.size());
    regions_.emplace_back();
  } else {
    return ENOMEM;
  }
  Region& region = regions_[index];
  region.start = request.start;
  region.length = request.length;
  region.iova = request.iova;
  region.pd = request.pd;
  region.local_write = request.local_write;
  region.lkey = index << 8 | region.next_low_byte++;
  *keys = {.lkey = region.lkey, .rkey = region.lkey};
  return 0;
}

int MemoryTable::Deregister(uint32_t lkey) {
  const uint32_t index = lkey >> 8;
  if (index >= regions_.size() || regions_[index].lkey != lkey) return EINVAL;
  regions_[index].lkey = kNoKey;
  free_.push_back(index);
  return 0;
}

bool MemoryTable::Uses(uint32_t pd) const {
  return std::any_of(regions_.begin(), regions_.end(), [pd](const Region& region) {
    return region.lkey != kNoKey && region.pd == pd;
  });
}

}  // namespace xtreme::connectx
