// SPDX-License-Identifier: Apache-2.0
//
// The offset of an mmap on a verbs descriptor: not a place in a file but a command and an index.
//
// Units: pages of 4,096 bytes; index bits 7:0, command bits 15:8, index bits 15:8 again above them.
// Spec: rdma/mlx5-abi.h (enum mlx5_ib_mmap_cmd).

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_MMAP_OFFSET_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_MMAP_OFFSET_H_

#include <cstdint>

namespace xtreme::connectx {

struct MmapOffset {
  // The kernel hands out UAR pages under commands from this one on, which libmlx5 does not
  // interpret.
  static constexpr uint32_t kUarCommand = 9;

  uint32_t command = 0;
  uint32_t index = 0;

  static constexpr MmapOffset Parse(uint64_t bytes) {
    const uint64_t page = bytes >> 12;
    return {.command = static_cast<uint32_t>((page >> 8) & 0xff),
            .index = static_cast<uint32_t>((page & 0xff) | ((page >> 16) & 0xff) << 8)};
  }

  constexpr uint64_t Emit() const {
    const uint64_t page = uint64_t{index & 0xff} | uint64_t{command} << 8 |
                          uint64_t{(index >> 8) & 0xff} << 16;
    return page << 12;
  }

  friend constexpr bool operator==(const MmapOffset&, const MmapOffset&) = default;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_MMAP_OFFSET_H_
