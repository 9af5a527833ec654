// SPDX-License-Identifier: Apache-2.0
//
// UAR pages: the memory that programs ring doorbells in, and the queues that listen to each page.
//
// Invariant: a page starts zeroed: no doorbell of a former owner is heard.
// Units: pages of 4,096 bytes in one memfd. Thread: the device's lock; the pages themselves are
// written by the program at any time (layout.h).

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_UAR_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_UAR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/connectx/device/completion_queue.h"
#include "tools/connectx/device/requests.h"
#include "tools/connectx/device/send_queue.h"

namespace xtreme::connectx {

struct UarPage {
  uint32_t id;
  uint8_t* memory;
  std::vector<SendQueue*> send_queues;
  std::vector<CompletionQueue*> completion_queues;
  bool busy = false;  // A send queue stopped before its doorbell was worked off.
};

class UarTable {
 public:
  // Internal: no memfd or no mapping (errno in the message).
  static absl::StatusOr<std::unique_ptr<UarTable>> Create(uint32_t limit);
  ~UarTable();
  UarTable(const UarTable&) = delete;
  UarTable& operator=(const UarTable&) = delete;

  // ENOMEM: the limit.
  int Alloc(Uar* uar);
  // EINVAL: no such page. EBUSY: a queue listens to it.
  int Free(uint32_t page_id);

  UarPage* Find(uint32_t page_id) const;
  std::span<const std::unique_ptr<UarPage>> pages() const { return pages_; }

  int fd() const { return fd_; }
  std::span<uint8_t> memory() const { return memory_; }

 private:
  // Page 0 is never given out: 0 is what a structure that nobody filled in says.
  static constexpr uint32_t kFirstPage = 1;

  UarTable(int fd, std::span<uint8_t> memory);

  const int fd_;
  const std::span<uint8_t> memory_;
  std::vector<std::unique_ptr<UarPage>> pages_;  // In use, in any order: what the pump looks at.
  std::vector<uint32_t> free_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_UAR_H_
