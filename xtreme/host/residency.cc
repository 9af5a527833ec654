// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/residency.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xtreme::host {
namespace {

constexpr size_t kPageBytes = 4'096;
constexpr size_t kHugepageBytes = 2 << 20;
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

// The pages that any byte of `memory` lies in.
std::span<std::byte> PagesAround(std::span<std::byte> memory) {
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = start & ~(kPageBytes - 1);
  const uintptr_t end = (start + memory.size() + kPageBytes - 1) & ~(kPageBytes - 1);
  return {reinterpret_cast<std::byte*>(first), end - first};
}

// The pages, of a size that is a power of two, that no byte outside `memory` lies in.
std::span<std::byte> PagesInside(std::span<std::byte> memory, size_t page_bytes = kPageBytes) {
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (start + page_bytes - 1) & ~(page_bytes - 1);
  const uintptr_t end = (start + memory.size()) & ~(page_bytes - 1);
  return {reinterpret_cast<std::byte*>(first), end > first ? end - first : 0};
}

std::string Megabytes(size_t bytes) {
  return absl::StrCat((bytes + 999'999) / 1'000'000, " MB");
}

std::string Errno(int error) {
  return absl::StrCat(std::generic_category().message(error), ", errno ", error);
}

// Writes to each page what stands in it: a page that was only read is a shared page of zeros.
void Touch(std::span<std::byte> memory) {
  for (size_t at = 0; at < memory.size(); at += kPageBytes) {
    volatile std::byte* byte = &memory[at];
    *byte = *byte;
  }
}

// Preferred, not bound: when a node is full, memory elsewhere is better than none. 0 or an errno.
int MoveTo(int node, std::span<std::byte> pages) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  if (static_cast<size_t>(node) >= kBits) return EINVAL;
  const unsigned long nodes = 1ul << node;
  const long moved = ::syscall(SYS_mbind, pages.data(), pages.size(), MPOL_PREFERRED, &nodes,
                               kBits + 1, MPOL_MF_MOVE);
  return moved == 0 ? 0 : errno;
}

}  // namespace

std::optional<int> NumaNodeOf(const std::string& interface, const std::string& sysfs) {
  const std::filesystem::path own = absl::StrCat(sysfs, "/class/net/", interface);
  std::filesystem::path device = own / "device";
  std::error_code error;
  if (!std::filesystem::exists(device, error)) {
    // A VLAN has none: the interface below it does, to which it has a link.
    for (const auto& entry : std::filesystem::directory_iterator(own, error)) {
      if (entry.path().filename().string().starts_with("lower_")) device = entry.path() / "device";
    }
  }
  std::ifstream file(device / "numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return node;
}

std::span<std::byte> TouchStack(size_t bytes) {
  // Room for what the caller's own calls need besides.
  constexpr size_t kReserve = 64 << 10;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* lowest = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  const auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto room = static_cast<size_t>(here - static_cast<std::byte*>(lowest));
  if (room <= kReserve) return {};
  const size_t touched = std::min(bytes, room - kReserve);
  auto* memory = static_cast<std::byte*>(__builtin_alloca(touched));
  // Downwards, as a stack grows: the kernel extends it page by page, to the page of the first byte.
  for (size_t at = touched; at > 0; at -= std::min(at, kPageBytes)) {
    *static_cast<volatile std::byte*>(memory + at - 1) = std::byte{0};
  }
  *static_cast<volatile std::byte*>(memory) = std::byte{0};
  return {memory, touched};
}

Residency::~Residency() {
  for (const std::span<std::byte> memory : kept_) {
    const std::span<std::byte> pages = PagesInside(memory);
    if (!pages.empty()) ::munlock(pages.data(), pages.size());
  }
}

void Residency::Keep(std::string_view what, std::span<std::byte> memory) {
  if (Lock(what, memory)) kept_.push_back(memory);
}

void Residency::KeepUntilUnmapped(std::string_view what, std::span<std::byte> memory) {
  Lock(what, memory);
}

bool Residency::Lock(std::string_view what, std::span<std::byte> memory) {
  if (memory.empty()) return false;
  const std::span<std::byte> pages = PagesAround(memory);
  if (options_.node) {
    const int error = MoveTo(*options_.node, pages);
    bound_ |= error == 0;
    if (error != 0) {
      refusals_.push_back(absl::StrCat(std::string(what), " not moved to node ", *options_.node,
                                       " (", Errno(error), ")"));
    }
  }
  if (options_.merge) Merge(memory);
  if (options_.lock(pages.data(), pages.size()) == 0) {
    locked_bytes_ += pages.size();
    return true;
  }
  const int error = errno;
  Touch(memory);
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  refusals_.push_back(absl::StrCat(
      std::string(what), " of ", Megabytes(memory.size()), " touched but not locked (",
      Errno(error), "; RLIMIT_MEMLOCK ",
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : Megabytes(limit.rlim_cur), ")"));
  return false;
}

// Block by block: what is pinned, as a device's memory is, cannot be merged, and hugepages may run
// out. What is not merged stays as it was. Only what is there can be merged.
void Residency::Merge(std::span<std::byte> memory) {
  constexpr int kTries = 3;  // It may be in use for a moment: EAGAIN.
  const std::span<std::byte> blocks = PagesInside(memory, kHugepageBytes);
  Touch(blocks);
  for (size_t at = 0; at < blocks.size(); at += kHugepageBytes) {
    int error = EAGAIN;
    for (int i = 0; i < kTries && error == EAGAIN; ++i) {
      error = ::madvise(&blocks[at], kHugepageBytes, MADV_COLLAPSE) == 0 ? 0 : errno;
    }
    if (error == 0) merged_bytes_ += kHugepageBytes;
  }
}

std::string Residency::ToString() const {
  std::string line = absl::StrCat("memory: ", Megabytes(locked_bytes_), " locked");
  if (merged_bytes_ > 0) absl::StrAppend(&line, ", ", Megabytes(merged_bytes_), " in hugepages");
  if (bound_) absl::StrAppend(&line, " on NUMA node ", *options_.node);
  if (!options_.node) absl::StrAppend(&line, ", NUMA node of the device not known");
  if (!refusals_.empty()) absl::StrAppend(&line, "; ", absl::StrJoin(refusals_, "; "));
  return line;
}

}  // namespace xtreme::host
