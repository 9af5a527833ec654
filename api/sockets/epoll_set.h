// SPDX-License-Identifier: Apache-2.0
//
// EpollSet: an epoll set of the program: the kernel's, for what is the kernel's, and a list of
// ready items for the sockets that rings serve.
//
// Invariant: an item stands in the kernel's set exactly while its socket is not on a ring; it moves
// when the socket does. A ready item is in the list at most once. As in the kernel, an item is of a
// number and what that stood for when it was added.
// The kernel is asked where it may have something, and then not by every look: see Collect().
// Lock order: a watched thing's list, then the set, never the other way.
// Spec: epoll(7), epoll_ctl(2). Results are 0 or a count, or -errno. Threads: any.

#ifndef XTREME_API_SOCKETS_EPOLL_SET_H_
#define XTREME_API_SOCKETS_EPOLL_SET_H_

#include <sys/epoll.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "api/sockets/locks.h"
#include "api/sockets/watch.h"
#include "stack/base/time.h"

namespace xtreme::sockets {

class Faces;
class Socket;

class EpollSet final : public Pollable {
 public:
  // `fd`: the kernel's set.
  EpollSet(Faces* faces, int fd);
  ~EpollSet() override;

  // `target`: what stands behind `fd`; null: the kernel's alone.
  int Control(int operation, int fd, const epoll_event* event, std::shared_ptr<Pollable> target);
  int Wait(epoll_event* events, int most, base::Nanoseconds limit, const sigset_t* signals);
  // The last descriptor is being closed. Who waits is told EBADF.
  void Close();
  // The descriptor it was known by is being closed, `fd` is another one.
  void Rename(int fd) { fd_.store(fd, std::memory_order_relaxed); }
  // The sockets that are in it.
  std::vector<std::shared_ptr<Pollable>> Members() const;
  // Another process has the kernel's set too, and may put into it what is not known here.
  void BeShared() { kernel_alone_.store(true, std::memory_order_relaxed); }

  int fd() const { return fd_.load(std::memory_order_relaxed); }

  // Descriptors of the program for it.
  std::atomic<int> descriptors{1};

  uint32_t Look() override;
  void AddDoors(Doors* doors) const override;
  void AfterFork() override;

 private:
  struct Item final : Watcher {
    EpollSet* set = nullptr;
    int fd = -1;
    // Of what it is of, in place of `fd` once that is closed and copies are left: the kernel's set
    // knows by numbers what it is to forget. -1: none.
    int own = -1;
    std::shared_ptr<Pollable> target;  // Null: gone.
    RingDoor* door = nullptr;     // Of the target, as counted.
    epoll_event event{};
    std::atomic<uint32_t> wants{0};  // The bits of `event`, for who has not the lock.
    bool queued = false;
    bool disabled = false;        // One-shot, and told: not in the kernel's set either.
    bool in_kernel = false;

    ~Item();
    int number() const { return own >= 0 ? own : fd; }
    void Told(uint32_t events) override { set->OnTold(this, events); }
    uint32_t Wants() const override { return wants.load(std::memory_order_relaxed); }
    void Closes(int number) override { set->OnCloses(this, number); }
    void Gone() override { set->OnGone(this); }
  };

  // Of whom: what was closed is no key any more, so a pointer is enough.
  using Key = std::pair<int, const Pollable*>;

  void OnTold(Item* item, uint32_t events);
  void OnCloses(Item* item, int fd);
  void OnGone(Item* item);
  // It is no member any more, and not among the ready: what it was of, if it was one, and still is
  // to be detached from. Under the lock; `item` may be gone behind it.
  std::shared_ptr<Pollable> TakeOut(Item* item);
  // The kernel has the item while no ring does. Under the lock.
  int Place(Item* item);
  void SetInKernel(Item* item, bool is);
  // Whether Place() would find that nothing has changed.
  static bool StandsRight(const Item& item);
  void FindOnlyDoor();
  void QueueIfReady(Item* item);
  // A one-shot item that both halves watch, and one has told: the other is not to tell it again.
  void Disarm(Item* item);
  void DisarmAsTold(const epoll_event* events, int count);
  void Unnest(const Pollable* member);
  void Count(Item* item);
  int Add(int fd, const epoll_event& event, const std::shared_ptr<Pollable>& target);
  int Modify(Item* item, const epoll_event& event);
  int Remove(const Key& key);
  // What is ready now, of both halves. `kernel`: its half is asked if rings have nothing; if they
  // have, in one call of so many (SELECT_SKIP_OS).
  int Collect(epoll_event* events, int most, bool kernel);
  int CollectFromBoth(epoll_event* events, int most, bool kernel);
  bool KernelHasNothing() const {
    return in_kernel_ == 0 && !kernel_alone_.load(std::memory_order_relaxed);
  }
  // Under the lock; and not.
  int CollectFromRings(epoll_event* events, int most);
  int CollectFromKernel(epoll_event* events, int most);

  Faces* const faces_;
  std::atomic<int> fd_;
  mutable FutexLock lock_;
  bool closed_ = false;
  std::map<Key, std::shared_ptr<Item>> items_;
  std::deque<Item*> ready_;
  std::map<RingDoor*, size_t> doors_;             // Of how many items.
  std::atomic<RingDoor*> only_door_{nullptr};     // If that is all that is to be polled.
  std::vector<std::weak_ptr<Pollable>> nested_;  // Sets that are in this one.
  size_t in_kernel_ = 0;  // Items that are.
  std::atomic<bool> kernel_alone_{false};  // It may have others, which are no items.
  int64_t skips_ = 0;  // Calls that rings answered since the kernel was asked.
  bool kernel_first_ = false;
  bool has_one_shot_of_both_ = false;  // Or had: one-shot items that both halves watch.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_EPOLL_SET_H_
