// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/pinned_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace xtreme::connectx {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Pinning memory that is not there fails; so do we, before the device would fault on it.
bool IsMapped(uint64_t start, uint64_t length) {
  std::array<unsigned char, 4096> residence;
  const uint64_t end = (start + length + kPageBytes - 1) & ~(kPageBytes - 1);
  uint64_t at = start & ~(kPageBytes - 1);
  while (at < end) {
    const uint64_t bytes = std::min<uint64_t>(end - at, residence.size() * kPageBytes);
    if (::syscall(SYS_mincore, at, bytes, residence.data()) != 0) return false;
    at += bytes;
  }
  return true;
}

uint64_t PagesOf(uint64_t start, uint64_t length) {
  return (start + length + kPageBytes - 1) / kPageBytes - start / kPageBytes;
}

bool MayLockAnything() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return false;
  return (sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

// The kernel's ib_umem_get: what all regions of a process pin together is limited, but for
// CAP_IPC_LOCK; the kernel asks for that of the first user namespace, we for that of the process's.
bool MayPin(uint64_t pages) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return pages <= limit.rlim_cur / kPageBytes || MayLockAnything();
}

}  // namespace

int PinnedMemory::Pin(uint64_t* total, uint64_t start, uint64_t length) {
  constexpr uint64_t kEndOfAddresses = ~(kPageBytes - 1);  // Of those with a page behind theirs.
  if (start > kEndOfAddresses || length > kEndOfAddresses - start) return EINVAL;
  const uint64_t pages = PagesOf(start, length);
  if (!MayPin(*total + pages)) return ENOMEM;
  if (!IsMapped(start, length)) return EFAULT;
  *total += pages;
  PinnedMemory pinned;
  pinned.total_ = total;
  pinned.pages_ = pages;
  *this = std::move(pinned);
  return 0;
}

int RecordPages::Pin(uint64_t* total, uint64_t address, std::shared_ptr<PinnedMemory>* page) {
  std::weak_ptr<PinnedMemory>& known = pages_[address / kPageBytes];
  *page = known.lock();
  if (*page != nullptr) return 0;
  auto pinned = std::make_shared<PinnedMemory>();
  if (const int error = pinned->Pin(total, address, sizeof(uint64_t)); error != 0) return error;
  known = pinned;
  *page = std::move(pinned);
  return 0;
}

}  // namespace xtreme::connectx
