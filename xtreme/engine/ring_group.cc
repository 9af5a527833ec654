// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_group.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/ring.h"

namespace xtreme::engine {

absl::StatusOr<std::unique_ptr<RingGroup>> RingGroup::Create(std::span<Ring* const> rings) {
  if (rings.empty()) return absl::InvalidArgumentError("open group: no rings given");
  const int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("open group: epoll_create1: errno ", errno));
  }
  std::unique_ptr<RingGroup> group(new RingGroup(rings, fd));
  for (const Ring* ring : rings) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = ring->fd()}};
    if (epoll_ctl(fd, EPOLL_CTL_ADD, ring->fd(), &event) != 0) {
      return absl::ResourceExhaustedError(absl::StrCat("open group: epoll_ctl: errno ", errno));
    }
  }
  return group;
}

RingGroup::~RingGroup() { close(epoll_fd_); }

uint32_t RingGroup::Poll(void* out, uint32_t max, size_t stride) {
  auto* at = static_cast<uint8_t*>(out);
  uint32_t count = 0;
  const size_t rings = rings_.size();
  for (size_t i = 0; i < rings && count < max; ++i) {
    const auto left = static_cast<uint32_t>(rings - i);
    // A share of what is left, one at least: nobody after it goes without.
    const uint32_t budget = std::max<uint32_t>((max - count) / left, 1);
    count += rings_[(first_ + i) % rings]->Poll(at + count * stride, budget, stride);
  }
  first_ = (first_ + 1) % rings;
  return count;
}

bool RingGroup::OwnedByThisThread() const {
  return std::all_of(rings_.begin(), rings_.end(),
                     [](const Ring* ring) { return ring->OwnedByThisThread(); });
}

bool RingGroup::Arm() {
  bool armed = true;
  // All of them, also after one that has something: the fd then tells of the others as well.
  for (Ring* ring : rings_) armed &= ring->Arm();
  return armed;
}

}  // namespace xtreme::engine
