// SPDX-License-Identifier: Apache-2.0
//
// SetupLock: of deciding sockets' paths, of rings and rules; taken before any ring's door.
// FutexLock: of a ring's door, which every send and receive takes, of sets and who watches.
// ThreadToken: who is inside a door.
//
// Invariant: nobody waits for the SetupLock inside a door, nor for a door inside another. Who calls
// from inside some (a receive callback that binds, closes, or sends by another ring) steps out of
// them while they wait: whoever has the lock may be waiting for those doors. Threads: any.

#ifndef XTREME_API_SOCKETS_LOCKS_H_
#define XTREME_API_SOCKETS_LOCKS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace xtreme::sockets {

class RingDoor;

// What calls look at of their thread. At an offset that is known when the library is loaded, so
// that no call finds it, and compilers fear none.
struct ThreadWords {
  int passages = 0;       // How many Passages (kernel_calls.h) of the thread stand.
  uintptr_t outside = 0;  // ThreadToken() while none does; until it is first shown, 0.
  volatile uint32_t handlers = 0;  // Of signals, that have begun (api/preload/signal_calls.cc).
  int64_t skips = 0;      // Polls that rings answered since one asked the kernel (poll.cc).
};
inline ThreadWords& WordsOfThread() {
  [[gnu::tls_model("initial-exec")]] static thread_local ThreadWords words;
  return words;
}
// A value that differs between running threads: where their words are.
inline uintptr_t ThreadToken() { return reinterpret_cast<uintptr_t>(&WordsOfThread()); }
// The same, and 0 where the thread's calls are the kernel's: for who looks at both at once.
inline uintptr_t OutsideToken() { return WordsOfThread().outside; }
inline void ShowOutside() {
  ThreadWords& words = WordsOfThread();
  words.outside = words.passages == 0 ? ThreadToken() : 0;
}

// Recursive. Who has it is not cancelled.
class SetupLock {
 public:
  // `newest`: where the list of all doors begins, each with the next older one.
  explicit SetupLock(const std::atomic<RingDoor*>* newest) : newest_(newest) {}

  void lock();
  void unlock();
  // In a child after fork(), of the thread that had it: nobody has it.
  void AfterFork();

 private:
  void LockMutex();

  const std::atomic<RingDoor*>* const newest_;
  std::recursive_mutex mutex_;
  // Of the thread that has it: how often, and its cancel state before.
  uint32_t depth_ = 0;
  int cancel_state_ = 0;
};

// One locked instruction to take and one to give back, and no call, where std::mutex takes some
// seventy instructions. After: U. Drepper, "Futexes Are Tricky", 2011, section 7.
class FutexLock {
 public:
  bool try_lock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  // Sleeps if it has to.
  void lock() {
    if (!try_lock()) [[unlikely]] Await();
  }
  void unlock() {
    const uint32_t before = state_.exchange(kFree, std::memory_order_release);
    if (before == kAwaited) [[unlikely]] Wake();
  }

 private:
  void Await();
  void Wake();

  // kAwaited: somebody may sleep until it is free.
  enum State : uint32_t { kFree, kTaken, kAwaited };

  std::atomic<uint32_t> state_{kFree};
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_LOCKS_H_
