// SPDX-License-Identifier: Apache-2.0

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>

#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {

WatchedFd::WatchedFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

WatchedFd::~WatchedFd() { close(fd_); }

void WatchedFd::Signal() {
  eventfd_write(fd_, 1);
  readable_ = true;
  for (Watch& watch : watches_) watch.ready |= watch.calls > 0;
}

void WatchedFd::Drain() {
  eventfd_t count;
  eventfd_read(fd_, &count);
  readable_ = false;
}

void WatchedFd::OnWatch(int ring) {
  Watch& watch = of(ring);
  ++watch.calls;
  watch.due = true;
  watch.ready |= readable_;
}

// Those of earlier calls may be on their way still, so that there are no more than calls.
std::string WatchedFd::Take(int ring, const xtreme_completion& event) {
  Watch& watch = of(ring);
  if (event.fd != fd_ || event.status != 0 || (event.events & EPOLLIN) == 0) return "of another";
  if (watch.calls == 0) return "not asked for";
  if (!watch.ready) return "of what is not readable";
  --watch.calls;
  watch.due = false;
  return "";
}

bool WatchedFd::AnyDue() const {
  for (const Watch& watch : watches_) {
    if (watch.due) return true;
  }
  return false;
}

void Player::Watch(const Numbers& numbers) {
  const int ring = static_cast<int>(numbers[0] % World::kRings);
  switch (numbers[1] % 6) {
    case 0: return watched_.Signal();
    case 1: return watched_.Drain();
    case 2:
      Check(xtreme_ring_watch(world_->ring(ring), watched_.fd(), 0) == 0, "watch no more");
      return watched_.OnEnd(ring);
    default: {
      const int result = xtreme_ring_watch(world_->ring(ring), watched_.fd(), EPOLLIN);
      Note("watch by ring " + std::to_string(ring) + " = " + std::to_string(result));
      Check(result == 0, "watch");
      return watched_.OnWatch(ring);
    }
  }
}

}  // namespace xtreme::model
