// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/epoll_set.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>

#include "api/sockets/deferred_listeners.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {
namespace {

constexpr uint32_t kAlwaysTold = EPOLLERR | EPOLLHUP;

// Whether the kernel (fs/eventpoll.c of Linux) refuses these events of a new or changed item.
bool IsWrong(int operation, uint32_t events, bool of_set) {
  constexpr uint32_t kExclusives =
      EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  if ((events & EPOLLEXCLUSIVE) == 0) return false;
  if (operation == EPOLL_CTL_MOD) return true;
  return operation == EPOLL_CTL_ADD && (of_set || (events & ~kExclusives) != 0);
}

// Whether a ring tells of it, or may come to: what the kernel's half has told is not to be told
// again by ours.
bool IsOfBoth(const Pollable& target) {
  if (target.ServedHere()) return true;
  const auto* const socket = dynamic_cast<const Socket*>(&target);
  return socket != nullptr && socket->path() == Path::kUndecided;
}

}  // namespace

EpollSet::EpollSet(Faces* faces, int fd) : faces_(faces), fd_(fd) {}

EpollSet::Item::~Item() {
  if (own >= 0) Kernel().close(own);
}

EpollSet::~EpollSet() {
  // Nobody else has the set any more, but who tells an item, until it is detached.
  std::map<Key, std::shared_ptr<Item>> items;
  {
    const std::lock_guard lock(lock_);
    items.swap(items_);
  }
  for (const auto& [key, item] : items) {
    std::shared_ptr<Pollable> target;
    {
      const std::lock_guard lock(lock_);
      target = item->target;
    }
    if (target != nullptr) target->Detach(item.get());
  }
}

void EpollSet::AfterFork() {
  Pollable::AfterFork();
  std::construct_at(&lock_);
  BeShared();
  // They would keep open what the parent closes.
  for (const auto& [key, item] : items_) {
    if (item->own >= 0) Kernel().close(std::exchange(item->own, -1));
  }
}

void EpollSet::Close() {
  {
    const std::lock_guard lock(lock_);
    closed_ = true;
  }
  Change(0, 0, EPOLLHUP);
  SayGone();
}

// Which ring to poll for it.
void EpollSet::Count(Item* item) {
  RingDoor* const now = item->target == nullptr ? nullptr : item->target->door();
  RingDoor* const before = std::exchange(item->door, now);
  if (now == before) return;
  if (now != nullptr) ++doors_[now];
  if (before != nullptr && --doors_[before] == 0) doors_.erase(before);
  FindOnlyDoor();
}

void EpollSet::FindOnlyDoor() {
  const bool one = doors_.size() == 1 && nested_.empty();
  only_door_.store(one ? doors_.begin()->first : nullptr, std::memory_order_relaxed);
}

// On the same ring as before, of which the kernel has nothing.
bool EpollSet::StandsRight(const Item& item) {
  return item.door != nullptr && !item.in_kernel && item.target->door() == item.door &&
         !item.target->KernelToo();
}

int EpollSet::Place(Item* item) {
  Count(item);
  if (item->target != nullptr && item->target->Ended()) return -EBADF;
  const bool of_kernel = item->target == nullptr || item->target->door() == nullptr ||
                         item->target->KernelToo();
  const bool wanted = of_kernel && !item->disabled;
  const bool both = wanted && item->target != nullptr && IsOfBoth(*item->target);
  has_one_shot_of_both_ |= both && (item->event.events & EPOLLONESHOT) != 0;
  if (wanted == item->in_kernel || closed_) return 0;
  const int operation = wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  const bool done = Kernel().epoll_ctl(fd(), operation, item->number(), &item->event) == 0;
  // What the kernel refused is not there; what it does not know is not there any more.
  SetInKernel(item, wanted && done);
  return done ? 0 : -errno;
}

void EpollSet::SetInKernel(Item* item, bool is) {
  if (std::exchange(item->in_kernel, is) == is) return;
  in_kernel_ += is ? 1 : -1;
}

void EpollSet::QueueIfReady(Item* item) {
  const bool ready = item->target != nullptr && item->target->ServedHere() &&
                     (item->target->mask() & (item->event.events | kAlwaysTold)) != 0;
  if (!ready || item->queued || item->disabled) return;
  item->queued = true;
  ready_.push_back(item);
}

void EpollSet::OnTold(Item* item, uint32_t events) {
  bool ready = false;
  bool moved = false;
  {
    const std::lock_guard lock(lock_);
    if (item->target == nullptr) return;
    const RingDoor* const before = item->door;
    if (!StandsRight(*item)) [[unlikely]] Place(item);
    moved = item->door != before;
    if ((events & (item->event.events | kAlwaysTold)) != 0) QueueIfReady(item);
    ready = item->queued;
  }
  if (ready) Change((mask() & EPOLLIN) ^ EPOLLIN, 0, EPOLLIN);
  // Who sleeps has another ring to sleep on.
  if (moved && !ready) Change(0, 0, EPOLLIN);
}

// Linux: it stays for its copies. What never comes to a ring nobody takes out of the kernel's set.
void EpollSet::OnCloses(Item* item, int number) {
  const std::lock_guard lock(lock_);
  const auto* const socket = dynamic_cast<const Socket*>(item->target.get());
  if (socket == nullptr || item->fd != number || item->own >= 0 || !IsOfBoth(*socket)) return;
  const int own = HighDescriptor(Kernel().fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (own < 0) return;
  if (item->in_kernel) {
    Kernel().epoll_ctl(fd(), EPOLL_CTL_DEL, number, nullptr);
    SetInKernel(item, Kernel().epoll_ctl(fd(), EPOLL_CTL_ADD, own, &item->event) == 0);
  }
  item->own = own;
}

// The descriptor is about to be closed; the kernel's set forgets it by itself.
void EpollSet::OnGone(Item* item) {
  const std::lock_guard lock(lock_);
  TakeOut(item);
}

std::shared_ptr<Pollable> EpollSet::TakeOut(Item* item) {
  if (std::exchange(item->queued, false)) std::erase(ready_, item);
  SetInKernel(item, false);
  std::shared_ptr<Pollable> target = std::exchange(item->target, nullptr);
  Count(item);
  Unnest(target.get());
  if (target != nullptr) items_.erase({item->fd, target.get()});
  return target;
}

int EpollSet::Control(int operation, int fd, const epoll_event* event,
                      std::shared_ptr<Pollable> target) {
  if (target == nullptr) {
    epoll_event copy = event == nullptr ? epoll_event{} : *event;
    if (operation == EPOLL_CTL_ADD) kernel_alone_.store(true, std::memory_order_relaxed);
    return Kernel().epoll_ctl(this->fd(), operation, fd, event == nullptr ? nullptr : &copy) == 0
               ? 0
               : -errno;
  }
  const Key key(fd, target.get());
  std::shared_ptr<Item> item;
  {
    const std::lock_guard lock(lock_);
    const auto found = items_.find(key);
    if (found != items_.end()) item = found->second;
  }
  if (operation != EPOLL_CTL_DEL && event == nullptr) return -EFAULT;
  const bool of_set = dynamic_cast<EpollSet*>(target.get()) != nullptr;
  if (event != nullptr && IsWrong(operation, event->events, of_set)) return -EINVAL;
  switch (operation) {
    case EPOLL_CTL_ADD: return item != nullptr ? -EEXIST : Add(fd, *event, target);
    case EPOLL_CTL_MOD: return item == nullptr ? -ENOENT : Modify(item.get(), *event);
    case EPOLL_CTL_DEL: return item == nullptr ? -ENOENT : Remove(key);
    default: return -EINVAL;
  }
}

int EpollSet::Add(int fd, const epoll_event& event, const std::shared_ptr<Pollable>& target) {
  auto item = std::make_shared<Item>();
  item->set = this;
  item->fd = fd;
  item->target = target;
  item->event = event;
  item->wants.store(event.events, std::memory_order_relaxed);
  {
    const std::lock_guard lock(lock_);
    if (!items_.emplace(Key(fd, target.get()), item).second) return -EEXIST;
  }
  target->Attach(item.get());
  int placed = 0;
  bool ready = false;
  {
    const std::lock_guard lock(lock_);
    placed = item->target == nullptr ? -EBADF : Place(item.get());
    if (placed == 0) QueueIfReady(item.get());
    ready = item->queued;
    // It may have been told of since it was attached, and be among the ready.
    if (placed != 0) TakeOut(item.get());
    // Not before the kernel found no circle in it.
    if (placed == 0 && dynamic_cast<EpollSet*>(target.get()) != nullptr) nested_.push_back(target);
    FindOnlyDoor();
  }
  if (placed != 0) target->Detach(item.get());
  // Who waits already is told.
  if (placed == 0 && ready) Change(EPOLLIN, 0, EPOLLIN);
  return placed;
}

int EpollSet::Modify(Item* item, const epoll_event& event) {
  bool ready = false;
  std::shared_ptr<Pollable> target;
  {
    const std::lock_guard lock(lock_);
    // Gone since it was found: its number may be another's.
    if (item->target == nullptr) return -ENOENT;
    if ((item->event.events & EPOLLEXCLUSIVE) != 0) return -EINVAL;
    target = item->target;
    item->event = event;
    item->wants.store(event.events, std::memory_order_relaxed);
    item->disabled = false;
    const bool stood = item->in_kernel;
    if (const int placed = Place(item); placed != 0) return placed;
    const bool stands = stood && item->in_kernel;
    if (stands && Kernel().epoll_ctl(fd(), EPOLL_CTL_MOD, item->number(), &item->event) != 0) {
      return -errno;
    }
    QueueIfReady(item);
    ready = item->queued;
  }
  target->WantsChanged();
  if (ready) Change(EPOLLIN, 0, EPOLLIN);
  return 0;
}

int EpollSet::Remove(const Key& key) {
  std::shared_ptr<Item> item;
  std::shared_ptr<Pollable> target;
  {
    const std::lock_guard lock(lock_);
    const auto found = items_.find(key);
    if (found == items_.end()) return -ENOENT;
    item = found->second;
    if (item->in_kernel) Kernel().epoll_ctl(fd(), EPOLL_CTL_DEL, item->number(), nullptr);
    target = TakeOut(item.get());
  }
  if (target != nullptr) target->Detach(item.get());
  return 0;
}

// One that is no member any more, and those that are gone: sets that were each other's one after
// the other would be looked through in circles.
void EpollSet::Unnest(const Pollable* member) {
  std::erase_if(nested_, [member](const std::weak_ptr<Pollable>& each) {
    const auto still = each.lock();
    return still == nullptr || still.get() == member;
  });
  FindOnlyDoor();
}

void EpollSet::Disarm(Item* item) {
  item->disabled = true;
  Place(item);
}

// Items are known by their data here: who has several with the same cannot tell them apart either,
// and arms all of them.
void EpollSet::DisarmAsTold(const epoll_event* events, int count) {
  const std::lock_guard lock(lock_);
  if (!has_one_shot_of_both_) return;
  for (const auto& [key, item] : items_) {
    const bool both = item->in_kernel && item->target != nullptr && IsOfBoth(*item->target);
    if (!both || (item->event.events & EPOLLONESHOT) == 0) continue;
    const uint64_t data = item->event.data.u64;
    const bool told = std::any_of(events, events + count, [data](const epoll_event& each) {
      return each.data.u64 == data;
    });
    if (told) Disarm(item.get());
  }
}

int EpollSet::CollectFromRings(epoll_event* events, int most) {
  int count = 0;
  for (size_t looks = ready_.size(); looks > 0 && count < most; --looks) {
    Item* const item = ready_.front();
    ready_.pop_front();
    item->queued = false;
    const uint32_t told = item->target->Look() & (item->event.events | kAlwaysTold);
    if (told == 0 || item->disabled || !item->target->ServedHere()) continue;
    events[count].events = told;
    events[count].data = item->event.data;
    ++count;
    if ((item->event.events & EPOLLONESHOT) != 0) {
      Disarm(item);
    } else if ((item->event.events & EPOLLET) == 0) {
      item->queued = true;
      ready_.push_back(item);
    }
  }
  return count;
}

int EpollSet::CollectFromKernel(epoll_event* events, int most) {
  const int count = Kernel().epoll_wait(fd(), events, most, 0);
  if (count < 0) return -errno;
  if (count > 0) DisarmAsTold(events, count);
  return count;
}

// To ask the kernel costs more than all else here. Where that is due though rings have something,
// who comes first changes, so that neither starves.
int EpollSet::Collect(epoll_event* events, int most, bool kernel) {
  {
    const std::lock_guard lock(lock_);
    if (closed_) return -EBADF;
    if (KernelHasNothing()) return CollectFromRings(events, most);
  }
  return CollectFromBoth(events, most, kernel);
}

int EpollSet::CollectFromBoth(epoll_event* events, int most, bool kernel) {
  const Uncancelled whole;  // What was collected is nobody else's any more.
  std::unique_lock lock(lock_);
  const bool due = skips_ >= faces_->settings().select_skip_os;
  if (due && kernel) kernel_first_ = !kernel_first_;
  const bool first = due && kernel && kernel_first_;
  int count = 0;
  if (first) {
    lock.unlock();
    count = CollectFromKernel(events, most);
    if (count < 0) return count;
    lock.lock();
  }
  if (count < most) count += CollectFromRings(events + count, most - count);
  const bool then = !first && count < most && (count != 0 ? due : kernel);
  skips_ = first || then ? 0 : skips_ + (count != 0 ? 1 : 0);
  lock.unlock();
  const int more = then ? CollectFromKernel(events + count, most - count) : 0;
  return more < 0 ? more : count + more;
}

int EpollSet::Wait(epoll_event* events, int most, base::Nanoseconds limit,
                   const sigset_t* signals) {
  if (most <= 0) return -EINVAL;
  TimeToWait time(limit, faces_->settings().select_poll_us);
  KernelTurns turns(faces_->settings().select_poll_os_ratio);
  Interruption interruption;
  Doors doors;
  for (;;) {
    doors.clear();
    RingDoor* const only = only_door_.load(std::memory_order_relaxed);
    if (only == nullptr) AddDoors(&doors);
    const std::span<RingDoor* const> polled =
        only != nullptr ? std::span<RingDoor* const>(&only, 1) : doors;
    for (RingDoor* door : polled) {
      const RingDoor::Entry entry(door);
      door->Progress();
    }
    pthread_testcancel();
    const int count = Collect(events, most, turns.due());
    if (count == 0 && turns.due()) faces_->deferred().OfferAgain();
    if (count != 0 || time.none()) return count;
    if (interruption.happened() || (turns.due() && HasSignal(signals))) return -EINTR;
    time.Look();
    if (time.is_over() && turns.due()) return 0;
    if (time.polls() && !polled.empty()) {
      turns.Next();
      continue;
    }
    turns.BeDue();
    if (time.is_over()) continue;
    Sleeper::OfThread().Rest();
    const Attachment attachment(this, &Sleeper::OfThread());
    Doors doors_now;
    AddDoors(&doors_now);
    if ((Look() & EPOLLIN) != 0 || !std::ranges::equal(doors_now, polled)) continue;
    pollfd own[] = {{.fd = fd(), .events = POLLIN}};
    const base::Nanoseconds until = faces_->deferred().SleepUntil(time.until());
    const int slept = SleepOnRings(polled, own, until, signals);
    if (slept < 0) return slept;
    // By whom it came there is another question.
    if (own[0].revents != 0) kernel_alone_.store(true, std::memory_order_relaxed);
  }
}

uint32_t EpollSet::Look() {
  const std::lock_guard lock(lock_);
  if (closed_) return EPOLLIN;
  const bool ready = std::any_of(ready_.begin(), ready_.end(), [](const Item* item) {
    return item->target != nullptr && !item->disabled &&
           (item->target->Look() & (item->event.events | kAlwaysTold)) != 0;
  });
  return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

void EpollSet::AddDoors(Doors* doors) const {
  const std::lock_guard lock(lock_);
  for (const auto& [door, items] : doors_) {
    if (std::find(doors->begin(), doors->end(), door) == doors->end()) doors->push_back(door);
  }
  for (const std::weak_ptr<Pollable>& each : nested_) {
    if (const auto set = each.lock()) set->AddDoors(doors);
  }
}

std::vector<std::shared_ptr<Pollable>> EpollSet::Members() const {
  const std::lock_guard lock(lock_);
  std::vector<std::shared_ptr<Pollable>> members;
  for (const auto& [key, item] : items_) {
    if (item->target != nullptr) members.push_back(item->target);
  }
  return members;
}

}  // namespace xtreme::sockets
