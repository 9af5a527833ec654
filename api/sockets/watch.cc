// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/watch.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "api/sockets/kernel_calls.h"

namespace xtreme::sockets {

void Pollable::Attach(Watcher* watcher) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watchers_.push_back(watcher);
}

void Pollable::Detach(Watcher* watcher) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(watchers_.begin(), watchers_.end(), watcher);
  if (found != watchers_.end()) watchers_.erase(found);
}

void Pollable::Change(uint32_t begin, uint32_t end, uint32_t happened) {
  mask_.fetch_and(~end, std::memory_order_seq_cst);
  mask_.fetch_or(begin, std::memory_order_seq_cst);
  if (happened == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Watcher* watcher : watchers_) watcher->Told(happened);
}

void Pollable::AddDoors(std::vector<RingDoor*>* doors) const {
  RingDoor* const own = door();
  if (own == nullptr) return;
  if (std::find(doors->begin(), doors->end(), own) == doors->end()) doors->push_back(own);
}

void Pollable::SayGone() {
  std::vector<Watcher*> watchers;
  const std::lock_guard<std::mutex> lock(mutex_);
  watchers.swap(watchers_);
  for (Watcher* watcher : watchers) watcher->Gone();
}

Sleeper::Sleeper() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Sleeper::~Sleeper() { Kernel().close(fd_); }

Sleeper& Sleeper::OfThread() {
  static thread_local Sleeper sleeper;
  return sleeper;
}

void Sleeper::Told(uint32_t) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = Kernel().write(fd_, &one, sizeof one);
}

void Sleeper::Rest() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = Kernel().read(fd_, &count, sizeof count);
}

}  // namespace xtreme::sockets
