// SPDX-License-Identifier: Apache-2.0
//
// Pollable: what can become ready; Watcher: who wants to be told; Sleeper: a thread that sleeps.
//
// Invariant: the mask is written first and the watchers are told then; who attaches first and looks
// at the mask then misses nothing.
// Threads: any. A watcher is told with the watched thing's list locked: it must not attach or
// detach inside.

#ifndef XTREME_API_SOCKETS_WATCH_H_
#define XTREME_API_SOCKETS_WATCH_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "api/sockets/locks.h"

namespace xtreme::sockets {

class RingDoor;

// Each once; a call that waits allocates none for few.
using Doors = absl::InlinedVector<RingDoor*, 4>;

// A bit of the mask that is none of epoll's: bytes wait, fewer than SO_RCVLOWAT asks for.
inline constexpr uint32_t kBelowLowWater = uint32_t{1} << 26;

class Watcher {
 public:
  // `events`: epoll bits that happened just now; they need not be new in the mask.
  virtual void Told(uint32_t events) = 0;
  // The bits that it is for; of others it is told too. What changes is said by WantsChanged().
  virtual uint32_t Wants() const { return ~uint32_t{0}; }
  // One of its descriptors is about to be closed, and others are left.
  virtual void Closes(int /*fd*/) {}
  // The watched thing ends; it has forgotten its watchers.
  virtual void Gone() {}

 protected:
  ~Watcher() = default;
};

class Pollable {
 public:
  virtual ~Pollable() = default;

  // Epoll bits that hold now.
  uint32_t mask() const { return mask_.load(std::memory_order_seq_cst); }
  // The mask after what waits outside has been looked at.
  virtual uint32_t Look() { return mask(); }
  // The ring whose progress makes it ready; null: none, or several.
  virtual RingDoor* door() const { return nullptr; }
  // Whether what stands behind it in the kernel counts, too.
  virtual bool KernelToo() const { return false; }
  // Whether its mask counts: a socket of no ring is the kernel's to watch.
  virtual bool ServedHere() const { return true; }
  // Whether its last descriptor is being closed: the kernel is not to be asked by its number.
  virtual bool Ended() const { return false; }
  // Adds the rings that can make it ready and are not in `doors` yet.
  virtual void AddDoors(Doors* doors) const;

  // If this has ended, it is told so at once.
  void Attach(Watcher* watcher);
  void Detach(Watcher* watcher);
  // Of one that is attached.
  void WantsChanged();
  // Tells them so.
  void SayCloses(int fd);
  // In a child after fork(): who had a lock is a thread of the parent's.
  virtual void AfterFork();

 protected:
  // What its watchers want, together, is not what it was. With the list locked.
  virtual void WatchedChanged() {}
  // Bits that begin and end to hold, and those that happened (again): watchers are told of these.
  void Change(uint32_t begin, uint32_t end, uint32_t happened) {
    if (end != 0) mask_.fetch_and(~end, std::memory_order_seq_cst);
    if (begin != 0) mask_.fetch_or(begin, std::memory_order_seq_cst);
    if (happened != 0 && watched()) [[unlikely]] Tell(happened);
  }
  // Whether anybody would be told.
  bool watched() const { return watched_by_.load(std::memory_order_seq_cst) != 0; }
  // Whether any is for one of these.
  bool awaited(uint32_t events) const {
    return (awaited_.load(std::memory_order_relaxed) & events) != 0;
  }
  // Tells every watcher that this ends.
  void SayGone();

 private:
  void Tell(uint32_t happened);
  void FindAwaited();

  std::atomic<uint32_t> mask_{0};
  std::atomic<uint32_t> watched_by_{0};  // As many as `watchers_`: nobody is told without the lock.
  std::atomic<uint32_t> awaited_{0};      // By all of them.
  FutexLock lock_;
  std::vector<Watcher*> watchers_;
  bool gone_ = false;
};

// The calling thread's: an fd that is readable from Told() to Rest().
class Sleeper final : public Watcher {
 public:
  Sleeper();
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  static Sleeper& OfThread();
  // In a child after fork(): the parent's thread sleeps on the same eventfd as its copy here.
  static void AfterFork();

  void Told(uint32_t events) override;
  void Rest();
  int fd() const { return fd_; }

 private:
  void Open();

  int fd_ = -1;
  uint32_t forks_ = 0;  // Before it was opened.
};

// For the time of a wait.
class Attachment {
 public:
  Attachment(Pollable* watched, Watcher* watcher) : watched_(watched), watcher_(watcher) {
    watched_->Attach(watcher_);
  }
  ~Attachment() { watched_->Detach(watcher_); }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

 private:
  Pollable* const watched_;
  Watcher* const watcher_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_WATCH_H_
