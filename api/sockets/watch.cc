// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <memory>

#include "api/sockets/kernel_calls.h"

namespace xtreme::sockets {

void Pollable::Attach(Watcher* watcher) {
  const std::lock_guard lock(lock_);
  if (gone_) return watcher->Gone();
  watchers_.push_back(watcher);
  watched_by_.fetch_add(1, std::memory_order_seq_cst);
  FindAwaited();
}

void Pollable::Detach(Watcher* watcher) {
  const std::lock_guard lock(lock_);
  const auto found = std::find(watchers_.begin(), watchers_.end(), watcher);
  if (found == watchers_.end()) return;
  watchers_.erase(found);
  watched_by_.fetch_sub(1, std::memory_order_relaxed);
  FindAwaited();
}

void Pollable::WantsChanged() {
  const std::lock_guard lock(lock_);
  FindAwaited();
}

void Pollable::FindAwaited() {
  uint32_t all = 0;
  for (const Watcher* watcher : watchers_) all |= watcher->Wants();
  if (awaited_.exchange(all, std::memory_order_relaxed) != all) WatchedChanged();
}

void Pollable::AfterFork() { std::construct_at(&lock_); }

void Pollable::Tell(uint32_t happened) {
  const std::lock_guard lock(lock_);
  for (Watcher* watcher : watchers_) watcher->Told(happened);
}

void Pollable::AddDoors(Doors* doors) const {
  RingDoor* const own = door();
  if (own == nullptr) return;
  if (std::find(doors->begin(), doors->end(), own) == doors->end()) doors->push_back(own);
}

void Pollable::SayCloses(int fd) {
  const std::lock_guard lock(lock_);
  for (Watcher* watcher : watchers_) watcher->Closes(fd);
}

void Pollable::SayGone() {
  std::vector<Watcher*> watchers;
  const std::lock_guard lock(lock_);
  gone_ = true;
  watchers.swap(watchers_);
  watched_by_.store(0, std::memory_order_relaxed);
  awaited_.store(0, std::memory_order_relaxed);
  for (Watcher* watcher : watchers) watcher->Gone();
}

namespace {

// Of this process' ancestors, since there is a library.
std::atomic<uint32_t> forks{0};

}  // namespace

Sleeper::Sleeper() { Open(); }

Sleeper::~Sleeper() { Kernel().close(fd_); }

void Sleeper::Open() {
  fd_ = HighDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  forks_ = forks.load(std::memory_order_relaxed);
}

Sleeper& Sleeper::OfThread() {
  static thread_local Sleeper sleeper;
  if (sleeper.forks_ != forks.load(std::memory_order_relaxed)) {
    Kernel().close(sleeper.fd_);
    sleeper.Open();
  }
  return sleeper;
}

void Sleeper::AfterFork() { forks.fetch_add(1, std::memory_order_relaxed); }

void Sleeper::Told(uint32_t) {
  const Uncancelled whole;  // Whoever tells has locks.
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = Kernel().write(fd_, &one, sizeof one);
}

void Sleeper::Rest() {
  uint64_t count = 0;
  const ErrnoKept kept;  // EAGAIN: nobody told it.
  [[maybe_unused]] const ssize_t taken = Kernel().read(fd_, &count, sizeof count);
}

}  // namespace xtreme::sockets
