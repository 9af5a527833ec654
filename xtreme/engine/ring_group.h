// SPDX-License-Identifier: Apache-2.0
//
// RingGroup: several rings of one owner behind one fd, polled round robin.
//
// Each poll gives every ring its share of the array and begins with another ring, so a busy ring
// cannot starve a quiet one; what a share left over goes to the rings after it. Order is promised
// per ring; by choice what one poll took is merged by hardware time besides.
// The rings outlive the group, or are removed from it by closing the group first.
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
  enum class Order : uint8_t {
    kFair,          // Ring by ring.
    // The packets of one poll by their hardware time; what has none stays behind what came before
    // it on its ring. A ring that used its whole share, or its poll_batch, may have older ones for
    // the next poll; so may one to which they came late.
    kHardwareTime,
  };

  // InvalidArgument: no rings. ResourceExhausted: no fd is to be had (the message has errno).
  static absl::StatusOr<std::unique_ptr<RingGroup>> Create(std::span<Ring* const> rings);
  // Leaves the rings as they are.
  ~RingGroup();
  RingGroup(const RingGroup&) = delete;
  RingGroup& operator=(const RingGroup&) = delete;

  // Whether the calling thread owns all of them.
  bool OwnedByThisThread() const;
  // May allocate, so that polls of up to `most` completions do not.
  void SetOrder(Order order, uint32_t most = 1024);
  // As Ring::Poll.
  uint32_t Poll(void* out, uint32_t max, size_t stride);
  // As Ring::Arm, for all of them.
  bool Arm();
  int fd() const { return epoll_fd_; }
  const std::vector<Ring*>& rings() const { return rings_; }

 private:
  RingGroup(std::span<Ring* const> rings, int epoll_fd)
      : rings_(rings.begin(), rings.end()), epoll_fd_(epoll_fd) {}

  // Where a completion of the array belongs in it.
  struct Place {
    int64_t time_ns;
    uint32_t from;
  };

  void NotePlaces(const uint8_t* at, uint32_t begin, uint32_t end, size_t stride);
  void Merge(uint8_t* at, size_t stride);

  const std::vector<Ring*> rings_;
  const int epoll_fd_;
  Order order_ = Order::kFair;
  std::vector<Place> places_;  // Of the poll under way.
  size_t first_ = 0;  // The ring that the next poll begins with.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_GROUP_H_
