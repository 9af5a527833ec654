// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_group.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/completion.h"
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
  places_.clear();
  for (size_t i = 0; i < rings && count < max; ++i) {
    const auto left = static_cast<uint32_t>(rings - i);
    // A share of what is left, one at least: nobody after it goes without.
    const uint32_t budget = std::max<uint32_t>((max - count) / left, 1);
    const uint32_t begin = count;
    count += rings_[(first_ + i) % rings]->Poll(at + count * stride, budget, stride);
    if (order_ == Order::kHardwareTime) NotePlaces(at, begin, count, stride);
  }
  first_ = (first_ + 1) % rings;
  if (order_ == Order::kHardwareTime) Merge(at, stride);
  return count;
}

void RingGroup::SetOrder(Order order, uint32_t most) {
  order_ = order;
  if (order == Order::kHardwareTime) places_.reserve(most);
}

// Never before what came before it on its ring.
void RingGroup::NotePlaces(const uint8_t* at, uint32_t begin, uint32_t end, size_t stride) {
  int64_t time_ns = std::numeric_limits<int64_t>::min();
  for (uint32_t i = begin; i < end; ++i) {
    const auto& completion = *reinterpret_cast<const Completion*>(at + i * stride);
    const bool timed = completion.kind == Kind::kPacket && completion.hw_time_ns != 0;
    if (timed) time_ns = std::max(time_ns, completion.hw_time_ns);
    places_.push_back({time_ns, i});
  }
}

// Puts each completion where its place stands in the sorted ones, cycle by cycle.
void RingGroup::Merge(uint8_t* at, size_t stride) {
  const auto earlier = [](const Place& a, const Place& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.from < b.from;
  };
  if (std::is_sorted(places_.begin(), places_.end(), earlier)) return;
  std::sort(places_.begin(), places_.end(), earlier);
  std::array<uint8_t, sizeof(Completion)> first;
  const size_t bytes = std::min(stride, sizeof(Completion));
  for (uint32_t start = 0; start < places_.size(); ++start) {
    if (places_[start].from == start) continue;
    memcpy(first.data(), at + start * stride, bytes);
    uint32_t to = start;
    for (uint32_t from; (from = places_[to].from) != start; to = from) {
      memcpy(at + to * stride, at + from * stride, bytes);
      places_[to].from = to;
    }
    memcpy(at + to * stride, first.data(), bytes);
    places_[to].from = to;
  }
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
