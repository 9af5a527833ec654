// SPDX-License-Identifier: Apache-2.0
//
// SetupLock: of deciding sockets' paths, of rings and rules; taken before any ring's door.
//
// Invariant: nobody waits for it inside a door. Who calls from inside one (a receive callback that
// binds or closes) steps out while they wait: whoever has the lock may be waiting for that door.
// Recursive. Threads: any.

#ifndef XTREME_API_SOCKETS_SETUP_LOCK_H_
#define XTREME_API_SOCKETS_SETUP_LOCK_H_

#include <atomic>
#include <mutex>

namespace xtreme::sockets {

class RingDoor;

class SetupLock {
 public:
  // `newest`: where the list of all doors begins, each with the next older one.
  explicit SetupLock(const std::atomic<RingDoor*>* newest) : newest_(newest) {}

  void lock();
  void unlock() { mutex_.unlock(); }

 private:
  const std::atomic<RingDoor*>* const newest_;
  std::recursive_mutex mutex_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_SETUP_LOCK_H_
