// SPDX-License-Identifier: Apache-2.0
//
// Memory of the program that the kernel pins for the device: regions, rings, doorbell records.
//
// Invariant: what all of a process pin together is limited by RLIMIT_MEMLOCK, but for CAP_IPC_LOCK;
// what is pinned counts until its PinnedMemory goes. A page of records is pinned once a context.
// Units: pages of 4,096 bytes. Thread: the boundary's lock.
// Spec: the kernel's ib_umem_get (drivers/infiniband/core/umem.c) and mlx5_ib_db_map_user.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_PINNED_MEMORY_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_PINNED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace xtreme::connectx {

class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~PinnedMemory() {
    if (total_ != nullptr) *total_ -= pages_;
  }

  // Pins [start, start + length) and adds its pages to `total`, the process's, which outlives this.
  // EINVAL (beyond the end of addresses), ENOMEM (above the limit), EFAULT (not mapped).
  int Pin(uint64_t* total, uint64_t start, uint64_t length);

 private:
  uint64_t* total_ = nullptr;
  uint64_t pages_ = 0;
};

// The pages with doorbell records of one context.
class RecordPages {
 public:
  // That of the record at `address`: pinned as long as somebody holds it. Errors as above.
  int Pin(uint64_t* total, uint64_t address, std::shared_ptr<PinnedMemory>* page);

 private:
  std::map<uint64_t, std::weak_ptr<PinnedMemory>> pages_;
};

// What is pinned for a queue.
struct PinnedQueue {
  PinnedMemory receive;
  PinnedMemory send;
  std::shared_ptr<PinnedMemory> record;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_PINNED_MEMORY_H_
