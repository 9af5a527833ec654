// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/doorbell_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

// Newer than the headers of some systems; the kernel says at run time whether it has them.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

namespace xtreme::connectx {
namespace {

// -1: no userfaultfd, or none that can write-protect shared memory (Linux 5.19).
int OpenWatch() {
  const long fd =
      ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0) return -1;
  uffdio_api api{.api = UFFD_API,
                 .features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_MISSING_SHMEM};
  if (::ioctl(static_cast<int>(fd), UFFDIO_API, &api) == 0) return static_cast<int>(fd);
  ::syscall(SYS_close, fd);
  return -1;
}

}  // namespace

DoorbellWatch::DoorbellWatch(bool wanted) : fd_(wanted ? OpenWatch() : -1) {}

DoorbellWatch::~DoorbellWatch() {
  Disarm();
  if (fd_ >= 0) ::syscall(SYS_close, fd_);
}

void DoorbellWatch::AddUar(void* address, size_t length) {
  Add({reinterpret_cast<uintptr_t>(address), length, /*is_uar=*/true});
}

void DoorbellWatch::AddClock(void* address, size_t length) {
  Add({reinterpret_cast<uintptr_t>(address), length, /*is_uar=*/false});
}

void DoorbellWatch::Add(const Mapping& mapping) {
  const std::lock_guard lock(mutex_);
  // An address that comes again means that its old mapping was unmapped unseen.
  std::erase_if(mappings_, [&](const Mapping& old) { return old.address == mapping.address; });
  if (fd_ >= 0 && Register(mapping)) {
    mappings_.push_back(mapping);
  } else {
    all_registered_ = false;
  }
}

bool DoorbellWatch::complete() const {
  const std::lock_guard lock(mutex_);
  return fd_ >= 0 && all_registered_;
}

void DoorbellWatch::Arm() {
  const std::lock_guard lock(mutex_);
  std::erase_if(mappings_, [&](const Mapping& mapping) { return !Protect(mapping, true); });
}

void DoorbellWatch::Disarm() {
  const std::lock_guard lock(mutex_);
  std::erase_if(mappings_, [&](const Mapping& mapping) { return !Protect(mapping, false); });
}

bool DoorbellWatch::Register(const Mapping& mapping) const {
  uffdio_register request{
      .range = {.start = mapping.address, .len = mapping.length},
      .mode = mapping.is_uar ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING};
  return ::ioctl(fd_, UFFDIO_REGISTER, &request) == 0;
}

bool DoorbellWatch::Protect(const Mapping& mapping, bool protect) const {
  if (!mapping.is_uar) {
    // Whether the register is there is ClockPages' business; who waited for it must look again.
    uffdio_range range{.start = mapping.address, .len = mapping.length};
    return protect || ::ioctl(fd_, UFFDIO_WAKE, &range) == 0;
  }
  uffdio_writeprotect request{
      .range = {.start = mapping.address, .len = mapping.length},
      .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
  return ::ioctl(fd_, UFFDIO_WRITEPROTECT, &request) == 0;
}

}  // namespace xtreme::connectx
