// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/uar.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {

absl::StatusOr<std::unique_ptr<UarTable>> UarTable::Create(uint32_t limit) {
  const size_t bytes = size_t{limit + kFirstPage} * kUarPageBytes;
  const int fd = memfd_create("connectx-uar", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::InternalError(absl::StrFormat("create UAR memfd: %s", std::strerror(errno)));
  }
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return absl::InternalError(
        absl::StrFormat("map %u UAR pages: %s", limit, std::strerror(error)));
  }
  return std::unique_ptr<UarTable>(new UarTable(fd, {static_cast<uint8_t*>(memory), bytes}));
}

UarTable::UarTable(int fd, std::span<uint8_t> memory) : fd_(fd), memory_(memory) {
  for (uint32_t id = static_cast<uint32_t>(memory.size() / kUarPageBytes); id-- > kFirstPage;) {
    free_.push_back(id);
  }
}

UarTable::~UarTable() {
  munmap(memory_.data(), memory_.size());
  close(fd_);
}

int UarTable::Alloc(Uar* uar) {
  if (free_.empty()) return ENOMEM;
  const uint32_t id = free_.back();
  free_.pop_back();
  const uint64_t offset = uint64_t{id} * kUarPageBytes;
  auto page = std::make_unique<UarPage>(UarPage{.id = id, .memory = memory_.data() + offset});
  std::memset(page->memory, 0, kUarPageBytes);
  *uar = {.page_id = id, .page = page->memory, .offset = offset};
  pages_.push_back(std::move(page));
  return 0;
}

int UarTable::Free(uint32_t page_id) {
  const auto page = std::find_if(pages_.begin(), pages_.end(),
                                 [page_id](const auto& used) { return used->id == page_id; });
  if (page == pages_.end()) return EINVAL;
  if (!(*page)->send_queues.empty() || !(*page)->completion_queues.empty()) return EBUSY;
  free_.push_back(page_id);
  pages_.erase(page);
  return 0;
}

UarPage* UarTable::Find(uint32_t page_id) const {
  for (const auto& page : pages_) {
    if (page->id == page_id) return page.get();
  }
  return nullptr;
}

}  // namespace xtreme::connectx
