// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/locks.h"

#include <pthread.h>

#include <memory>

#include "api/sockets/ring_door.h"

namespace xtreme::sockets {

void FutexLock::Await() {
  while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    state_.wait(kAwaited, std::memory_order_relaxed);
  }
}

void FutexLock::Wake() { state_.notify_one(); }

void SetupLock::lock() {
  int state = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  LockMutex();
  if (depth_++ == 0) cancel_state_ = state;
}

void SetupLock::unlock() {
  const bool last = --depth_ == 0;
  const int state = cancel_state_;
  mutex_.unlock();
  if (last) pthread_setcancelstate(state, nullptr);
}

void SetupLock::AfterFork() {
  // Anew: it is locked by a thread of the parent's, and a recursive mutex knows its owner.
  std::construct_at(&mutex_);
  depth_ = 0;
  pthread_setcancelstate(cancel_state_, nullptr);
}

void SetupLock::LockMutex() {
  if (mutex_.try_lock()) return;
  const RingDoor::OutsideAll outside(newest_->load(std::memory_order_acquire));
  mutex_.lock();
}

}  // namespace xtreme::sockets
