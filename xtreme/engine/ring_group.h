// SPDX-License-Identifier: Apache-2.0
//
// RingGroup: several rings of one owner behind one fd, polled round robin.
//
// Each poll gives every ring its share of the array and begins with another ring, so a busy ring
// cannot starve a quiet one; what a share left over goes to the rings after it. Order is promised
// per ring only. The rings outlive the group, or are removed from it by closing the group first.
// Threads: the owner of the rings.

#ifndef XTREME_XTREME_ENGINE_RING_GROUP_H_
#define XTREME_XTREME_ENGINE_RING_GROUP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace xtreme::engine {

class Ring;

class RingGroup {
 public:
  // InvalidArgument: no rings. ResourceExhausted: no fd is to be had (the message has errno).
  static absl::StatusOr<std::unique_ptr<RingGroup>> Create(std::span<Ring* const> rings);
  // Leaves the rings as they are.
  ~RingGroup();
  RingGroup(const RingGroup&) = delete;
  RingGroup& operator=(const RingGroup&) = delete;

  // Whether the calling thread owns all of them.
  bool OwnedByThisThread() const;
  // As Ring::Poll.
  uint32_t Poll(void* out, uint32_t max, size_t stride);
  // As Ring::Arm, for all of them.
  bool Arm();
  int fd() const { return epoll_fd_; }
  const std::vector<Ring*>& rings() const { return rings_; }

 private:
  RingGroup(std::span<Ring* const> rings, int epoll_fd)
      : rings_(rings.begin(), rings.end()), epoll_fd_(epoll_fd) {}

  const std::vector<Ring*> rings_;
  const int epoll_fd_;
  size_t first_ = 0;  // The ring that the next poll begins with.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_GROUP_H_
