// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kUnitBytes = 64;
constexpr uint32_t kPageLog2 = 12;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemoryTable>> DeviceMemoryTable::Create(uint64_t bytes) {
  if (bytes == 0) return std::unique_ptr<DeviceMemoryTable>(new DeviceMemoryTable(0, -1, {}));
  const uint64_t window_bytes = 2 * RoundUp(bytes, kPageBytes);
  const int fd = memfd_create("connectx-memic", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrFormat("create the memfd of on-device memory: %s", std::strerror(errno)));
  }
  void* window = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(window_bytes)) == 0) {
    window = mmap(nullptr, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (window == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return absl::InternalError(absl::StrFormat("map %u bytes of on-device memory: %s", window_bytes,
                                               std::strerror(error)));
  }
  return std::unique_ptr<DeviceMemoryTable>(
      new DeviceMemoryTable(bytes, fd, {static_cast<uint8_t*>(window), window_bytes}));
}

DeviceMemoryTable::DeviceMemoryTable(uint64_t bytes, int fd, std::span<uint8_t> window)
    : limit_bytes_(bytes), fd_(fd), window_(window) {}

DeviceMemoryTable::~DeviceMemoryTable() {
  if (fd_ < 0) return;
  munmap(window_.data(), window_.size());
  close(fd_);
}

int DeviceMemoryTable::Alloc(uint64_t bytes, uint32_t alignment_log2, DeviceMemory* memory) {
  if (fd_ < 0) return EOPNOTSUPP;
  if (bytes == 0 || alignment_log2 > kPageLog2) return EINVAL;
  if (bytes > limit_bytes_) return ENOMEM;
  const uint64_t rounded = RoundUp(bytes, kUnitBytes);
  if (rounded > limit_bytes_ - allocated_bytes_) return ENOMEM;
  const uint64_t offset = FindRoom(rounded);
  if (offset == window_.size()) return ENOMEM;
  allocations_[offset] = rounded;
  allocated_bytes_ += rounded;
  *memory = {.start = window_.data() + offset, .offset = offset, .bytes = bytes};
  return 0;
}

int DeviceMemoryTable::Free(uint64_t offset) {
  const auto found = allocations_.find(offset);
  if (found == allocations_.end()) return EINVAL;
  allocated_bytes_ -= found->second;
  allocations_.erase(found);
  return 0;
}

uint64_t DeviceMemoryTable::FindRoom(uint64_t bytes) const {
  const uint64_t needed = RoundUp(bytes, kPageBytes);
  uint64_t at = 0;
  for (const auto& [offset, length] : allocations_) {
    if (offset - at >= needed) return at;
    at = offset + RoundUp(length, kPageBytes);
  }
  return window_.size() - at >= needed ? at : window_.size();
}

}  // namespace xtreme::connectx
